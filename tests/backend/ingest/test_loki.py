"""Loki: pages without loss or doubles, lines that show late, refusals that say what to mend; over recorded answers."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from requests.adapters import BaseAdapter

from backend.clients.loki import LokiError, LokiReader
from backend.facts import Batch
from backend.ingest.base import Follows, SourceError
from backend.ingest.files import Where
from backend.ingest.loki import MOST_PAGES, OVERLAP_S, LokiSource
from backend.ingest.tails import Tails
from detectors.kernel.lines import parse

AT = 1_770_000_000.0
NS = 1_000_000_000
XID = "NVRM: Xid (PCI:0000:9d:00): 79, pid=1, name=python, GPU has fallen off the bus."
KERNEL = {"job": "systemd-journal", "transport": "kernel", "hostname": "gpu-7"}


def wrapped(streams: Any, kind: str = "streams") -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": streams}}).encode()


class Server(BaseAdapter):
    """Answers query_range as Loki does, from a list of (ns, labels, line)."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, dict[str, str], str]] = []
        self.asked: list[requests.PreparedRequest] = []
        self.most = 5000
        self.refuse: tuple[int, bytes, Mapping[str, str]] | Exception | None = None

    def send(self, request: requests.PreparedRequest, *args: Any, **more: Any) -> requests.Response:
        self.asked.append(request)
        answer = requests.Response()
        answer.request, answer.status_code = request, 200
        if isinstance(self.refuse, Exception):
            raise self.refuse
        asked = {name: values[0] for name, values in parse_qs(urlsplit(request.url or "").query).items()}
        if self.refuse is not None:
            answer.status_code, body, headers = self.refuse
            answer.headers.update(headers)
        elif int(asked["limit"]) > self.most:
            answer.status_code = 400
            body = f"max entries limit per query exceeded, limit > max_entries_limit > {self.most}".encode()
        else:
            body = self.answer(asked)
        answer.raw = io.BytesIO(body)
        return answer

    def answer(self, asked: Mapping[str, str]) -> bytes:
        start, end, limit = int(asked["start"]), int(asked["end"]), int(asked["limit"])
        found = sorted((line for line in self.lines if start <= line[0] < end), key=lambda one: one[0])[:limit]
        streams: dict[str, Any] = {}
        for ns, labels, text in found:
            stream = streams.setdefault(json.dumps(labels), {"stream": labels, "values": []})
            stream["values"].append([str(ns), text])
        return json.dumps(
            {"status": "success", "data": {"resultType": "streams", "result": [*streams.values()]}}
        ).encode()

    def close(self) -> None:
        pass


@pytest.fixture
def server() -> Server:
    return Server()


def reader(server: Server, **more: Any) -> LokiReader:
    session = requests.Session()
    session.mount("http://", server)
    return LokiReader(more.pop("url", "http://user:secret@loki.example:3100"), session=session, **more)


def source(server: Server, page: int = 5000, marks: Mapping[str, str] | None = None, **more: Any) -> LokiSource:
    made = LokiSource(reader(server), ["{a}"], parse, Where("head", None, UTC), page=page, **more)
    made.resume(marks or {})
    return made


def read(made: LokiSource, at: float = AT) -> Batch:
    return made.read(frozenset(), at - 1, at)


def put(server: Server, at: float, text: str = XID, **labels: str) -> None:
    server.lines.append((int(at * NS), {**KERNEL, **labels}, text))


def test_kernel_lines_are_events_of_their_host_and_time(server: Server) -> None:
    put(server, AT - 5)
    (event,) = read(source(server)).events
    assert (event.at, event.host, event.code, event.attrs["source"]) == (AT - 5, "gpu-7", "79", "kernel")
    assert isinstance(source(server), Follows)


