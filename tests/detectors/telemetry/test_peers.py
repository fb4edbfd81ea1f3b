"""A GPU that stands apart from those that do the same work, and all the ways in which it may not be blamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from detectors.catalogue import load
from detectors.model import Fleet, Judged, Severity, Tick
from detectors.telemetry.peers import Peers, PeersState
from tests.detectors.fleets import T0, entity, fleet_of, gpu, telemetry

FLEET = fleet_of(4)
GPU3 = "gpu-0002/gpu3"
HOT = {"temperature_c": 91.0}
THROTTLED = {"temperature_c": 91.0, "sm_clock_mhz": 1230.0, "power_w": 420.0}
SLOW = {"sm_clock_mhz": 1200.0, "power_w": 420.0, "temperature_c": 52.0}


class Told:
    def __init__(self, fleet: Fleet = FLEET) -> None:
        self.detector = Peers(load())
        self.fleet, self.ticks = fleet, 0
        self.state: PeersState = self.detector.start(fleet)

    def look(self, off: Mapping[str, Mapping[str, float]] | None = None, silent: Sequence[str] = ()) -> Judged:
        self.ticks += 1
        return self.step(telemetry(self.fleet, T0 + 15 * self.ticks, silent, off))

    def step(self, tick: Tick) -> Judged:
        return self.detector.step(self.state, tick, self.fleet)

    def blind(self, judged: Judged) -> list[str]:
        return [self.fleet.axes["gpu"].names[row] for row in np.flatnonzero(judged.blind["gpu"])]


@pytest.fixture
def told() -> Told:
    return Told()


def test_hot_and_slower_for_it_is_throttling(told: Told) -> None:
    said = [told.look({GPU3: THROTTLED}).findings for _ in range(3)]
    assert said[:2] == [(), ()], "it must last"
    (found,) = said[2]
    assert (found.kind, found.severity, found.since) == ("thermal_throttle", Severity.HIGH, T0 + 15)
    assert found.entity == entity(FLEET, GPU3)
    assert found.reason == (
        "GPU 3 of gpu-0002 runs at 91 °C against 62 °C of its 31 peers and slows down for it: "
        "SM clock 1,230 MHz against 1,905 MHz."
    )
    clock = next(piece for piece in found.evidence if piece.what == "SM clock")
    assert (clock.value, clock.expected, clock.unit) == ("1,230", "1,905", "MHz")


def test_hot_alone_is_a_warning(told: Told) -> None:
    (found,) = [told.look({GPU3: HOT}) for _ in range(3)][-1].findings
    assert (found.kind, found.severity) == ("thermal_throttle", Severity.WARNING)


def test_the_warning_becomes_throttling_under_the_same_key(told: Told) -> None:
    (hot,) = [told.look({GPU3: HOT}) for _ in range(3)][-1].findings
    (both,) = [told.look({GPU3: THROTTLED}) for _ in range(3)][-1].findings
    assert hot.key == both.key and both.severity is Severity.HIGH and both.since == hot.since


def test_slow_and_weak_but_cool_is_a_silent_slow_gpu(told: Told) -> None:
    (found,) = [told.look({GPU3: SLOW}) for _ in range(3)][-1].findings
    assert (found.kind, found.severity) == ("silent_slow_gpu", Severity.WARNING)
    assert "1,200 MHz against 1,905 MHz" in found.reason and "420 W against 640 W" in found.reason


def test_a_low_clock_at_full_power_is_how_power_caps_look(told: Told) -> None:
    for _ in range(4):
        assert told.look({GPU3: {"sm_clock_mhz": 1600.0, "power_w": 690.0}}).findings == ()


def test_a_job_that_shifts_as_a_whole_is_no_finding(told: Told) -> None:
    everyone = dict.fromkeys(FLEET.axes["gpu"].names, THROTTLED)
    for _ in range(4):
        assert told.look(everyone).findings == ()


def test_a_small_difference_is_no_finding_however_alike_the_peers_are(told: Told) -> None:
    for _ in range(4):
        assert told.look({GPU3: {"temperature_c": 68.0}}).findings == ()


def test_a_short_spike_is_no_finding(told: Told) -> None:
    for off in (THROTTLED, THROTTLED, {}, THROTTLED, THROTTLED, {}):
        assert told.look({GPU3: off}).findings == ()


def test_a_level_ends_after_as_many_good_looks_as_it_needed_bad_ones(told: Told) -> None:
    for _ in range(5):
        told.look({GPU3: THROTTLED})
    assert [len(told.look().findings) for _ in range(3)] == [1, 1, 0]


def test_an_idle_gpu_and_a_gpu_without_a_job_are_neither_judged_nor_blind() -> None:
    told = Told(fleet_of(4, jobs={"1": range(3)}))
    idle = {"gpu-0001/gpu0": {**SLOW, "utilisation_pct": 0.0}, "gpu-0004/gpu0": THROTTLED}
    for _ in range(4):
        judged = told.look(idle)
        assert judged.findings == () and told.blind(judged) == []


def test_idle_members_do_not_decide_what_is_normal() -> None:
    told = Told(fleet_of(4))
    asleep = {"utilisation_pct": 0.0, "temperature_c": 33.0, "sm_clock_mhz": 345.0, "power_w": 75.0}
    idle = {f"gpu-000{n}/gpu{g}": asleep for n in (1, 2, 3) for g in range(8)}
    for _ in range(4):
        assert told.look(idle).findings == ()


def test_a_job_too_small_to_compare_is_not_judged() -> None:
    told = Told(fleet_of(1, 5))
    for _ in range(4):
        judged = told.look({"gpu-0001/gpu3": THROTTLED})
        assert judged.findings == () and told.blind(judged) == []


def test_peers_are_the_gpus_of_the_same_job_only() -> None:
    """Two jobs, one of which works its GPUs harder: neither is measured against the other."""
    told = Told(fleet_of(4, jobs={"1": (0, 1), "2": (2, 3)}))
    hard = {f"gpu-000{n}/gpu{g}": {"temperature_c": 84.0, "sm_clock_mhz": 1500.0} for n in (3, 4) for g in range(8)}
    for _ in range(4):
        assert told.look(hard).findings == ()


def test_a_gpu_of_the_job_that_sends_nothing_is_blind(told: Told) -> None:
    told.look()
    judged = told.look(silent=[GPU3])
    assert told.blind(judged) == [GPU3]
    assert told.blind(told.look()) == []


def test_a_level_is_kept_while_its_gpu_cannot_be_seen(told: Told) -> None:
    (before,) = [told.look({GPU3: THROTTLED}) for _ in range(4)][-1].findings
    judged = told.look(silent=[GPU3])
    assert judged.findings == (before,) and told.blind(judged) == [GPU3]


def test_a_metric_that_a_site_does_not_have_blinds_nobody(told: Told) -> None:
    def without_clocks() -> Tick:
        told.ticks += 1
        tick = telemetry(FLEET, T0 + 15 * told.ticks, off={GPU3: HOT})
        key = ("gpu", "sm_clock_mhz")
        return Tick(tick.at, {k: v for k, v in tick.values.items() if k != key}, tick.sampled)

    judged = [told.step(without_clocks()) for _ in range(3)][-1]
    assert told.blind(judged) == []
    (found,) = judged.findings
    assert found.reason == "GPU 3 of gpu-0002 runs at 91 °C against 62 °C of its 31 peers."


def test_rows_that_are_not_due_wait_and_do_not_go_blind(told: Told) -> None:
    """A fleet scraped at half the rate of the ticks: every other tick asks for the other half."""
    judged = Judged()
    for step in range(8):
        tick = telemetry(FLEET, T0 + 15 * step, off={GPU3: THROTTLED})
        for rows in tick.sampled.values():
            rows[step % 2 :: 2] = False
        judged = told.step(tick)
        assert told.blind(judged) == []
    assert [f.kind for f in judged.findings] == ["thermal_throttle"]


def test_a_tenth_of_bad_gpus_does_not_hide_itself() -> None:
    """Robustness that a mean does not have: 10 % bad, all found; none of the others blamed."""
    fleet = fleet_of(64)
    told, dice = Told(fleet), np.random.default_rng(3)
    names = fleet.axes["gpu"].names
    bad = set(names[:51])
    for step in range(3):
        tick = telemetry(fleet, T0 + 15 * step, off=dict.fromkeys(bad, THROTTLED))
        for column in tick.values.values():
            column *= (1 + 0.01 * dice.standard_normal(len(column))).astype(np.float32)
        tick.values["gpu", "utilisation_pct"][:] = 99.0
        judged = told.step(tick)
    assert {f.entity.name for f in judged.findings if f.kind == "thermal_throttle"} == bad
    assert gpu(fleet, "gpu-0001/gpu0") == 0
