"""GET jobs/{job}/log: what a job printed last, pushed or followed, for whoever may read."""

from __future__ import annotations

from backend.api.joblogs import masked
from backend.ingest.tails import TailLine
from tests.backend.api.conftest import NOW, Site

AT = NOW.timestamp() - 60


def pushed(site: Site, *lines: str, job: str = "41207", **more: object) -> None:
    rows = [
        {"ts": AT + n, "host": "gpu-7", "source": "job", "line": line, "job": job, **more}
        for n, line in enumerate(lines)
    ]
    answer = site.program("ingest").post("/api/v1/ingest/logs", json=rows)
    assert answer.status_code == 200, answer.text
    assert answer.json()["counted"] == len(lines)


def test_pushed_lines_of_a_job_are_shown_in_order(site: Site) -> None:
    pushed(site, "step 1", "step 2", rank=3)
    found = site.client().get("/api/v1/jobs/41207/log").json()
    assert found["job"] == "41207" and [line["text"] for line in found["lines"]] == ["step 1", "step 2"]
    assert found["lines"][0] == {
        "at": "2026-03-01T11:59:00+00:00", "text": "step 1", "file": "", "host": "gpu-7", "rank": "3",
    }  # fmt: skip


def test_followed_lines_stand_beside_them_and_a_rank_may_be_asked_for(site: Site) -> None:
    pushed(site, "step 1")
    site.parts.tails["main"].keep("41207", TailLine(AT, "Killed", "/home/lena/rank5.err", "gpu-8", "5"))
    client = site.client()
    assert len(client.get("/api/v1/jobs/41207/log").json()["lines"]) == 2
    (line,) = client.get("/api/v1/jobs/41207/log?rank=5").json()["lines"]
    assert (line["text"], line["file"]) == ("Killed", "/home/lena/rank5.err")
    assert [line["text"] for line in client.get("/api/v1/jobs/41207/log?lines=1").json()["lines"]] == ["Killed"]


def test_secrets_that_a_job_printed_are_masked(site: Site) -> None:
    key = ["-----BEGIN RSA PRIVATE KEY-----", "MIIEowIBAAKCAQEA7x", "-----END RSA PRIVATE KEY-----"]
    secrets = ["HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz", "fetching https://lena:s3cret@git.example/x", *key]
    pushed(site, "step 1", *secrets, "step 2")
    found = site.client().get("/api/v1/jobs/41207/log").json()["lines"]
    shown = [line["text"] for line in found]
    assert (shown[0], shown[-1], len(shown)) == ("step 1", "step 2", 7)
    assert not any(word in "\n".join(shown) for word in ("hf_abc", "s3cret", "MIIEow"))


def test_a_log_that_ends_within_a_private_key_keeps_its_lines() -> None:
    assert masked(["a", "-----BEGIN PRIVATE KEY-----", "MIIE", "b"]) == ["a", "***", "***", "***"]
    assert masked(["-----END PRIVATE KEY-----", "b"])[-1] == "b"


def test_a_job_that_nobody_heard_of_has_none(site: Site) -> None:
    answer = site.client().get("/api/v1/jobs/nobody/log")
    assert answer.status_code == 200 and answer.json()["lines"] == []


def test_it_is_for_those_who_may_read(site: Site) -> None:
    assert site.client(("10.0.0.1", 1)).get("/api/v1/jobs/1/log").status_code == 401
    assert site.program("ingest").get("/api/v1/jobs/1/log").status_code == 403
    assert site.client().get("/api/v1/jobs/1/log?lines=0").status_code == 422


def test_kernel_lines_are_events_and_not_in_the_log_of_a_job(site: Site) -> None:
    line = "NVRM: Xid (PCI:0000:9d:00): 79, pid=1, name=python, GPU has fallen off the bus."
    row = {"ts": AT, "host": "gpu-7", "source": "kernel", "line": line, "job": "41207"}
    assert site.program("ingest").post("/api/v1/ingest/logs", json=[row]).json()["accepted"] == 1
    assert site.client().get("/api/v1/jobs/41207/log").json()["lines"] == []
