"""One GPU that holds its job up, a job that is slower as a whole, and work that only looks like either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from detectors.catalogue import load
from detectors.model import Finding, Fleet, Judged, Severity, Tick
from detectors.telemetry.failslow import FailSlow
from tests.detectors.fleets import T0, entity, fleet_of, telemetry

FLEET = fleet_of(4, jobs={"48213": (0, 1, 2, 3)})
GPU3 = "gpu-0002/gpu3"
EVERY_S = 30.0
WORK = {"power_w": 640.0, "nvlink_bytes": 2e11}
WAITS = {"power_w": 520.0, "nvlink_bytes": 1.5e11}
EVALUATION = {"power_w": 500.0, "nvlink_bytes": 0.7e11}
OTHER_MIX = {"power_w": 520.0, "nvlink_bytes": 2.1e11}


class Told:
    def __init__(self, fleet: Fleet = FLEET, links: bool = True) -> None:
        self.detector, self.fleet, self.ticks, self.links = FailSlow(load()), fleet, 0, links
        self.state = self.detector.start(fleet)
        self.dice = np.random.default_rng(5)
        self.own = self.dice.normal(1.0, 0.03, len(fleet.axes["gpu"]))  # cards differ

    def look(self, does: Mapping[str, float], ticks: int = 1, off: Mapping[str, Mapping[str, float]] | None = None,
             silent: Sequence[str] = ()) -> Judged:  # fmt: skip
        judged = Judged()
        for _ in range(ticks):
            self.ticks += 1
            names = self.fleet.axes["gpu"].names
            doing = [{**WORK, **does, **(off or {}).get(name, {})} for name in names]
            tick = telemetry(self.fleet, T0 + EVERY_S * self.ticks, silent)
            noise = self.own * self.dice.normal(1.0, 0.01, len(names))
            gone = np.isnan(tick.values["gpu", "power_w"])
            values = dict(tick.values)
            for metric, shaky in (("power_w", noise), ("nvlink_bytes", self.dice.normal(1.0, 0.01, len(names)))):
                column = (np.array([one[metric] for one in doing]) * shaky).astype(np.float32)
                column[gone] = np.nan
                values["gpu", metric] = column
            sampled = {**tick.sampled, ("gpu", "nvlink_bytes"): tick.sampled["gpu", "power_w"]}
            if not self.links:
                del values["gpu", "nvlink_bytes"], sampled["gpu", "nvlink_bytes"]
            judged = self.detector.step(self.state, Tick(tick.at, values, sampled), self.fleet)
        return judged


@pytest.fixture
def told() -> Told:
    told = Told()
    assert told.look(WORK, 60).findings == ()
    return told


def test_the_gpu_that_works_on_while_its_peers_wait_is_named(told: Told) -> None:
    judged = [told.look(WAITS, 1, {GPU3: {"power_w": 640.0}}) for _ in range(3)]
    assert [len(j.findings) for j in judged] == [0, 0, 1]
    (found,) = judged[-1].findings
    assert (found.kind, found.entity, found.severity) == ("silent_slow_gpu", entity(FLEET, GPU3), Severity.HIGH)
    assert found.since == T0 + EVERY_S * 61 and "they wait for it." in found.reason


def test_a_gpu_that_became_weak_is_named_too(told: Told) -> None:
    (found,) = told.look(WAITS, 4, {GPU3: {"power_w": 380.0}}).findings
    assert found.entity == entity(FLEET, GPU3) and "does less than the others" in found.reason


def test_a_job_that_slows_as_a_whole_blames_no_gpu_and_is_told_when_it_lasts(told: Told) -> None:
    assert told.look(WAITS, 15).findings == ()
    (found,) = told.look(WAITS, 10).findings
    assert (found.kind, found.entity.id) == ("job_slow", "48213")
    assert "of its usual pace" in found.reason
    assert told.look(WORK, 1).findings == ()


def test_evaluations_are_the_jobs_own(told: Told) -> None:
    for _ in range(4):
        assert told.look(EVALUATION, 8).findings == ()
        assert told.look(WORK, 30).findings == ()


def test_another_mix_of_work_is_no_slowness_and_becomes_the_usual(told: Told) -> None:
    assert told.look(OTHER_MIX, 80).findings == ()
    assert told.look({**OTHER_MIX, "power_w": 500.0}, 20).findings == ()


def test_several_gpus_that_stand_out_do_other_work(told: Told) -> None:
    others = {f"gpu-000{n}/gpu{g}": {"power_w": 640.0} for n in (1, 2, 3) for g in (0, 1)}
    found = told.look(WAITS, 30, others).findings
    assert [f.kind for f in found] == ["job_slow"]


def test_a_slow_decline_is_not_learned(told: Told) -> None:
    found: tuple[Finding, ...] = ()
    for step in range(120):
        share = 1.0 - 0.003 * step
        found = told.look(
            {"power_w": 640.0 * (0.4 + 0.6 * share), "nvlink_bytes": 2e11 * share}, 1, {GPU3: {"power_w": 640.0}}
        ).findings
    assert "silent_slow_gpu" in {f.kind for f in found}
    assert {f.entity.id for f in found if f.entity.kind == "gpu"} == {entity(FLEET, GPU3).id}


def test_without_traffic_the_power_of_the_peers_must_fall_clearly() -> None:
    told = Told(links=False)
    told.look(WORK, 60)
    assert told.look({"power_w": 620.0}, 10, {GPU3: {"power_w": 680.0}}).findings == ()
    (found,) = told.look({"power_w": 520.0}, 4, {GPU3: {"power_w": 640.0}}).findings
    assert found.entity == entity(FLEET, GPU3)


def test_a_new_job_has_no_past(told: Told) -> None:
    told.look(WAITS, 4, {GPU3: {"power_w": 640.0}})
    after = fleet_of(4, jobs={"48999": (0, 1, 2, 3)})
    told.state, told.fleet = told.detector.move(told.state, told.fleet, after), after
    assert told.look(WAITS, 30, {GPU3: {"power_w": 640.0}}).findings == ()


def test_a_level_holds_through_pauses_and_while_the_gpu_is_silent(told: Told) -> None:
    told.look(WAITS, 4, {GPU3: {"power_w": 640.0}})
    assert len(told.look({"power_w": 120.0, "nvlink_bytes": 0.0}, 10).findings) == 1
    assert len(told.look(WAITS, 10, silent=[GPU3]).findings) == 1
    assert told.look(WORK, 22).findings == ()


def test_a_counter_that_catches_up_is_not_the_usual_pace() -> None:
    told = Told()
    told.look(WORK, 10), told.look({**WORK, "nvlink_bytes": 4e12}), told.look(WORK, 30)
    assert told.look(OTHER_MIX, 60).findings == ()


def test_a_pace_that_was_learned_wrongly_is_learned_anew() -> None:
    told = Told()
    told.look({**WORK, "nvlink_bytes": 3e11}, 30), told.look(WORK, 60)
    assert told.look(OTHER_MIX, 60).findings == ()
