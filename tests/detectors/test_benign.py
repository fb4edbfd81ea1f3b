"""What belongs to an ordinary day raises nothing above info: heat of the afternoon, phases of a job, another job or
another kind of work, a wave of new drivers, maintenance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from detectors.catalogue import load
from detectors.fuse import fuse
from detectors.model import Event, Fleet, MetricKey, Severity, Tick
from detectors.registry import detectors
from tests.detectors.fleets import T0, boot, entity, fleet_of

CATALOGUE = load()
NODES, CARDS = 4, 4
TRAFFIC: MetricKey = ("gpu", "nvlink_bytes")
HOUR = 3600.0


@dataclass(frozen=True)
class Moment:
    """One tick of a day: what every card reads; cards of the nodes in ``away`` say nothing."""

    at: float
    fleet: Fleet
    reads: dict[str, float]
    away: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    air_c: float = 30.0


#: A card is warmer than its air by this much for each watt.
DEGREES_A_WATT = 0.05
WORK = {
    "power_w": 640.0,
    "sm_clock_mhz": 1905.0,
    "utilisation_pct": 99.0,
    "fb_used_mib": 70_000.0,
    "tensor_active_ratio": 0.6,
    "dram_active_ratio": 0.5,
    "pcie_rx_bytes_s": 4e9,
    "nvlink_bytes": 2e11,
}
PAUSE = WORK | {
    "power_w": 170.0,
    "utilisation_pct": 4.0,
    "tensor_active_ratio": 0.0,
    "dram_active_ratio": 0.02,
    "pcie_rx_bytes_s": 1e7,
    "nvlink_bytes": 0.0,
}
IDLE = PAUSE | {"power_w": 90.0, "utilisation_pct": 0.0, "fb_used_mib": 4.0}


def fleet(job: str = "48213", nodes: tuple[int, ...] = (0, 1, 2, 3)) -> Fleet:
    return fleet_of(NODES, CARDS, jobs={job: nodes} if nodes else {})


def moments(hours: float, every_s: float, what: Callable[[float], Moment]) -> Iterator[Moment]:
    """``what`` at each tick; its argument is the seconds since the beginning."""
    return (what(place * every_s) for place in range(int(hours * HOUR / every_s)))


def the_heat_of_the_afternoon() -> Iterator[Moment]:
    here = fleet()

    def at(since: float) -> Moment:
        warmer = 7.0 * np.sin(2.0 * np.pi * since / (24 * HOUR))
        return Moment(T0 + since, here, WORK | {"power_w": 640.0 + 0.6 * warmer}, air_c=30.0 + warmer)

    return moments(24, 300.0, at)


def a_job_that_saves_and_validates() -> Iterator[Moment]:
    """A save of 90 s each half hour, a validation of 5 min (less power, other traffic) each two hours."""
    here = fleet()

    def at(since: float) -> Moment:
        if since % (2 * HOUR) >= 2 * HOUR - 300:
            reads = WORK | {"power_w": 520.0, "tensor_active_ratio": 0.45, "nvlink_bytes": 1.6e11}
        else:
            reads = PAUSE if since % 1800.0 >= 1710.0 else WORK
        return Moment(T0 + since, here, reads)

    return moments(4.5, 60.0, at)


def another_job_after_a_pause() -> Iterator[Moment]:
    first, nobody, second = fleet("48213"), fleet("", ()), fleet("48214")
    inference = WORK | {"power_w": 380.0, "utilisation_pct": 70.0, "tensor_active_ratio": 0.2, "nvlink_bytes": 2e10}

    def at(since: float) -> Moment:
        if since < 1.5 * HOUR:
            return Moment(T0 + since, first, WORK)
        if since < 1.75 * HOUR:
            return Moment(T0 + since, nobody, IDLE)
        return Moment(T0 + since, second, inference)

    return moments(3.5, 60.0, at)


def longer_sequences_in_the_same_job() -> Iterator[Moment]:
    here = fleet()
    longer = WORK | {"power_w": 560.0, "dram_active_ratio": 0.65, "nvlink_bytes": 2.6e11, "fb_used_mib": 76_000.0}
    return moments(4, 60.0, lambda since: Moment(T0 + since, here, WORK if since < 2 * HOUR else longer))


def node_after_node_drained(words: str, silent_s: float) -> Iterator[Moment]:
    """Each node is drained by a person, restarts, is silent for a while and comes back; nobody works on it."""
    begin, each = HOUR, 1200.0

    def at(since: float) -> Moment:
        place = int((since - begin) // each)
        if since < begin or place >= NODES:
            return Moment(T0 + since, fleet(nodes=()), IDLE)
        here, name, into = fleet(nodes=()), f"gpu-{1 + place:04d}", (since - begin) % each
        events: tuple[Event, ...] = ()
        node = entity(here, name)
        if into == 0:
            events = (
                Event(T0 + since, node, "slurm", "node_state", "", 1, False, {"state": "DRAIN", "reason": words}),
            )
        elif into == 120.0 + 30.0 * (silent_s // 30.0):
            events = (boot(here, name, T0 + since - 60.0),)
        elif into == each - 60.0:
            events = (Event(T0 + since, node, "slurm", "node_state", "", 2, False, {"state": "RESUME"}),)
        away = (name,) if 120.0 <= into < 120.0 + silent_s else ()
        return Moment(T0 + since, here, IDLE, away, events)

    return moments(3, 30.0, at)


def new_drivers_in_a_wave() -> Iterator[Moment]:
    return node_after_node_drained("driver 575", 420.0)


def maintenance() -> Iterator[Moment]:
    return node_after_node_drained("maintenance: new cables", 900.0)


def ticks(story: Iterator[Moment], seed: int) -> Iterator[tuple[Tick, Fleet]]:
    """Cards differ a little, and shake a little from tick to tick."""
    dice = np.random.default_rng(seed)
    own = {name: 1.0 + 0.015 * dice.standard_normal(NODES * CARDS) for name in (*WORK, "temperature_c")}
    for moment in story:
        axis = moment.fleet.axes["gpu"]
        gone = np.array([name.partition("/")[0] in moment.away for name in axis.names])
        values: dict[MetricKey, NDArray[np.float32]] = {}
        warm = moment.air_c + DEGREES_A_WATT * moment.reads["power_w"]
        for name, usual in (moment.reads | {"temperature_c": warm}).items():
            shaken = usual * own[name] * (1.0 + 0.01 * dice.standard_normal(len(axis)))
            most = 100.0 if name == "utilisation_pct" else 1.0 if name.endswith("_ratio") else np.inf
            values["gpu", name] = np.where(gone, np.nan, np.minimum(shaken, most)).astype(np.float32)
        yield Tick(moment.at, values, {key: axis.live.copy() for key in values}, moment.events), moment.fleet


def raised(story: Iterator[Moment], seed: int) -> dict[str, str]:
    """What opens an incident in the course of a story, by finding, with its reason."""
    everyone: list[Any] = list(detectors(CATALOGUE))
    found: dict[str, str] = {}
    states: list[Any] = []
    before: Fleet | None = None
    epoch = 0
    for tick, here in ticks(story, seed):
        epoch += before is not None and here.jobs != before.jobs
        here = replace(here, epoch=epoch)
        if before is None:
            states = [detector.start(here) for detector in everyone]
        elif here.epoch != before.epoch:
            states = [d.move(state, before, here) for d, state in zip(everyone, states, strict=True)]
        before = here
        said = [f for d, state in zip(everyone, states, strict=True) for f in d.step(state, tick, here).findings]
        for suspicion in fuse(said, here, CATALOGUE):
            if suspicion.opens and suspicion.severity > Severity.INFO:
                found.setdefault(suspicion.cause.kind + " " + str(suspicion.cause.entity), suspicion.cause.reason)
    return found


@pytest.mark.parametrize(
    "story",
    [
        the_heat_of_the_afternoon,
        a_job_that_saves_and_validates,
        another_job_after_a_pause,
        longer_sequences_in_the_same_job,
        new_drivers_in_a_wave,
        maintenance,
    ],
)
def test_an_ordinary_day_raises_nothing_above_info(story: Callable[[], Iterator[Moment]]) -> None:
    assert raised(story(), 7) == {}
