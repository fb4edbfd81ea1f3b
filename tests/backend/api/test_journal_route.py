"""POST ingest/journal: what journalctl prints is taken as it is."""

from __future__ import annotations

from tests.backend.api.conftest import NOW, Site
from tests.backend.ingest.test_journal_push import exported, fields

STAMP = str(int((NOW.timestamp() - 60) * 1e6))


def test_an_export_is_committed_and_sending_it_twice_is_safe(site: Site) -> None:
    body = exported(fields(1, __REALTIME_TIMESTAMP=STAMP)) + exported(
        fields(2, __REALTIME_TIMESTAMP=STAMP, MESSAGE="usb")
    )
    client = site.program("ingest")
    for accepted, duplicates in ((1, 0), (0, 1)):
        answer = client.post(
            "/api/v1/ingest/journal", content=body, headers={"Content-Type": "application/vnd.fdo.journal"}
        )
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert (found["accepted"], found["duplicates"], found["counted"]) == (accepted, duplicates, 1)


def test_what_is_no_journal_is_refused_with_what_to_send(site: Site) -> None:
    answer = site.program("ingest").post("/api/v1/ingest/journal", content=b"hello")
    assert answer.status_code == 400 and "journalctl -o export" in answer.json()["detail"]
