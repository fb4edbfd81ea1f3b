"""The front door: the same bytes as the routes, to the same people, at any form of the same question."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient

from backend.api.door import Door
from backend.app import Application, create_app
from backend.clock import ManualClock
from backend.registry import build
from backend.settings import Server, Settings
from backend.settings import Store as StoreSettings
from tests.backend.api.conftest import NOW, Site
from tests.backend.api.rows import a_node, an_exclusion, an_incident

API = "/api/v1"
FAR = ("10.1.2.3", 50_000)
KEPT = ("etag", "cache-control", "content-type", "content-length")


@pytest.fixture
def whole(tmp_path: Path, migrated_sqlite: Path) -> Iterator[Site]:
    """The product's own application: pages, API, and the front before them."""
    shutil.copy(migrated_sqlite, tmp_path / "watchkeeper.db")
    clock = ManualClock(NOW)
    settings = Settings(store=StoreSettings(folder=tmp_path), mode="propose", server=Server(max_body_bytes=200_000))
    parts = build(settings, clock)
    site = Site(parts, clock, create_app(parts, run_loops=False))
    site.app.state.snapshots._oldest_s = 3600.0  # a slow machine must not need another in the middle
    for name in ("gpu-001", "gpu-002", "gpu-003", "gpu-004"):
        a_node(site, name)
    an_exclusion(site, "gpu-002", incident_id=an_incident(site, "gpu-002"))
    an_incident(site, "gpu-003", entity_id="GPU-x")
    a_node(site, "gpu-005", last_seen=NOW - timedelta(hours=1))
    yield site
    parts.store.close()


class Counting:
    """The application behind the front: how often it was needed."""

    def __init__(self, app: Any) -> None:
        self.app, self.count = app, 0

    async def __call__(self, *given: Any) -> None:
        self.count += 1
        await self.app(*given)


def behind(site: Site) -> Counting:
    assert isinstance(site.app, Application) and site.app.front is not None
    found = Counting(site.app.front._app)
    site.app.front._app = found
    return found


def of(answer: Any) -> tuple[int, bytes, dict[str, str]]:
    return answer.status_code, answer.content, {k: answer.headers[k] for k in KEPT if k in answer.headers}


GETS = [f"{API}/nodes/gpu-00{n}" for n in range(1, 6)] + [f"{API}/nodes/made-up", f"{API}/nodes/gpu-001?job=41207"]
QUESTIONS: list[Any] = [
    {"nodes": ["gpu-001", "gpu-002", "gpu-003", "gpu-005", "gpu-009", "gpu-002"]},
    {"nodes": "gpu-[001-009]"},
    {"hostlist": "gpu-[001-009]"},
    {"nodes": []},
]


def test_front_and_routes_answer_the_same_bytes(whole: Site) -> None:
    client, needed = whole.client(), behind(whole)
    client.get(GETS[0])  # the routes make the snapshot
    warm = needed.count
    fast = [of(client.get(path)) for path in GETS]
    fast += [
        of(client.post(f"{API}/exclusions/query{more}", json=q)) for q in QUESTIONS for more in ("", "?advisory=1")
    ]
    assert needed.count == warm, "the front did not answer by itself"
    whole.app.front = None  # type: ignore[attr-defined]
    slow = [of(client.get(path)) for path in GETS]
    slow += [
        of(client.post(f"{API}/exclusions/query{more}", json=q)) for q in QUESTIONS for more in ("", "?advisory=1")
    ]
    assert fast == slow
    assert {code for code, _, _ in fast} == {200} and len({body for _, body, _ in fast[:6]}) == 6


NO_QUESTIONS = (
    b"{",
    b"[]",
    b'{"nodes": [1]}',
    b'{"nodes": [["gpu-001"]]}',
    b'{"nodes": ["a b"]}',
    b'{"nodes": "gpu-[3-1]"}',
    b'{"x": 1}',
    b"",
)


def test_what_is_no_question_is_refused_by_the_route(whole: Site) -> None:
    client = whole.client()
    client.get(GETS[0])
    for body in NO_QUESTIONS:
        answer = client.post(f"{API}/exclusions/query", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422) and answer.headers["content-type"] == "application/problem+json", body


