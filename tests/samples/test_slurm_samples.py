"""Every public sample of sacct, sinfo, scontrol, squeue and slurmrestd is read whole, where the samples are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from backend.clients.sacct import attempt_of_row, header_of, rows_of
from backend.clients.slurm_kept import read_kept
from backend.clients.slurm_records import parse_jobs, read_nodes
from backend.clients.slurm_sinfo import parse_sinfo
from backend.clients.slurm_states import BASES, JOB_BASES
from backend.clients.slurm_text import parse_partitions, read_partitions, read_reservations
from backend.clients.slurm_values import RecordError

#: The folder that holds the samples; the default stands beside this checkout.
FOLDER = Path(os.environ.get("WATCHKEEPER_SAMPLES") or Path(__file__).parents[2].parent / "shared" / "data")
pytestmark = [
    pytest.mark.samples,
    pytest.mark.skipif(
        not FOLDER.is_dir(), reason=f"no samples in {FOLDER}: set WATCHKEEPER_SAMPLES to the folder that holds them"
    ),
]
JSON = sorted(FOLDER.glob("slurmrestd-json/**/*.json")) + sorted(FOLDER.glob("rivos-slurm-exporter/*_out.json"))
SACCT = sorted(FOLDER.glob("*/**/*sacct*.txt"))


def loaded(path: Path) -> Any:
    return json.loads(path.read_bytes())


@pytest.mark.parametrize("path", [p for p in SACCT if "sacctmgr" not in p.name], ids=lambda p: p.name)
def test_a_sample_of_sacct_is_read_whole(path: Path) -> None:
    """Each row is an attempt, a step, or is told why not; those that are told lack columns or their beginning."""
    text = path.read_bytes().decode("utf-8", "replace")
    rows = list(rows_of(text.split("\n")))
    assert rows and header_of(text.split("\n", 1)[0]) is not None
    for columns, _, row in rows:
        try:
            attempt = attempt_of_row(columns, row)
        except RecordError as error:
            assert row.count(columns.delimiter) != columns.breaks, f"{error}: {row[:200]}"
        else:
            assert attempt is None or (attempt.job and attempt.state)


@pytest.mark.parametrize("path", JSON, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_sample_of_json_is_read_whole(path: Path) -> None:
    document = loaded(path)
    if path.name.startswith("slurmdb-job"):
        told = read_kept(document)
        assert len(told.attempts) == len(document["jobs"]) and not told.unread
        assert all(a.state in JOB_BASES and a.submit for a in told.attempts)
    elif "jobs" in document:
        jobs = parse_jobs(document)
        assert len(jobs) == len(document["jobs"])
        assert all(j.attempt.submit and j.attempt.state != "UNKNOWN" for j in jobs)
    elif "nodes" in document:
        nodes = read_nodes(document, 0.0)
        assert len(nodes) == len(document["nodes"]) and all(n.state in BASES for n in nodes)
    elif "partitions" in document:
        partitions = read_partitions(document)
        assert len(partitions) == len(document["partitions"]) and all(p.nodes and p.state for p in partitions)
    elif "reservations" in document:
        assert len(read_reservations(document)) == len(document["reservations"])


@pytest.mark.parametrize("path", sorted(FOLDER.glob("gcm-slurm/*scontrol-output*.txt")), ids=lambda p: p.name)
def test_a_sample_of_scontrol_is_read_whole(path: Path) -> None:
    text = path.read_text()
    partitions = parse_partitions(text)
    assert len(partitions) == text.count("PartitionName=") and all(p.nodes and p.state for p in partitions)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("gcm-slurm/sample-sinfo-output.txt")), ids=lambda p: p.name)
def test_a_sample_of_sinfo_is_read_whole(path: Path) -> None:
    nodes = parse_sinfo(path.read_text(), 0.0)
    assert nodes and all(n.state in BASES - {"unknown"} or n.flags for n in nodes)
    assert all(n.expected_gpus and n.partitions for n in nodes)


def test_gpus_of_a_job_are_known_to_the_index() -> None:
    """On each node of a job that runs with GPUs, as many indices as it holds GPUs there."""
    for path in FOLDER.glob("slurmrestd-json/**/slurm-job-gpus-*.json"):
        for job in parse_jobs(loaded(path)):
            if job.holds and job.attempt.gpus_per_node:
                assert len(job.attempt.gpus) == len(job.attempt.nodes), path
                assert max(len(held) for _, held in job.attempt.gpus) == job.attempt.gpus_per_node, path
