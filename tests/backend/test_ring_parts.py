"""Parts of a row that a metric joins, and times of day that become ages."""

from __future__ import annotations

import numpy as np

from backend.facts import Batch, DeviceLabel, Series
from backend.ring import MOST_PARTS, Ring
from detectors.catalogue import load
from detectors.model import Tick

METRICS = load().metrics
T = 1_770_000_000.0
NODE = DeviceLabel("node", "gpu-0001")


def told(metric: str, value: float, at: float, part: str = "") -> Series:
    return Series(metric, NODE, np.array([T + at]), np.array([value]), part)


def ticks(made: Ring, *batches: tuple[float, tuple[Series, ...]]) -> list[Tick]:
    for now, given in batches:
        made.accept(Batch("push", 0.0, 0.0, given), lambda _: 0, T + now)
    return list(made.due(T + 120.0))


def rates(found: list[Tick], metric: str) -> list[float]:
    return [float(tick.values["node", metric][0]) for tick in found if ("node", metric) in tick.values]


def test_parts_that_come_in_different_pushes_add_up_without_a_jump() -> None:
    """Senders spread the series of one scrape over several requests."""
    edac = "node_edac_ce"
    found = ticks(
        Ring(METRICS, 30.0, 30.0),
        (5.0, (told(edac, 1000.0, 1.0, "controller=0"),)),
        (6.0, (told(edac, 7.0, 1.0, "controller=1"),)),
        (35.0, (told(edac, 1030.0, 31.0, "controller=0"),)),
        (36.0, (told(edac, 7.0, 31.0, "controller=1"),)),
    )
    assert rates(found, edac)[1] == 1.0


def test_the_hottest_sensor_speaks_for_the_node() -> None:
    hot = "node_temperature_max_c"
    found = ticks(
        Ring(METRICS, 30.0, 30.0), (5.0, (told(hot, 40.0, 1.0, "sensor=1"), told(hot, 71.0, 1.0, "sensor=2")))
    )
    assert rates(found, hot)[0] == 71.0


def test_parts_without_end_are_bounded_and_counted() -> None:
    made = Ring(METRICS, 30.0, 30.0)
    ticks(made, (5.0, tuple(told("node_edac_ce", 1.0, 1.0, f"controller={n}") for n in range(MOST_PARTS + 5))))
    assert made.dropped["more parts of one metric than are kept apart"] == 5


def test_a_time_of_day_becomes_the_seconds_since_then() -> None:
    found = ticks(Ring(METRICS, 30.0, 30.0), (5.0, (told("node_uptime_s", T - 3599.0, 1.0),)))
    assert rates(found, "node_uptime_s")[0] == 3600.0


def test_a_restarted_ring_still_knows_its_parts() -> None:
    made, again = Ring(METRICS, 30.0, 30.0), Ring(METRICS, 30.0, 30.0)
    edac = "node_edac_ce"
    ticks(made, (5.0, (told(edac, 1000.0, 1.0, "controller=0"), told(edac, 7.0, 1.0, "controller=1"))))
    assert again.restore(made.saved(), T + 130.0)
    found = ticks(again, (131.0, (told(edac, 1130.0, 131.0, "controller=0"), told(edac, 7.0, 131.0, "controller=1"))))
    found += list(again.due(T + 200.0))
    assert [rate for rate in rates(found, edac) if rate == rate] == [1.0]
