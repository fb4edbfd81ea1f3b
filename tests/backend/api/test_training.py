"""What trainers push: kept once, judged by the next turn, said back in the sender's language."""

from __future__ import annotations

from typing import Any

from backend import pipeline
from backend.clock import unix
from tests.backend.api.conftest import NOW, Site

T = unix(NOW) - 600.0


def steps(count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"ts": T + 5 * n, "run": "r", "job": "7", "step": n, "loss": 2.0, "step_time_s": 5.0, **more}
        for n in range(count)
    ]


def test_a_row_that_is_sent_again_is_known(site: Site) -> None:
    with site.client() as client:
        rows = [*steps(3), {"ts": T, "run": "r", "step": "x"}]
        first = client.post("/api/v1/ingest/steps", json=rows).json()
        again = client.post("/api/v1/ingest/steps", json=rows).json()
    assert (first["accepted"], first["duplicates"], len(first["rejected"])) == (3, 0, 1)
    assert (again["accepted"], again["duplicates"]) == (0, 3)
    folders = site.watch.trained.folders("r", (), T, T + 99) if site.watch.trained else []
    assert len(site.watch.trained.trace(folders, T, T + 99)) == 3  # type: ignore[union-attr]  # the site has one


def test_a_loss_that_is_no_number_is_a_finding_after_the_next_turn(site: Site) -> None:
    with site.client() as client:
        rows = steps(80)
        for row in rows[60:]:
            row["loss"] = "NaN"
        assert client.post("/api/v1/ingest/steps", json=rows).status_code == 200
        while pipeline.observe(site.watch):
            pass
        items = client.get("/api/v1/incidents").json()["items"]
    assert any("run:r" in str(one["entity"]) for one in items), items


def test_calls_and_phases_reach_the_same_feed(site: Site) -> None:
    call = {"ts": T, "op": "AllReduce", "comm": "dp", "seq": 4, "ranks": 2, "start": T - 1, "end": T}
    with site.client() as client:
        done = client.post("/api/v1/ingest/collectives?run=r&rank=1&host=gpu-1", json=[call])
        assert done.json()["accepted"] == 1, done.text
        begun = {"ts": T, "run": "r", "step": 3, "kind": "save_begin"}
        assert client.post("/api/v1/ingest/checkpoints", json=[begun]).json()["accepted"] == 1
        wrong = client.post("/api/v1/ingest/collectives", json=[call])
        assert wrong.status_code == 422
        assert "needs run or job" in wrong.text
    assert site.watch.feed is not None
    rows, _ = site.watch.feed.read(site.watch.place, 10)
    assert [(row["ns"], row["code"]) for row in rows] == [("collective", "all_reduce"), ("ckpt", "save_begin")]


def test_otlp_says_what_it_left_out(site: Site) -> None:
    point = {
        "timeUnixNano": f"{T:.0f}000000000",
        "asDouble": 2.5,
        "attributes": [{"key": "step", "value": {"intValue": "3"}}],
    }
    metric = {"name": "train/loss", "gauge": {"dataPoints": [point, {**point, "attributes": []}]}}
    whose = {"attributes": [{"key": "run", "value": {"stringValue": "r"}}]}
    body = {"resourceMetrics": [{"resource": whose, "scopeMetrics": [{"metrics": [metric]}]}]}
    with site.client() as client:
        answer = client.post("/api/v1/ingest/otlp/v1/metrics", json=body)
        assert answer.json()["partialSuccess"]["rejectedDataPoints"] == "1"
        record = {"timeUnixNano": f"{T:.0f}000000000", "body": {"stringValue": "iter 9: loss 2.25, time 500.00ms"}}
        about = {
            "attributes": [{"key": n, "value": {"stringValue": v}} for n, v in (("host.name", "gpu-1"), ("job", "8"))]
        }
        logs = {"resourceLogs": [{"resource": about, "scopeLogs": [{"logRecords": [record]}]}]}
        assert client.post("/api/v1/ingest/otlp/v1/logs", json=logs).json() == {}
    assert site.watch.trained is not None
    assert site.watch.trained.trace(site.watch.trained.folders("r", (), T, T + 9), T, T + 9).loss.tolist() == [2.5]
    printed = site.watch.trained.trace(site.watch.trained.folders("8", (), T, T + 9), T, T + 9)
    assert (printed.step.tolist(), printed.loss.tolist(), printed.step_s.tolist()) == ([9], [2.25], [0.5])
