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

#: What ``scontrol show`` prints beside nodes.
SAID = {
    "reservation": "ReservationName=fw StartTime=1000 EndTime=5000 Nodes=b Flags=MAINT,SPEC_NODES State=ACTIVE\n"
    "ReservationName=class StartTime=1000 EndTime=5000 Nodes=a Flags=SPEC_NODES State=ACTIVE\n",
    "topology": "SwitchName=leaf1 Level=0 Nodes=a\nSwitchName=spine Level=1 Nodes=a,b Switches=leaf1\n"
    "SwitchName=top Level=1 Nodes=a Switches=leaf1\nBlockName=nvl72-1 BlockIndex=0 Nodes=a BlockSize=18\n",
}
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
JOB = {"job_id": 7, "job_state": "RUNNING", "restart_cnt": 0, "nodes": "a", "excluded_nodes": "b", "name": "llm"}


def source(boots: list[str], err: str = "") -> SlurmSource:
    """A Slurm of two nodes; ``boots``: the boot time of node a at each read, the last one stays."""

    def run(command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Ran:
        if err:
            return Ran(1, "", err)
        if command[0] == "squeue":
            return Ran(0, json.dumps({"jobs": [JOB]}), "")
        if command[-2:] != ("show", "node"):
            return Ran(0, SAID.get(command[-1], ""), "")
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
    assert [(n.switch, n.clique, n.labels.get("switches")) for n in batch.nodes] == [
        ("leaf1", "nvl72-1", "spine,top"),
        ("", "", "spine"),
    ]
    (window,) = batch.maintenances
    assert (window.name, window.nodes, window.start, window.end) == ("fw@1000", ("b",), 1000.0, 5000.0)


def test_what_changes_seldom_is_read_seldom() -> None:
    slurm = source(["1000"])
    told = [slurm.read(frozenset(), at - 15.0, at).maintenances for at in (2015.0, 2030.0, 2300.0, 2320.0)]
    assert [len(windows) for windows in told] == [1, 0, 0, 1]


def test_a_drain_is_told_once_with_who_says_why() -> None:
    slurm = source(["1000"])
    reasons = ["", " Reason=NHC: gpu 3 xid 79 [root@1900]", " Reason=NHC: gpu 3 xid 79 [root@1900]", ""]

    def run(command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Ran:
        if command[0] == "squeue":
            return Ran(0, json.dumps({"jobs": []}), "")
        return Ran(0, f"NodeName=a State=IDLE+DRAIN BootTime=1000{reasons[0]}\n", "")

    slurm = SlurmSource(SlurmCli(run=run), ManualClock(NOW))
    told = []
    for at in (1850.0, 1915.0, 1930.0, 1945.0):
        told.append(slurm.read(frozenset(), at - 15, at).events)
        reasons.pop(0) if len(reasons) > 1 else None
    assert [len(events) for events in told] == [0, 1, 0, 0]
    (out,) = told[1]
    assert (out.at, out.host, out.namespace, out.code, out.text) == (
        1900.0,
        "a",
        "slurm",
        "node_out",
        "NHC: gpu 3 xid 79",
    )
    assert (out.attrs["who"], out.attrs["kind"], out.attrs["xid"], out.attrs["gpu"]) == (
        "nhc",
        "gpu_bus_loss",
        "79",
        "3",
    )


def test_versions_are_told_when_they_change() -> None:
    texts = ["Version=22.05.8", "Version=22.05.8", "Version=24.11.5"]

    def run(command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Ran:
        if command[0] == "squeue":
            return Ran(0, json.dumps({"jobs": []}), "")
        if command[-1] != "node":
            return Ran(0, "", "")
        return Ran(0, f"NodeName=a {texts.pop(0)} OS=Linux 6.1.0-31-amd64 #1 SMP State=IDLE\n", "")

    slurm = SlurmSource(SlurmCli(run=run), ManualClock(NOW))
    told = [slurm.read(frozenset(), at - 15.0, at).versions for at in (15.0, 30.0, 45.0)]
    assert [[(v.item, v.value) for v in versions] for versions in told] == [
        [("slurm", "22.05.8"), ("kernel", "6.1.0-31-amd64")],
        [],
        [("slurm", "24.11.5")],
    ]


def test_what_cannot_be_read_beside_nodes_and_jobs_is_counted_and_holds_nothing_up() -> None:
    def run(command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Ran:
        if command[0] == "squeue":
            return Ran(0, json.dumps({"jobs": []}), "")
        return Ran(0, "NodeName=a State=IDLE\n", "") if command[-1] == "node" else Ran(1, "", "Access denied")

    batch = SlurmSource(SlurmCli(run=run), ManualClock(NOW)).read(frozenset(), 0.0, 15.0)
    assert [n.name for n in batch.nodes] == ["a"]
    assert batch.dropped == {"reservations that could not be read": 1, "topologies that could not be read": 1}


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
