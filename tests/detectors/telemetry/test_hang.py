"""A job that stands still without a word, and all the ways in which a job may pause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from detectors.catalogue import load
from detectors.model import Fleet, Judged, Severity, Tick
from detectors.telemetry.hang import Hang
from tests.detectors.fleets import T0, fleet_of, telemetry

FLEET = fleet_of(4, jobs={"48213": (0, 1, 2), "7": (3,)})
EVERY_S = 30.0
WORK = {"power_w": 640.0, "utilisation_pct": 99.0, "nvlink_bytes": 2e11}
SPIN = {"power_w": 170.0, "utilisation_pct": 100.0, "nvlink_bytes": 0.0}
IDLE = {"power_w": 90.0, "utilisation_pct": 0.0, "nvlink_bytes": 0.0}
EVALUATION = {"power_w": 520.0, "utilisation_pct": 99.0, "nvlink_bytes": 0.0}
ENDED = {**IDLE, "fb_used_mib": 600.0}


class Told:
    def __init__(self, fleet: Fleet = FLEET) -> None:
        self.detector, self.fleet, self.ticks = Hang(load()), fleet, 0
        self.state = self.detector.start(fleet)
        self.nodes = {"48213": ("gpu-0001", "gpu-0002", "gpu-0003"), "7": ("gpu-0004",)}

    def look(self, does: Mapping[str, float], ticks: int = 1, other: Mapping[str, Mapping[str, float]] | None = None,
             silent: Sequence[str] = (), writes: Sequence[float] | None = None) -> Judged:  # fmt: skip
        """Job 48213 does so, job 7 works; ``other``: GPUs that do otherwise. writes: KiB/s of each node's disks, None =
        nobody says."""
        judged = Judged()
        for _ in range(ticks):
            self.ticks += 1
            off = {n: {**WORK, **(does if n.split("/")[0] in self.nodes["48213"] else {})} for n in self.names}
            off |= {name: {**off[name], **changed} for name, changed in (other or {}).items()}
            tick = telemetry(self.fleet, T0 + EVERY_S * self.ticks, silent, off)
            links = np.array([off[n]["nvlink_bytes"] for n in self.names], np.float32)
            links[np.isnan(tick.values["gpu", "power_w"])] = np.nan
            key = ("gpu", "nvlink_bytes")
            tick = Tick(tick.at, {**tick.values, key: links}, {**tick.sampled, key: tick.sampled["gpu", "power_w"]})
            if writes is not None:
                disk = {("node", "node_page_out_kib"): np.array(writes, np.float32)}
                tick = Tick(tick.at, {**tick.values, **disk}, {**tick.sampled, **{k: np.ones(4, bool) for k in disk}})
            judged = self.detector.step(self.state, tick, self.fleet)
        return judged

    @property
    def names(self) -> tuple[str, ...]:
        return self.fleet.axes["gpu"].names


@pytest.fixture
def told() -> Told:
    """A job that has worked, saved for 60 s, and worked on."""
    told = Told()
    told.look(WORK, 40), told.look(IDLE, 2), told.look(WORK, 20)
    return told


def test_a_job_whose_gpus_all_spin_stands_still(told: Told) -> None:
    judged = [told.look(SPIN) for _ in range(3)]
    assert [len(j.findings) for j in judged] == [0, 0, 1]
    (found,) = judged[-1].findings
    assert (found.kind, found.entity.kind, found.entity.id) == ("job_hang", "job", "48213")
    assert (found.severity, found.since) == (Severity.HIGH, T0 + EVERY_S * 63)
    assert found.reason == "job:48213 stands still: its 24 GPUs wait for each other, at 170 W against 640 W at work."
    assert told.look(WORK).findings == ()


def test_the_one_gpu_that_does_not_wait_is_named(told: Told) -> None:
    (found,) = told.look(SPIN, 4, {"gpu-0002/gpu5": IDLE}).findings
    assert found.reason.endswith("gpu-0002/gpu5 does otherwise.")
    assert any(piece.what == "idle GPUs" and piece.value == "gpu-0002/gpu5" for piece in found.evidence)


def test_a_node_that_fell_silent_does_not_hide_that_its_job_stopped(told: Told) -> None:
    (found,) = told.look(SPIN, 4, silent=["gpu-0003"]).findings
    assert any(piece.what == "silent GPUs" and "gpu-0003/gpu7" in piece.value for piece in found.evidence)


def test_pauses_as_long_as_the_jobs_own_are_no_hang() -> None:
    told = Told()
    told.look(WORK, 40)
    assert told.look(SPIN, 6).findings == (), "150 s: of a job that is not known yet, this may be its save"
    for _ in range(3):
        assert told.look(WORK, 30).findings == ()
        assert told.look(SPIN, 9).findings == (), "240 s: not twice as long as its longest"
    told.look(WORK, 30)
    assert len(told.look(SPIN, 20).findings) == 1


def test_a_phase_without_traffic_at_high_power_is_work(told: Told) -> None:
    assert told.look(EVALUATION, 40).findings == ()


def test_a_job_that_begins_is_no_hang() -> None:
    told = Told()
    assert told.look(IDLE, 60).findings == () and told.look(SPIN, 20).findings == ()


def test_a_job_that_gave_its_memory_back_has_ended(told: Told) -> None:
    assert told.look(ENDED, 80).findings == ()


def test_a_job_that_does_nothing_for_long_is_told_more_quietly(told: Told) -> None:
    assert told.look(IDLE, 30).findings == ()
    (found,) = told.look(IDLE, 2).findings
    assert found.severity is Severity.WARNING and "do nothing" in found.reason


def test_a_new_job_on_the_same_gpus_begins_without_a_past(told: Told) -> None:
    assert len(told.look(SPIN, 4).findings) == 1
    after = fleet_of(4, jobs={"48999": (0, 1, 2), "7": (3,)})
    told.state, told.fleet = told.detector.move(told.state, told.fleet, after), after
    assert told.look(SPIN, 20).findings == ()


def test_what_nobody_reports_keeps_what_was_said(told: Told) -> None:
    before = told.look(SPIN, 4).findings
    assert told.look(SPIN, 4, silent=["gpu-0001", "gpu-0002", "gpu-0003"]).findings == before


def test_a_notebook_may_rest() -> None:
    told = Told(fleet_of(4, jobs={"48213": (0,), "7": (3,)}))
    told.look(WORK, 40), told.look(IDLE, 2), told.look(WORK, 20)
    assert told.look(IDLE, 120).findings == ()


def test_a_phase_that_reads_its_memory_is_work() -> None:
    """Generation between steps of training: little power, no links, and the memory is read all the time."""
    told = Told()
    key = ("gpu", "dram_active_ratio")

    def look(does: Mapping[str, float], reads: float, ticks: int) -> Judged:
        judged = Judged()
        for _ in range(ticks):
            told.ticks += 1
            tick = telemetry(FLEET, T0 + EVERY_S * told.ticks, off=dict.fromkeys(told.names, {**WORK, **does}))
            column = np.full(len(told.names), reads, np.float32)
            tick = Tick(tick.at, {**tick.values, key: column}, {**tick.sampled, key: tick.sampled["gpu", "power_w"]})
            judged = told.detector.step(told.state, tick, FLEET)
        return judged

    look(WORK, 0.4, 60)
    assert look(SPIN, 0.6, 60).findings == ()
    look(WORK, 0.4, 20)
    assert len(look(SPIN, 0.0, 20).findings) == 2


QUIET, WRITING = (300.0, 300.0, 300.0, 9e5), (300.0, 2e6, 300.0, 300.0)


def test_a_job_that_never_paused_is_told_within_a_minute_where_its_nodes_neither_read_nor_write() -> None:
    told = Told()
    told.look(WORK, 40, writes=QUIET)
    judged = [told.look(SPIN, writes=QUIET) for _ in range(3)]
    assert [[f.kind for f in j.findings] for j in judged] == [[], [], ["job_hang"]]


def test_ranks_that_wait_while_one_of_them_saves_do_not_hang() -> None:
    told = Told()
    told.look(WORK, 40, writes=QUIET)
    assert not any(told.look(SPIN, writes=WRITING).findings for _ in range(8))
    assert told.look(WORK, 2, writes=QUIET).findings == ()


def test_a_save_that_takes_much_longer_than_those_before_is_told_as_such() -> None:
    told = Told()
    told.look(WORK, 40, writes=QUIET)
    for _ in range(3):
        told.look(IDLE, 3, writes=WRITING), told.look(WORK, 20, writes=QUIET)
    judged = [told.look(IDLE, writes=WRITING) for _ in range(9)]
    assert [bool(j.findings) for j in judged] == [False] * 8 + [True], "two and a half times the usual 90 s"
    (found,) = judged[-1].findings
    assert (found.kind, found.severity) == ("checkpoint_slow", Severity.WARNING)
    assert found.reason.startswith("job:48213 waits for a checkpoint for 240 s already; usual are 90 s")
    assert told.look(WORK, writes=QUIET).findings == ()
    told.look(IDLE, 3, writes=WRITING), told.look(WORK, 20, writes=QUIET)
    assert [bool(told.look(IDLE, writes=WRITING).findings) for _ in range(9)] == [False] * 8 + [True], "not learned"
