"""Corrected errors: more than a card in good health counts, and the counts that mean nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from detectors.catalogue import load
from detectors.model import Fleet, Judged, Severity, Tick
from detectors.telemetry.trends import Trends
from tests.detectors.fleets import T0, entity, fleet_of, gpu

GPU3 = "gpu-0002/gpu3"
EVERY_S = 30.0


class Told:
    def __init__(self, fleet: Fleet | None = None) -> None:
        self.fleet, self.ticks = fleet or fleet_of(8), 0
        self.detector = Trends(load())
        self.state = self.detector.start(self.fleet)

    def look(
        self, counts: Mapping[str, float], ticks: int = 1, metric: str = "remap_correctable", every: float = 0.0
    ) -> Judged:
        """``counts``: errors of the named GPUs at each look; ``every``: of all others."""
        judged = Judged()
        for _ in range(ticks):
            self.ticks += 1
            rates = np.full(len(self.fleet.axes["gpu"]), every / EVERY_S, np.float32)
            for name, errors in counts.items():
                rates[gpu(self.fleet, name)] = errors / EVERY_S
            judged = self.detector.step(
                self.state, Tick(T0 + EVERY_S * self.ticks, {("gpu", metric): rates}), self.fleet
            )
        return judged


def test_three_rows_in_an_hour_are_a_trend_and_two_are_not() -> None:
    told = Told()
    told.look({}, 5)
    for _ in range(2):
        assert told.look({GPU3: 1.0}).findings == () and told.look({}, 20).findings == ()
    (found,) = told.look({GPU3: 1.0}).findings
    assert (found.kind, found.entity, found.severity) == (
        "gpu_remap_trend_loss",
        entity(told.fleet, GPU3),
        Severity.WARNING,
    )
    assert found.reason.startswith("GPU 3 of gpu-0002 counts more and more rows remapped after correctable errors: 3 ")


def test_a_card_that_counts_as_the_others_do_is_no_news() -> None:
    told = Told()
    assert told.look({}, 200, "pcie_replay", every=2.0).findings == ()
    assert told.look({GPU3: 3.0}, 40, "pcie_replay", every=2.0).findings == ()


def test_a_few_bad_cards_do_not_make_their_rate_usual() -> None:
    told = Told()
    bad = {f"gpu-0001/gpu{g}": 4.0 for g in range(5)}
    found = told.look(bad, 60, "nvlink_crc_flit").findings
    assert {f.entity.name for f in found} == set(bad) and {f.kind for f in found} == {"nvlink_error"}


def test_a_card_that_always_counted_is_measured_against_its_own_past() -> None:
    told = Told()
    told.look({GPU3: 0.5}, 40, "pcie_replay")
    assert [f.entity.name for f in told.look({GPU3: 0.5}, 1, "pcie_replay").findings] == [GPU3], "new: it is told"
    told.look({GPU3: 0.5}, 3000, "pcie_replay")
    assert told.look({GPU3: 0.5}, 10, "pcie_replay").findings == (), "a day later it is how this card is"


def test_a_trend_that_ended_is_told_for_an_hour() -> None:
    told = Told()
    told.look({}, 3)
    for _ in range(3):
        told.look({GPU3: 1.0}), told.look({}, 3)
    told.look({}, 60)
    assert len(told.look({}).findings) == 1
    assert told.look({}, 30 * 120).findings == ()


def test_rates_that_make_no_sense_are_no_errors() -> None:
    told = Told()
    for rate in (np.nan, np.inf, -5.0):
        told.look({GPU3: rate}, 20)
    assert told.look({}, 3).findings == ()