def test_the_front_lets_nobody_in_whom_the_routes_refuse(whole: Site) -> None:
    whole.client().get(GETS[0])
    needed = behind(whole)
    assert whole.client(FAR).get(GETS[0]).status_code == 401
    assert whole.client(FAR, Authorization="Bearer wk_nobody").get(GETS[0]).status_code == 401
    assert whole.program("ingest", FAR).get(GETS[0]).status_code == 403
    assert whole.program("vendor", FAR).get(GETS[0]).status_code == 403
    assert whole.client().get(GETS[0], headers={"X-Forwarded-For": "10.9.9.9"}).status_code == 401
    assert whole.client(Origin="https://evil.example").get(GETS[0]).status_code == 401
    assert whole.client(Host="evil.example").get(GETS[0]).status_code == 401
    assert needed.count == 7
    reader = whole.program("read", FAR)
    assert reader.get(GETS[0]).status_code == 200  # the book is read
    before = needed.count
    assert reader.get(GETS[0]).status_code == 200 and needed.count == before


# --- ETags ----------------------------------------------------------------------------------------------------------


def test_an_answer_that_is_known_is_304_until_it_says_something_else(whole: Site) -> None:
    client = whole.client()
    for path in (GETS[0], GETS[1], f"{API}/nodes", f"{API}/exclusions"):
        mark = client.get(path).headers["ETag"]
        for known in (mark, f'"x", {mark}', "*", mark.removeprefix("W/")):
            answer = client.get(path, headers={"If-None-Match": known})
            assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", mark)
        assert client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    whole.clock.set(NOW + timedelta(seconds=20))  # read anew, and the same as before
    whole.app.state.snapshots.forget(whole.watch.cluster)
    assert client.get(GETS[0], headers={"If-None-Match": 'W/"ok"'}).status_code == 304
    an_exclusion(whole, "gpu-001")
    whole.app.state.snapshots.forget(whole.watch.cluster)
    assert client.get(GETS[0], headers={"If-None-Match": 'W/"ok"'}).status_code == 200


# --- those who wait ------------------------------------------------------------------------------------------------

WAITING = 300


def test_any_number_wait_without_a_thread_and_all_hear_of_the_change(whole: Site, served: int) -> None:
    known = asked(f"{API}/nodes/gpu-001?wait=50", 'If-None-Match: W/"ok"\r\n')
    exchanged(served, asked(GETS[0]))
    before = threading.active_count()
    links = [socket.create_connection(("127.0.0.1", served), 10) for _ in range(WAITING)]
    for link in links:
        link.sendall(known)
    waiting = whole.app.state.waiting
    deadline = time.monotonic() + 30
    while waiting.count < WAITING:
        assert time.monotonic() < deadline, waiting.count
        time.sleep(0.02)
    assert threading.active_count() - before < 10
    an_exclusion(whole, "gpu-001")
    whole.parts.changes.publish("incident", "1", whole.watch.cluster)
    began = time.monotonic()
    for link in links:
        link.settimeout(20)
        got = b""
        while not whole_answers(got):
            got += link.recv(65536)
        link.close()
        assert b'"verdict":"exclude"' in got
    assert time.monotonic() - began < 15 and waiting.count == 0


def test_who_waited_in_vain_is_told_304_and_what_tells_nobody_is_found_by_looking(whole: Site, served: int) -> None:
    whole.app.state.snapshots._oldest_s = 0.2
    exchanged(served, asked(GETS[0]))
    known = 'If-None-Match: W/"ok"\r\n'
    assert exchanged(served, asked(f"{GETS[0]}?wait=0.3", known)).startswith(b"HTTP/1.1 304 ")
    timer = threading.Timer(0.3, an_exclusion, (whole, "gpu-001"))  # as another process would: no word of it
    timer.start()
    assert b'"verdict":"exclude"' in exchanged(served, asked(f"{GETS[0]}?wait=9", known))
    timer.join()
    assert b"422" in exchanged(served, asked(f"{GETS[0]}?wait=600", known))[:20]


def test_who_waits_does_not_hold_up_a_server_that_stops(whole: Site, served: int) -> None:
    exchanged(served, asked(GETS[0]))
    with socket.create_connection(("127.0.0.1", served), 10) as link:
        link.sendall(asked(f"{GETS[0]}?wait=50", 'If-None-Match: W/"ok"\r\n'))
        deadline = time.monotonic() + 10
        while not whole.app.state.waiting.count:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        whole.parts.changes.close()
        link.settimeout(10)
        assert link.recv(65536).startswith(b"HTTP/1.1 304 ")


def test_more_than_may_wait_are_told_to_come_again(whole: Site) -> None:
    whole.app.state.waiting._most = 0
    answer = whole.client().get(f"{GETS[0]}?wait=5", headers={"If-None-Match": 'W/"ok"'})
    assert answer.status_code == 503 and answer.headers["Retry-After"] == "10"


# --- past uvicorn ---------------------------------------------------------------------------------------------------


