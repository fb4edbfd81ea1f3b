"""Values that repeat themselves to the last bit, and cards that may do so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from detectors.catalogue import load
from detectors.model import Fleet, Judged, Severity, Tick
from detectors.telemetry.frozen import Frozen
from tests.detectors.fleets import T0, fleet_of, telemetry

EVERY_S = 30.0


class Told:
    def __init__(self, fleet: Fleet, idle: Sequence[str] = ()) -> None:
        self.detector, self.fleet, self.ticks, self.idle = Frozen(load()), fleet, 0, idle
        self.state = self.detector.start(fleet)
        self.dice = np.random.default_rng(3)
        self.before: Tick | None = None

    def look(self, ticks: int = 1, stuck: Sequence[str] = (), every: int = 1) -> Judged:
        """``stuck``: nodes or GPUs that repeat what they said; every: all read anew only at each ``every``-th look."""
        judged = Judged()
        for _ in range(ticks):
            self.ticks += 1
            tick = telemetry(self.fleet, T0 + EVERY_S * self.ticks)
            for row, name in enumerate(self.fleet.axes["gpu"].names):
                same = name in stuck or name.split("/")[0] in stuck or self.ticks % every
                for key, column in tick.values.items():
                    if same and self.before is not None:
                        column[row] = self.before.values[key][row]
                    elif name.split("/")[0] in self.idle:
                        column[row] = {"utilisation_pct": 0.0, "power_w": 71.0}.get(key[1], 30.0)
                    elif key[1] == "power_w":
                        column[row] = self.dice.normal(640.0, 6.0)
            self.before = tick
            judged = self.detector.step(self.state, tick, self.fleet)
        return judged


@pytest.fixture
def told() -> Told:
    told = Told(fleet_of(4))
    told.look(40)
    return told


def test_a_node_that_repeats_itself_is_frozen_and_blind(told: Told) -> None:
    assert told.look(2, ["gpu-0002"]).findings == ()
    judged = told.look(1, ["gpu-0002"])
    (found,) = judged.findings
    assert (found.kind, found.entity.id, found.severity) == ("telemetry_frozen", "gpu-0002", Severity.WARNING)
    assert found.since == T0 + EVERY_S * 41
    assert judged.blind["gpu"].tolist() == [8 <= row < 16 for row in range(32)]
    judged = told.look(1)
    assert judged.findings == () and not judged.blind["gpu"].any()


def test_one_card_that_stands_still_among_others_is_no_stuck_exporter(told: Told) -> None:
    assert told.look(20, ["gpu-0002/gpu3"]).findings == ()


def test_most_nodes_at_once_are_the_cluster(told: Told) -> None:
    (found,) = told.look(6, ["gpu-0001", "gpu-0002", "gpu-0003"]).findings
    assert found.entity.kind == "cluster" and found.reason.startswith("3 nodes repeat their GPU data")


def test_idle_cards_may_stand_still() -> None:
    told = Told(fleet_of(4), idle=["gpu-0002"])
    assert told.look(80).findings == ()


def test_an_exporter_that_reads_more_slowly_than_it_is_scraped_repeats_itself() -> None:
    told = Told(fleet_of(2))
    for _ in range(30):
        assert told.look(3, every=3).findings == ()
    assert told.look(15, ["gpu-0002"], every=3).findings == ()
    assert [f.entity.id for f in told.look(40, ["gpu-0002"], every=3).findings] == ["gpu-0002"]


def test_a_card_that_was_seen_too_shortly_proves_nothing() -> None:
    told = Told(fleet_of(2))
    told.look(10)
    assert told.look(20, ["gpu-0002"]).findings == ()
