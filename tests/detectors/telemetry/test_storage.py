"""Mounts that are slow for one client, servers that are slow for all, and disks that fill up."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from detectors.catalogue import load
from detectors.model import Finding, FloatArray, MetricKey, Tick
from detectors.telemetry.disks import Disks
from detectors.telemetry.host import Host
from detectors.telemetry.storage import Storage
from tests.detectors.fleets import T0, fleet_of

CATALOGUE = load()


class Calls:
    """Four nodes that read and write one export; a look every 30 s."""

    def __init__(self) -> None:
        self.detector, self.fleet, self.at = Storage(CATALOGUE), fleet_of(4), T0
        self.state = self.detector.start(self.fleet)
        self.dice = np.random.default_rng(3)

    def look(
        self,
        times: int,
        slow: Mapping[str, float] | None = None,
        rate: float = 20.0,
        blocked: Mapping[str, float] | None = None,
    ) -> tuple[Finding, ...]:
        """slow: by node how many times as long a call takes; 0 = none comes back."""
        found: tuple[Finding, ...] = ()
        names = [id_.split("/")[0] for id_ in self.fleet.axes["mount_op"].ids]
        for _ in range(times):
            self.at += 30.0
            factor = np.array([(slow or {}).get(name, 1.0) for name in names])
            calls = np.where(factor > 0, rate, 0.0).astype(np.float32)
            each = 0.01 * factor * np.exp(0.1 * self.dice.standard_normal(len(names)))
            spent = (calls * each).astype(np.float32)
            values: dict[MetricKey, FloatArray] = {
                ("mount_op", "op_requests"): calls,
                ("mount_op", "op_request_s"): spent,
                ("mount_op", "op_queue_s"): (0.9 * spent).astype(np.float32),
                ("node", "node_procs_blocked"): np.array(
                    [(blocked or {}).get(node, 0.0) for node in self.fleet.nodes], np.float32
                ),
            }
            found = self.detector.step(self.state, Tick(self.at, values), self.fleet).findings
        return found


def kinds(found: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(f.kind, str(f.entity)) for f in found]


def test_one_client_that_waits_is_its_mount() -> None:
    calls = Calls()
    calls.look(30)
    (found,) = calls.look(4, {"gpu-0002": 10.0})
    assert (found.kind, str(found.entity), found.entity.host) == ("nfs_slow", "gpu-0002/mount:/scratch", "gpu-0002")
    assert any(piece.unit == "%" and piece.value == "90" for piece in found.evidence)
    assert not calls.look(6)


def test_most_clients_at_once_are_the_server() -> None:
    calls = Calls()
    calls.look(30)
    found = calls.look(4, {f"gpu-000{n}": 10.0 for n in (1, 2, 3)})
    assert kinds(found) == [("nfs_slow", "fs:scratch")]


def test_a_burst_is_measured_against_bursts() -> None:
    """A checkpoint writes ten times as often, and each call takes eight times as long: every half an hour."""
    calls, everybody = Calls(), {f"gpu-000{n}": 8.0 for n in range(1, 5)}
    for _ in range(4):
        assert not calls.look(40)
        assert not calls.look(4, everybody, rate=200.0)


def test_a_server_that_answers_nobody_is_seen_by_who_waits_for_it() -> None:
    calls = Calls()
    calls.look(30)
    assert not calls.look(4, {"gpu-0001": 0.0})  # a job that ended calls nobody
    calls.look(10)
    nobody = {f"gpu-000{n}": 0.0 for n in range(1, 5)}
    assert kinds(calls.look(4, nobody, blocked=dict.fromkeys(nobody, 40.0))) == [("nfs_slow", "fs:scratch")]


class Space:
    """One mount of each of three nodes, a look every 30 s; ``local``: each its own disk."""

    def __init__(self) -> None:
        self.detector, self.fleet, self.at = Disks(CATALOGUE), fleet_of(3), T0
        self.state = self.detector.start(self.fleet)

    def look(self, *used: float) -> tuple[Finding, ...]:
        self.at += 30.0
        size = np.full(3, 1e12, np.float32)
        avail = (size * (1 - np.array(used))).astype(np.float32)
        values = {("mount", "mount_avail_bytes"): avail, ("mount", "mount_size_bytes"): size}
        return self.detector.step(self.state, Tick(self.at, values), self.fleet).findings


def test_a_file_system_that_many_mount_is_full_once() -> None:
    space = Space()
    for _ in range(3):
        assert not space.look(0.5, 0.5, 0.5)
    space.look(0.99, 0.99, 0.99)
    assert kinds(space.look(0.99, 0.99, 0.99)) == [("disk_full", "fs:scratch")]


def test_what_fills_up_within_the_hour_is_told_and_what_is_written_and_replaced_is_not() -> None:
    space = Space()
    for n in range(200):  # a checkpoint of 15 % every quarter of an hour, written in 2 minutes, then replaced
        assert not space.look(*[0.6 + 0.15 * min((n % 30) / 4, 1.0)] * 3)
    used = 0.6
    found: tuple[Finding, ...] = ()
    for _ in range(60):
        used += 0.005
        found = space.look(used, used, used)
    assert kinds(found) == [("disk_full", "fs:scratch")] and "minutes" in found[0].reason


def test_a_reboot_under_a_job_is_a_fault_and_one_of_an_idle_node_is_a_record() -> None:
    for jobs, severity in (({"1": [0]}, "warning"), ({}, "info")):
        detector, fleet = Host(CATALOGUE), fleet_of(1, jobs=jobs)
        state = detector.start(fleet)
        for at, up in ((0.0, 1e6), (30.0, 1e6 + 30), (300.0, 40.0)):
            values = {("node", "node_uptime_s"): np.array([up], np.float32)}
            found = detector.step(state, Tick(T0 + at, values), fleet).findings
        assert [(f.kind, f.severity.word, f.since) for f in found] == [("node_reboot", severity, T0 + 260.0)]
