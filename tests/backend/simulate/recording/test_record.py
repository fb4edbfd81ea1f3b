"""A recording is the same bytes for the same words, in the forms that others read."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.simulate.recording.record import RecordingError, Wish, record
from tests.backend.simulate.recording.reading import expand, rows, sacct, samples, truth, unix
from tests.services.need import need

Made = Callable[..., Path]


def fingerprint(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_two_processes_write_the_same_bytes_for_the_same_seed(tmp_path: Path) -> None:
    for name, hashing in (("one", "1"), ("two", "2")):
        words = [
            "simulate",
            "--out",
            str(tmp_path / name),
            "--nodes",
            "8",
            "--gpus",
            "2",
            "--hours",
            "2",
            "--seed",
            "11",
        ]
        subprocess.run(
            [sys.executable, "-m", "backend.cli", *words],
            env={**os.environ, "PYTHONHASHSEED": hashing},
            check=True,
            capture_output=True,
            timeout=120,
        )
    one, two = fingerprint(tmp_path / "one"), fingerprint(tmp_path / "two")
    assert one == two and len(one) > 10


def test_another_seed_is_another_cluster(made: Made) -> None:
    one, other = made("mixed"), made("mixed", seed=8)
    assert (one / "topology.json").read_bytes() != (other / "topology.json").read_bytes()
    assert truth(one) != truth(other)


def test_a_bundle_holds_every_part_and_nothing_else(made: Made) -> None:
    names = {name.partition("/")[0] if "/logs/" in name else name for name in fingerprint(made("mixed"))}
    assert {"bundle.json", "topology.json", "truth.jsonl", "checkpoints.jsonl", "jobs", "jobs/sacct.txt"} <= names
    assert {"telemetry/dcgm.om", "telemetry/amd.om", "telemetry/node.om", "telemetry/up.om"} <= names
    assert {"logs/kernel.jsonl", "logs/slurm.jsonl", "logs/job.jsonl", "logs/fabricmanager.jsonl"} <= names
    assert not [name for name in names if name.startswith(".")]


def test_a_quiet_cluster_has_no_truth_but_a_life(made: Made) -> None:
    bundle = made("quiet", 6.0)
    assert truth(bundle) == []
    assert {row["State"] for row in sacct(bundle)} <= {"COMPLETED", "RUNNING", "PENDING"}
    assert rows(bundle / "checkpoints.jsonl") and rows(bundle / "logs" / "kernel.jsonl")


def test_prometheus_itself_takes_the_telemetry(made: Made, tmp_path: Path) -> None:
    promtool = need("promtool", "prometheus")
    for path in sorted((made("mixed") / "telemetry").glob("*.om")):
        words = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(path), str(tmp_path / path.stem)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr


def test_a_family_stands_together_under_one_type_line_and_files_end_with_eof(made: Made) -> None:
    for path in (made("mixed") / "telemetry").glob("*.om"):
        lines = path.read_text().splitlines()
        types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
        assert lines[-1] == "# EOF" and len(types) == len(set(types))
        family = ""
        for line in lines[:-1]:
            if line.startswith("# TYPE"):
                family, kind = line.split()[2:]
                continue
            assert line.partition("{")[0] == family + ("_total" if kind == "counter" else "")


def test_samples_of_a_series_rise_in_time_and_never_stand_twice(made: Made) -> None:
    last: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for name, labels, _, at in samples(made("mixed")):
        key = (name, frozenset(labels.items()))
        assert at > last.get(key, 0.0)
        last[key] = at


def test_accounting_is_read_and_no_node_is_given_to_two_jobs_at_once(made: Made) -> None:
    held: dict[str, list[tuple[float, float]]] = defaultdict(list)
    bundle = made("mixed", 8.0)
    found = sacct(bundle)
    for row in found:
        if row["Start"] == "Unknown":
            assert row["State"] == "PENDING" and row["NodeList"] == "None assigned"
            continue
        begin, end = unix(row["Start"]), float("inf") if row["End"] == "Unknown" else unix(row["End"])
        assert unix(row["Submit"]) <= unix(row["Eligible"]) <= begin < end
        assert len(expand(row["NodeList"])) == int(row["NNodes"])
        for node in expand(row["NodeList"]):
            held[node].append((begin, end))
    for spans in held.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))
    assert any(row["Restarts"] != "0" for row in found), "a requeued job keeps its id"


def test_attempts_of_one_job_come_one_after_the_other_and_count_their_restarts(made: Made) -> None:
    by_job: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in sacct(made("hosts", 8.0)):
        by_job[row["JobIDRaw"]].append(row)
    for attempts in by_job.values():
        assert [int(row["Restarts"]) for row in attempts] == list(range(len(attempts)))
        assert all(unix(a["End"]) <= unix(b["Submit"]) for a, b in zip(attempts, attempts[1:], strict=False))


def test_logs_arrive_in_order(made: Made) -> None:
    for path in (made("mixed") / "logs").glob("*.jsonl"):
        arrivals = [row.get("recv_ts", row["ts"]) for row in rows(path)]
        assert arrivals == sorted(arrivals)
        assert all(row["host"] and row["line"] for row in rows(path))


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish(nodes=1), "2 to 4096 nodes"),
        (Wish(gpus=17), "1 to 16 GPUs"),
        (Wish(hours=0.0), "0.25 hours"),
        (Wish(hours=float("nan")), "0.25 hours"),
        (Wish(interval_s=0.1), "1 to 300 s"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_in_words(wish: Wish, words: str, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=words):
        record(tmp_path / "new", wish)
    assert not (tmp_path / "new").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(RecordingError, match="not empty"):
        record(tmp_path, Wish())
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
