"""runs.json and reliability.json of a replay: what the files of a bundle say, and null where they say nothing."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backend.facts import StepFacts
from backend.ingest.bundle.bundle import open_bundle
from backend.ingest.bundle.reading import Reading
from backend.ingest.bundle.sacct import attempts_of
from backend.reliability.history import StepTable
from backend.replay.accounting import Gathered, table_of
from backend.replay.run import replay
from backend.simulate.recording.record import Wish, record
from detectors.catalogue import load
from tests.bundles import T, bundle, node, row, sacct


def read(out: Path, name: str) -> Any:
    return json.loads((out / name).read_text())


def worked(folder: Path) -> Path:
    """The worked attempt of contracts.md, shifted to T, and its requeue."""
    first = row(JobIDRaw=7, State="NODE_FAIL", Start="2026-02-02T02:40:10", End="2026-02-02T03:13:00")
    again = row(
        JobIDRaw=7, State="COMPLETED", Restarts=1, Submit="2026-02-02T03:13:00", Eligible="2026-02-02T03:15:00",
        Start="2026-02-02T03:15:05", End="2026-02-02T03:20:00",
    )  # fmt: skip
    steps = [140 + 10 * n for n in range(101)] + [1190 + 10 * n for n in range(50)]
    rows = [
        {"ts": T + at, "run": "train", "job": "7", "step": n, "loss": 2.0, "step_time_s": 10.0}
        for n, at in enumerate(steps, 1)
    ]
    saves = [
        {"ts": T + 130, "run": "train", "step": 0, "kind": "load", "duration_s": 60.0},
        {"ts": T + 1180, "run": "train", "step": 101, "kind": "save", "duration_s": 40.0},
    ]
    return bundle(
        folder,
        described={"start": T, "end": T + 2700},
        jobs=sacct(first, again),
        nodes=[node("gpu-0001", 8)],
        files={
            "training/train.jsonl": "".join(json.dumps(one) + "\n" for one in rows),
            "checkpoints.jsonl": "".join(json.dumps(one) + "\n" for one in saves),
        },
    )


def test_the_worked_attempt_stands_in_runs_json(tmp_path: Path) -> None:
    summary = replay(open_bundle(worked(tmp_path / "b")), tmp_path / "out", load())
    assert summary["rows"] == {"training": 151, "checkpoints": 2, "job_logs": 0} and not summary["bad_rows"]["count"]
    (run,) = read(tmp_path / "out", "runs.json")
    assert (run["run"], run["nodes"], run["gpus"], run["failures"]) == ("train", 1, 8, 1)
    first, second = run["attempts"]
    assert (first["job"], first["restart"], first["failed"], second["restart"]) == ("7", 0, True, 1)
    assert (first["submit"], first["start"], first["end"]) == (T, T + 10, T + 1980)
    wanted = {
        "startup": 60, "load": 60, "productive": 1010, "save_stall": 40, "lost_since_checkpoint": 500, "hang": 300,
        "teardown": 0,
    }  # fmt: skip
    assert first["parts_s"] == pytest.approx(wanted, abs=1.0)
    assert run["decomposition_s"]["hold"] == pytest.approx(120) and run["scheduled_wall_s"] == 1970 + 295
    reliability = read(tmp_path / "out", "reliability.json")
    assert reliability["retry"]["auto"]["chains"] == 1 and reliability["retry"]["auto"]["rate"] == 1.0


def test_what_a_job_printed_says_whose_failure_it_was(tmp_path: Path) -> None:
    folder = worked(tmp_path / "b")
    log = folder / "jobs" / "logs" / "7" / "rank0.log"
    log.parent.mkdir(parents=True)
    log.write_text("step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    (folder / "jobs" / "sacct.txt").write_text(sacct(row(JobIDRaw=7, State="FAILED")))
    replay(open_bundle(folder), tmp_path / "out", load())
    (run,) = read(tmp_path / "out", "runs.json")
    (attempt,) = run["attempts"]
    assert attempt["class"] and attempt["infra"] is False


def test_without_a_part_its_numbers_are_null_and_not_guessed(tmp_path: Path) -> None:
    folder = worked(tmp_path / "b")
    (folder / "checkpoints.jsonl").unlink()
    (folder / "training" / "train.jsonl").unlink()
    replay(open_bundle(folder), tmp_path / "jobs", load())
    (run,) = read(tmp_path / "jobs", "runs.json")
    assert run["ettr"] is None and run["decomposition_s"]["productive"] is None
    assert run["scheduled_wall_s"] == 1970 + 295
    (folder / "jobs" / "sacct.txt").unlink()
    replay(open_bundle(folder), tmp_path / "none", load())
    assert read(tmp_path / "none", "runs.json") == []
    reliability = read(tmp_path / "none", "reliability.json")
    assert reliability["retry"]["all"] == {"chains": 0, "success": 0, "rate": None, "ci95": None, "attempts": 0}
    assert reliability["failures"]["job_mttf_hours"] is None


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_every_attempt_of_accounting_is_in_runs_json_as_it_stands_there(tmp_path: Path, seed: int) -> None:
    record(tmp_path / "b", Wish(seed, "mixed", 12, 2, 12.0, 300.0), lambda what, share: None)
    opened = open_bundle(tmp_path / "b")
    replay(opened, tmp_path / "out", load())
    told = [one for run in read(tmp_path / "out", "runs.json") for one in run["attempts"]]
    names = ("state", "submit", "start", "end", "excluded")
    found = {(one["job"], one["restart"]): [one[name] for name in names] + [one["nodes"]] for one in told}
    rows = attempts_of(opened.parts["jobs"][0], UTC, Reading(0), Counter())
    wanted = {
        (a.job, a.restart): [a.state, a.submit, a.start, a.end, list(a.excluded), sorted(a.nodes)]
        for _, _, _, a in rows
    }
    assert found == wanted and len(told) == len(found) > 3


# --- columns --------------------------------------------------------------------------------------------------------


def test_more_rows_than_memory_should_hold_are_told_by_one_rank(tmp_path: Path) -> None:
    rows = [
        {"ts": T + n, "run": "r", "job": job, "step": n} | ({} if rank is None else {"rank": rank})
        for n in range(20)
        for job, ranks in (("1", (2, 3, 4)), ("2", (None, 0, 1)), ("3", (None,)))
        for rank in ranks
    ]
    text = "".join(json.dumps(one) + "\n" for one in rows)
    opened = open_bundle(bundle(tmp_path, files={"training/r.jsonl": text}))
    with opened.prepare(tmp_path / "work", load(), max_rows=7) as ready:
        (steps,) = ready.training
        whole, thin = table_of(steps), table_of(steps, most=30)  # type: ignore[arg-type]
    assert len(whole) == 140 and len(thin) == 20 + 40 + 20
    ranks = {(thin.jobs[job], int(rank)) for job, rank in zip(thin.job_of, thin.rank, strict=True)}
    assert ranks == {("1", 2), ("2", -1), ("2", 0), ("3", -1)}


def test_steps_that_pass_by_become_the_same_columns_as_those_of_files() -> None:
    facts = [StepFacts(T + n, f"r{n % 3}", str(n % 2), n, step_time_s=1.0 if n % 5 else None) for n in range(30)]
    gathered, whole = Gathered(), StepTable.of(facts)
    for at in range(0, 30, 4):
        gathered._loose += facts[at : at + 4]
        gathered._settle()
    found = gathered.table()
    assert [found.jobs[j] for j in found.job_of] == [whole.jobs[j] for j in whole.job_of]
    assert [found.runs[j] for j in found.run_of] == [whole.runs[j] for j in whole.run_of]
    for name in ("at", "step", "step_s", "live", "total", "rank"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    assert len(Gathered().table()) == 0