def test_pages_follow_one_another_without_loss_or_doubles(server: Server) -> None:
    for n in range(950):
        put(server, AT - 100 + n / 10 // 1 / 10, f"{XID} {n}")  # ten lines of one time each
    made = source(server, page=101)
    found = [event.text for event in read(made).events]
    while made.read(frozenset(), AT, AT).more:
        pass
    assert len(found) == len(set(found)) == 950


def test_a_storm_is_read_in_turns_and_makes_progress_though_the_overlap_is_full(server: Server) -> None:
    for n in range(3000):
        put(server, AT - 10 + n / 1000, f"{XID} {n}")
    made, found, turns = source(server, page=100), [], 0
    more = True
    while more and turns < 10:
        batch = read(made)
        found += [event.text for event in batch.events]
        more, turns = batch.more, turns + 1
    assert len(found) == len(set(found)) == 3000 and turns <= 3000 // (100 * MOST_PAGES) + 2


def test_more_lines_of_one_nanosecond_than_a_page_holds_are_counted_and_passed(server: Server) -> None:
    for n in range(30):
        server.lines.append((int((AT - 5) * NS), KERNEL, f"{XID} {n}"))
    put(server, AT - 4, f"{XID} later")
    made = source(server, page=10)
    found = [event.text for event in read(made).events]
    assert any("later" in text for text in found)
    assert made.counts()["pages full of one nanosecond"] >= 1


def test_a_line_that_shows_late_is_found_and_nothing_comes_twice(server: Server) -> None:
    put(server, AT - 5)
    made = source(server)
    read(made)
    put(server, AT - 5 - OVERLAP_S + 1, f"{XID} late", hostname="gpu-8")
    assert [event.host for event in read(made, AT + 1).events] == ["gpu-8"]
    assert read(made, AT + 2).events == ()


def test_a_restart_goes_on_and_what_comes_again_has_the_same_key(server: Server) -> None:
    put(server, AT - 5)
    first = read(source(server))
    again = source(server, marks={name: mark for name, mark in first.marks.items() if mark is not None})
    put(server, AT + 5, f"{XID} new")
    second = read(again, AT + 10)
    assert {event.dedupe for event in first.events} < {event.dedupe for event in second.events}
    assert len(second.events) == 2


def test_after_a_long_absence_it_goes_back_an_hour_and_says_so(server: Server) -> None:
    made = source(server, marks={"{a}": json.dumps({"ns": int((AT - 7200) * NS)})})
    read(made)
    assert made.counts()["seconds passed over"] == 3600
    assert (
        source(server, marks={"{a}": "nonsense", "{gone}": '{"ns": 1}'}).read(frozenset(), AT, AT).marks["{gone}"]
        is None
    )


def test_what_a_container_prints_is_never_the_kernels_word(server: Server) -> None:
    put(server, AT - 5, pod="train-0", container="main", transport="")
    put(server, AT - 4, transport="stdout", syslog_identifier="bash")
    assert read(source(server)).events == ()


@pytest.mark.parametrize("name", ["kernel", "", "python3", "kernel: NVRM"])
@pytest.mark.parametrize("before", ["", "kernel: ", "Aug 11 08:00:00 gpu-7 kernel: ", "<3>"])
def test_a_program_of_the_journal_is_not_taken_for_the_kernel(server: Server, name: str, before: str) -> None:
    put(server, AT - 5, before + XID, hostname="gpu-7", transport="stdout", syslog_identifier=name)
    assert read(source(server)).events == ()


def test_lines_of_jobs_go_into_their_tails(server: Server, tmp_path: Path) -> None:
    tails = Tails(tmp_path)
    put(server, AT - 5, "step 1", slurm_job_id="77", rank="3")
    put(server, AT - 4, "step 2", slurm_job_id="77")
    made = source(server, tails=tails, job_label="slurm_job_id")
    assert read(made).events == ()
    made.resume({})
    read(made)
    assert [(line.text, line.rank, line.host) for line in tails.tail("77")] == [
        ("step 1", "3", "gpu-7"),
        ("step 2", "", "gpu-7"),
    ]


def test_host_and_program_of_the_line_itself_win(server: Server) -> None:
    put(server, AT - 5, f"Feb  2 02:39:55 gpu-9 kernel: {XID}", hostname="collector", transport="")
    assert [event.host for event in read(source(server)).events] == ["gpu-9"]


def test_tenant_and_headers_are_sent(server: Server) -> None:
    headers = {"Authorization": "Bearer x"}
    reader(server, url="http://loki:3100/", tenant="hpc", headers=headers).query_range("{a}", 1, 2, 10)
    sent = server.asked[0].headers
    assert sent["X-Scope-OrgID"] == "hpc" and sent["Authorization"] == "Bearer x"


def test_a_server_that_allows_fewer_lines_is_asked_for_fewer(server: Server) -> None:
    server.most = 1000
    for n in range(1500):
        put(server, AT - 100 + n / 1000, f"{XID} {n}")
    assert len(read(source(server)).events) == 1500


def test_a_server_that_asks_us_to_wait_is_let_be(server: Server) -> None:
    server.refuse = (429, b"too many outstanding requests", {"Retry-After": "30"})
    made = source(server)
    with pytest.raises(SourceError, match="asks us to wait") as caught:
        read(made)
    assert not caught.value.permanent
    asked = len(server.asked)
    with pytest.raises(SourceError, match="29 s more"):
        read(made, AT + 1)
    assert len(server.asked) == asked
    server.refuse = None
    put(server, AT)
    assert len(read(made, AT + 31).events) == 1


@pytest.mark.parametrize(
    ("answer", "says", "permanent"),
    [
        ((401, b"", {}), "401: check loki_headers", True),
        ((404, b"page not found", {}), "404: page not found", True),
        ((400, b"parse error at line 1, col 2: syntax error", {}), "syntax error", True),
        ((500, b"oops", {}), "500: oops", False),
        ((200, b"<html>", {}), "not Loki's", True),
        ((200, wrapped([], "matrix"), {}), "not of a metric", True),
        ((200, wrapped([{"stream": {}, "values": [["x", 1]]}]), {}), "not L", True),
        (requests.ConnectionError("refused"), "does not answer: ConnectionError", False),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_said_without_the_password(server: Server, answer: Any, says: str, permanent: bool) -> None:
    server.refuse = answer
    with pytest.raises(LokiError, match=says) as caught:
        reader(server).query_range("{a}", 1, 2, 10)
    assert caught.value.permanent == permanent and "secret" not in str(caught.value)


def test_an_answer_without_end_is_given_up(server: Server) -> None:
    server.refuse = (200, b"x" * 1_000_000, {})
    with pytest.raises(LokiError, match="longer than 1,000 bytes"):
        reader(server, max_bytes=1000).query_range("{a}", 1, 2, 10)


def test_structured_metadata_counts_as_labels(server: Server) -> None:
    values = [["5", "x", {"structuredMetadata": {"pod": "p"}}], ["6", "y", {"node": "n"}]]
    server.refuse = (200, wrapped([{"stream": {"a": "b"}, "values": values}]), {})
    found = reader(server).query_range("{a}", 1, 9, 10)
    assert [dict(entry.labels) for entry in found] == [{"pod": "p", "a": "b"}, {"node": "n", "a": "b"}]
