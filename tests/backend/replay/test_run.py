"""A bundle goes through the live pipeline: same bytes each time, missing parts are dark, bad rows cost themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from backend.ingest.bundle.bundle import open_bundle
from backend.replay.run import replay
from detectors.catalogue import load
from tests.bundles import TEMP, T, bundle, gpu, node, row, sacct

LOST = "NVRM: Xid (PCI:0000:13:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SCRAPE_S = 15.0
SCRAPES = 60
LOST_AT = T + 300.0


def scrapes(until: float = T + SCRAPES * SCRAPE_S) -> list[tuple[float, object]]:
    return [(T + i * SCRAPE_S, 60 + i % 3) for i in range(SCRAPES) if T + i * SCRAPE_S < until]


def a_lost_gpu(folder: Path, lines: Sequence[dict[str, object]] = ()) -> Path:
    """Eight GPUs of one node; GPU 3 is lost after five minutes: its series stop and the kernel says so."""
    om = "".join(gpu(TEMP, scrapes(LOST_AT if i == 3 else T + 1e6), index=i) for i in range(8))
    said = {"ts": LOST_AT + 1, "host": "gpu-0001", "source": "kernel", "line": LOST}
    return bundle(
        folder,
        nodes=[node("gpu-0001", 8)],
        telemetry={"dcgm": f"# TYPE {TEMP} gauge\n{om}# EOF\n"},
        logs={"kernel": [said, *lines]},
    )


def rows(out: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / name).read_text().splitlines()]


def test_a_lost_gpu_in_a_bundle_is_one_incident_with_its_plan(tmp_path: Path) -> None:
    summary = replay(open_bundle(a_lost_gpu(tmp_path / "b")), tmp_path / "out", load())
    (incident,) = rows(tmp_path / "out", "incidents.jsonl")
    assert (incident["entity"], incident["kind"]) == ("gpu-0001/gpu3", "gpu_bus_loss")
    assert incident["opened_at"] == LOST_AT + 1
    assert incident["recommended_action"] == "drain_now"
    assert incident["exclude"] == ["gpu-0001"]
    assert {key.split("|")[0] for key in incident["findings"]} == {"kernel/xid", "telemetry/silence"}
    assert summary["incidents"] == 1
    assert summary["ticks"] >= SCRAPES - 1


def test_an_incident_names_the_run_of_its_job(tmp_path: Path) -> None:
    folder = a_lost_gpu(tmp_path / "b")
    (folder / "jobs").mkdir()
    (folder / "jobs" / "sacct.txt").write_text(
        sacct(row(JobIDRaw=7, JobName="pretrain", State="RUNNING", End="Unknown"))
    )
    replay(open_bundle(folder), tmp_path / "out", load())
    (incident,) = rows(tmp_path / "out", "incidents.jsonl")
    assert (incident["job"], incident["run"]) == ("7", "pretrain")


def test_findings_come_in_order_with_the_time_their_tick_closed(tmp_path: Path) -> None:
    replay(open_bundle(a_lost_gpu(tmp_path / "b")), tmp_path / "out", load())
    found = rows(tmp_path / "out", "findings.jsonl")
    assert [row["state"] for row in found] == ["raised", "raised"]
    assert [row["detector"] for row in found] == ["kernel/xid", "telemetry/silence"]
    assert found[0]["emitted_at"] == LOST_AT + 1
    assert found[1]["emitted_at"] == found[1]["ts"] + SCRAPE_S
    assert all(set(row) >= {"key", "entity", "kind", "severity", "score", "reason", "evidence"} for row in found)


def test_two_replays_are_the_same_byte_for_byte(tmp_path: Path) -> None:
    folder = a_lost_gpu(tmp_path / "b")
    for out in ("one", "two"):
        replay(open_bundle(folder), tmp_path / out, load())
    for name in ("findings.jsonl", "incidents.jsonl", "runs.json", "reliability.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_missing_parts_are_dark_and_no_error(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "b", logs={"kernel": [{"ts": T, "host": "n1", "source": "kernel", "line": LOST}]})
    summary = replay(open_bundle(folder), tmp_path / "out", load())
    (incident,) = rows(tmp_path / "out", "incidents.jsonl")
    assert {"telemetry", "topology", "jobs"} <= set(summary["dark"])
    assert "telemetry" in incident["dark_sources"]


def test_bad_rows_are_listed_and_counted_and_cost_only_themselves(tmp_path: Path) -> None:
    bad: list[dict[str, object]] = [{"ts": "never", "host": "gpu-0001", "source": "kernel", "line": "x"}, {"no": 1}]
    summary = replay(open_bundle(a_lost_gpu(tmp_path / "b", bad)), tmp_path / "out", load())
    assert summary["bad_rows"]["count"] == 2
    assert {row["file"] for row in summary["bad_rows"]["first"]} == {"logs/kernel.jsonl"}
    assert summary["incidents"] == 1


def test_a_cancelled_replay_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "out"
    replay(open_bundle(a_lost_gpu(tmp_path / "b")), out, load())
    before = {file.name: file.read_bytes() for file in out.iterdir()}

    def cancel(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(open_bundle(tmp_path / "b"), out, load(), progress=cancel)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
