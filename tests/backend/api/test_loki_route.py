"""POST ingest/logs takes what collectors push to Loki, and holds them to the same rules as rows."""

from __future__ import annotations

import pytest

from tests.backend.api.conftest import NOW, Site
from tests.backend.ingest.test_loki_push import KERNEL, PROTOBUF, XID, packed, written

AT = float(int(NOW.timestamp() - 60))


@pytest.mark.parametrize("kind", [PROTOBUF, "application/json"])
def test_a_push_is_committed_and_sending_it_twice_is_safe(site: Site, kind: str) -> None:
    body = (packed if kind == PROTOBUF else written)(KERNEL, XID, "usb 1-1: new device", at=AT)
    client = site.program("ingest")
    for accepted, duplicates in ((1, 0), (0, 1)):
        answer = client.post("/api/v1/ingest/logs", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert (found["accepted"], found["duplicates"], found["counted"]) == (accepted, duplicates, 1)


def test_a_push_that_says_snappy_of_itself_is_taken_too(site: Site) -> None:
    headers = {"Content-Type": PROTOBUF, "Content-Encoding": "snappy"}
    answer = site.program("ingest").post("/api/v1/ingest/logs", content=packed(KERNEL, XID, at=AT), headers=headers)
    assert answer.status_code == 200 and answer.json()["accepted"] == 1


def test_streams_without_a_host_are_counted_and_what_is_no_push_is_refused(site: Site) -> None:
    client = site.program("ingest")
    answer = client.post("/api/v1/ingest/logs", content=written({"app": "x"}, XID, at=AT))
    assert answer.status_code == 200 and sum(answer.json()["dropped"].values()) == 1
    answer = client.post("/api/v1/ingest/logs", content=b"\xff", headers={"Content-Type": PROTOBUF})
    assert answer.status_code == 400 and "snappy" in answer.json()["detail"]
