"""What only somebody with bad intent, or a broken program, sends: a clear no, and never a failure of ours."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import cramjam
import pytest
from fastapi.testclient import TestClient
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from backend.api.bodies import BodyLimit
from backend.clock import unix
from backend.simulate.remote_write import encode_labels, series, varint
from tests.backend.api.conftest import NOW, Site, problem
from tests.backend.api.rows import a_node, an_incident
from tests.backend.api.test_ingest import LOGS, WRITE, line, stored

HUGE = (10**20, 2**63)
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("number", HUGE)
def test_a_number_that_no_database_holds_is_refused(site: Site, local: TestClient, number: int) -> None:
    for path in (f"incidents/{number}", f"incidents/{number}/findings", f"incidents?before={number}"):
        problem(local.get(f"/api/v1/{path}"), 422)
    admin = site.person("admin")
    problem(admin.delete(f"/api/v1/exclusions/{number}"), 422)
    problem(admin.post(f"/api/v1/orders/d{number}/approve"), 422)


@pytest.mark.parametrize("origin", ["http://[", "null", "", "//", "http://127.0.0.1:8000@elsewhere.example"])
def test_an_origin_that_is_none_is_another_site(site: Site, origin: str) -> None:
    incident = an_incident(site)
    asked = site.person("operator").post(f"/api/v1/incidents/{incident}/ack", headers={"Origin": origin})
    assert "from this site" in problem(asked, 403)["detail"]


@pytest.mark.parametrize("until", ["9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"])
def test_an_exclusion_ends_within_a_year(site: Site, until: str) -> None:
    a_node(site)
    body = {"node": "gpu-001", "reason": "riser", "until": until}
    assert "`until`" in problem(site.person("operator").post("/api/v1/exclusions", json=body), 422)["detail"]


def test_every_member_of_a_gzip_body_is_read(site: Site, local: TestClient) -> None:
    members = [gzip.compress(json.dumps(line(code)).encode() + b"\n") for code in (48, 63, 79)]
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    assert local.post(LOGS, content=b"".join(members), headers=headers).json()["accepted"] == 3
    problem(local.post(LOGS, content=b"".join(members)[:-3], headers=headers), 400)
    problem(local.post(LOGS, content=members[0] + b"no gzip", headers=headers), 400)
    bomb = gzip.compress(b" " * 150_000)
    problem(local.post(LOGS, content=bomb + bomb, headers=headers), 413)


def test_half_a_surrogate_pair_costs_neither_its_line_nor_those_around_it(site: Site, local: TestClient) -> None:
    """Python's json writes such halves for bytes that were no UTF-8 (surrogateescape)."""
    rows = [line(48), line(79, host="gpu-002", job="\udcff"), line(63, source="\\ud83d")]
    text = json.dumps(rows).encode() + b""
    answer = local.post(LOGS, content=text, headers={"Content-Type": "application/json"}).json()
    assert answer["accepted"] == 3 and answer["dropped"] == {"rows with bytes that are no UTF-8": 1}
    assert [row.job for row in stored(site)] == ["", "\ufffd", ""]
    assert stored(site)[2].attrs["source"] == "\\ud83d"


def test_a_byte_order_mark_is_no_mistake(local: TestClient) -> None:
    for text in (json.dumps([line()]), json.dumps(line(31)) + "\n"):
        assert local.post(LOGS, content=b"\xef\xbb\xbf" + text.encode()).json()["accepted"] == 1


def test_a_body_that_drips_is_not_waited_for() -> None:
    """It would hold one of few places, and sixteen of them would shut everybody else out."""
    read: list[bytes] = []

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        while True:
            message = await receive()
            read.append(message["body"])

    async def drip() -> Message:
        if read:
            await asyncio.sleep(30)
        return {"type": "http.request", "body": b"[", "more_body": True}

    async def send(_: Any) -> None: ...

    scope = {"type": "http", "headers": []}
    with pytest.raises(HTTPException) as raised:
        asyncio.run(asyncio.wait_for(BodyLimit(app, 1000, within_s=0.05)(scope, drip, send), 10))
    assert raised.value.status_code == 408 and read == [b"["]


def test_samples_from_the_far_future_are_dropped_and_the_answer_says_so(site: Site, local: TestClient) -> None:
    labels = encode_labels({"__name__": "DCGM_FI_DEV_GPU_TEMP", "Hostname": "gpu-001", "UUID": "GPU-a", "gpu": "0"})
    times = (int(unix(NOW) * 1000), 2**63 - 1)
    body = cramjam.snappy.compress_raw(b"".join(series(labels, 50.0, varint(at)) for at in times))
    answer = local.post(WRITE, content=bytes(body)).json()
    assert answer["accepted"] == 1 and answer["dropped"] == {"from the future": 1}
    assert 'watchkeeper_ingest_dropped_total{cluster="main",reason="from the future"} 1' in local.get("/metrics").text


def test_a_program_without_the_right_is_told_of_its_scope(site: Site) -> None:
    answer = site.program("ingest").post("/api/v1/incidents/1/notes", json={"text": "x"})
    assert problem(answer, 403)["detail"] == "Token ingest robot has scope ingest; writes need operate or approve."


@pytest.mark.parametrize("body", [b'{"nodes":' * 100_000, b'{"nodes":1' + b"0" * 5000 + b"}"], ids=["deep", "long"])
def test_json_that_cannot_be_read_is_told_as_such(local: TestClient, body: bytes) -> None:
    answer = local.post(
        "/api/v1/exclusions/query", content=body[:150_000], headers={"Content-Type": "application/json"}
    )
    assert "JSON" in problem(answer, 400)["detail"]


def test_a_forgotten_content_type_is_told(local: TestClient) -> None:
    answer = local.post("/api/v1/exclusions/query", content=b"{}", headers={"Content-Type": "text/plain"})
    assert "Content-Type: application/json" in problem(answer, 422)["detail"]
