"""Slurm as a source: what one read brings, when a reboot is told, how a failure is named."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest

from backend.clients.slurm import Ran, SlurmCli
from backend.clock import ManualClock, SystemClock
from backend.ingest.base import Source, SourceError
from backend.ingest.slurm import SlurmSource
from tests.services.slurm import SlurmCluster

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
JOB = {"job_id": 7, "job_state": "RUNNING", "restart_cnt": 0, "nodes": "a", "excluded_nodes": "b", "name": "llm"}


def source(boots: list[str], err: str = "") -> SlurmSource:
    """A Slurm of two nodes; ``boots``: the boot time of node a at each read, the last one stays."""

    def run(command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Ran:
        if err:
            return Ran(1, "", err)
        if command[0] == "squeue":
            return Ran(0, json.dumps({"jobs": [JOB]}), "")
        boot = boots.pop(0) if len(boots) > 1 else boots[0]
        return Ran(0, f"NodeName=a State=ALLOCATED BootTime={boot}\nNodeName=b State=DOWN BootTime=None\n", "")

    return SlurmSource(SlurmCli(run=run), ManualClock(NOW))


def test_one_read_brings_nodes_with_their_jobs_and_all_attempts() -> None:
    slurm: Source = source(["1000"])
    batch = slurm.read(frozenset(), 2000.0, 2015.0)
    assert (batch.source, batch.start, batch.end, slurm.name) == ("slurm", 2000.0, 2015.0, "slurm")
    assert [(n.name, n.state, n.jobs, n.read_at) for n in batch.nodes] == [
        ("a", "allocated", ("7",), NOW.timestamp()),
        ("b", "down", (), NOW.timestamp()),
    ]
    (attempt,) = batch.attempts
    assert (attempt.job, attempt.run, attempt.excluded) == ("7", "llm", ("b",))
    assert batch.events == () and batch.series == ()


def test_a_reboot_is_told_once_and_jitter_is_none() -> None:
    slurm = source(["1000", "1002", "1001", "5000", "5001"])
    told = [slurm.read(frozenset(), 2000.0, 2015.0).events for _ in range(5)]
    assert [len(events) for events in told] == [0, 0, 0, 1, 0]
    (boot,) = told[3]
    assert (boot.at, boot.host, boot.namespace, boot.code, boot.dedupe) == (
        5000.0,
        "a",
        "boot",
        "boot",
        "slurm boot a 5000",
    )


def test_a_reboot_while_nobody_looked_is_told_at_the_first_read() -> None:
    slurm = source(["2010"])
    assert [e.host for e in slurm.read(frozenset(), 2000.0, 2015.0).events] == ["a"]
    assert slurm.read(frozenset(), 2015.0, 2030.0).events == ()


@pytest.mark.parametrize(
    ("err", "permanent"),
    [("Unable to contact slurm controller (connect failure)", False), ("Access/permission denied", True)],
)
def test_a_failure_is_a_source_error(err: str, permanent: bool) -> None:
    with pytest.raises(SourceError, match=err[:12]) as failed:
        source(["1"], err).read(frozenset(), 0.0, 1.0)
    assert failed.value.permanent is permanent


@pytest.mark.services
def test_a_real_slurm_is_read_whole(cluster: SlurmCluster) -> None:
    cli = SlurmCli(str(cluster.conf), 20)
    job = cluster.submit("-N2", "--gres=gpu:8", "-J", "llm-70b")
    cluster.wait("running job", lambda: any(a.state == "RUNNING" for a in cli.jobs()))
    cluster.run("scontrol", "update", "NodeName=gpu-0003", "State=DRAIN", "Reason=disk swap")
    batch = SlurmSource(cli, SystemClock()).read(frozenset(), 0.0, 1.0)
    nodes = {n.name: n for n in batch.nodes}
    assert [n for n in nodes if nodes[n].jobs == (job,)] == list(next(a for a in batch.attempts if a.job == job).nodes)
    assert nodes["gpu-0003"].out and nodes["gpu-0003"].reason_owner not in ("", "watchkeeper")
    assert all(n.boot_at and n.expected_gpus == 8 for n in nodes.values())