@pytest.fixture
def served(whole: Site) -> Iterator[int]:
    """The application behind its own door on a real socket."""
    server = uvicorn.Server(uvicorn.Config(whole.app, http=Door, log_level="error", timeout_keep_alive=1))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield int(listener.getsockname()[1])
        server.should_exit = True
        thread.join(20)


def exchanged(port: int, *pieces: bytes, answers: int = 1) -> bytes:
    """What comes back over one connection: so many whole answers, and what else came at once; less where it closed."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), 10) as link, suppress(OSError):  # the server may hang up first
        for piece in pieces:
            link.sendall(piece)
            time.sleep(0.02)  # so that pieces arrive apart
        link.settimeout(10)
        while whole_answers(got) < answers and (more := link.recv(65536)):
            got += more
        link.settimeout(0.05)
        got += link.recv(65536)
    return got


def whole_answers(got: bytes) -> int:
    """How many answers are complete."""
    found = 0
    while (end := got.find(b"\r\n\r\n")) >= 0:
        head = got[:end].lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if len(got) < end + 4 + length:
            break
        got, found = got[end + 4 + length :], found + 1
    return found


def asked(path: str, more: str = "", method: str = "GET", body: bytes = b"") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}\r\n".encode() + body


def test_pieces_pipelines_and_odd_headers_are_answered_as_by_uvicorn(whole: Site, served: int) -> None:
    one, query = asked(GETS[0]), json.dumps(QUESTIONS[0]).encode()
    post = asked(
        f"{API}/exclusions/query", f"Content-Type: application/json\r\nContent-Length: {len(query)}\r\n", "POST", query
    )
    exchanged(served, one)
    assert exchanged(served, one, one, answers=2).count(b"200 OK") == 2
    assert exchanged(served, one + one + post, answers=3).count(b"200 OK") == 3
    assert exchanged(served, one[:30], one[30:], post[:150], post[150:], one, answers=3).count(b"200 OK") == 3
    assert exchanged(served, asked(GETS[0], "Connection: close\r\n"), one).count(b"200 OK") == 1
    assert exchanged(served, asked(GETS[0], 'If-None-Match: W/"ok"\r\n')).startswith(b"HTTP/1.1 304 ")
    assert (
        exchanged(served, asked(GETS[0], "Content-Length: 4\r\n", body=b"abcd"), one, answers=2).count(b"200 OK") == 2
    )
    assert exchanged(served, asked(GETS[0], "Transfer-Encoding: chunked\r\n", body=b"0\r\n\r\n")).count(b"200 OK") == 1
    assert b"405" in exchanged(served, asked(GETS[0], method="DELETE"))
    assert b"400" in exchanged(served, b"GET /api/v1/nodes/gpu-001 HTTP/1.1\r\nHost : x\r\n\r\n")
    chunk = asked(GETS[0], "X: " + " " * 60_000 + "\x01\r\n")
    began = time.monotonic()
    exchanged(served, chunk)
    assert time.monotonic() - began < 3


def test_a_connection_that_nobody_uses_is_closed(served: int) -> None:
    with socket.create_connection(("127.0.0.1", served), 10) as link:
        link.settimeout(10)
        link.sendall(asked(GETS[0]))
        told = b""
        while part := link.recv(65536):  # until it is closed
            told += part
        assert told.startswith(b"HTTP/1.1 200")


def test_the_door_and_the_client_library_agree(whole: Site, served: int) -> None:
    raw = exchanged(served, asked(GETS[1]))
    raw = exchanged(served, asked(GETS[1]))
    head, _, body = raw.partition(b"\r\n\r\n")
    whole.app.front = None  # type: ignore[attr-defined]
    slow = exchanged(served, asked(GETS[1]))
    assert body == slow.partition(b"\r\n\r\n")[2]
    told = {line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:]}
    assert told == {line.split(b":")[0].lower() for line in slow.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]}


def test_a_database_that_is_away_leaves_the_last_verdicts_marked_stale(
    whole: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: TestClient = whole.client()
    assert client.get(GETS[1]).json()["binding"] is True
    whole.app.state.snapshots.forget(whole.watch.cluster)
    whole.parts.store.close()
    monkeypatch.setattr(whole.parts.store, "read", away)
    whole.clock.set(NOW + timedelta(seconds=90))
    held, good = client.get(GETS[1]).json(), client.get(GETS[0]).json()
    assert held["binding"] is True and "does not answer" in held["reasons"][-1]
    assert (good["verdict"], good["binding"]) == ("unknown", False) and good["as_of"].startswith("2026-03-01T12:00:00")


def away() -> Any:
    from backend.store.engine import StoreError

    raise StoreError("the database is away", "")
