"""When each exporter is scraped: its own place in the interval, a little late, now and then not at all."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

JITTER_S = 0.004
LATE_SHARE, LATE_S = 0.0015, 4.0
#: A scrape that fails (``up`` 0), and one that Prometheus itself never made.
FAILED_SHARE, SKIPPED_SHARE = 0.0004, 0.0002


@dataclass(frozen=True, eq=False)
class Scrapes:
    """``gpu`` and ``node``: unix s float64[ticks, nodes], rising down each column. ``*_fate`` uint8: 0 taken, 1 failed,
    2 skipped."""

    interval_s: float
    gpu: Floats
    node: Floats
    gpu_fate: NDArray[np.uint8]
    node_fate: NDArray[np.uint8]

    @cached_property
    def ticks(self) -> list[float]:
        """Time of the earliest GPU scrape of each tick."""
        return [float(at) for at in self.gpu.min(axis=1)]

    def tick_after(self, after: float) -> float:
        """When the first tick begins at or after ``after``; infinite for none."""
        place = bisect_left(self.ticks, after)
        return self.ticks[place] if place < len(self.ticks) else math.inf

    def first(self, exporter: str, node: int, after: float) -> float | None:
        """Time of the first scrape of a node's exporter at or after ``after`` that was at least tried."""
        times, fate = (self.gpu, self.gpu_fate) if exporter == "gpu" else (self.node, self.node_fate)
        late = np.flatnonzero((times[:, node] >= after) & (fate[:, node] == 0))
        return float(times[late[0], node]) if late.size else None


def scrapes(seed: int, start: float, ticks: int, interval_s: float, nodes: int) -> Scrapes:
    gpu, gpu_fate = _exporter(np.random.default_rng((seed, 11)), start, ticks, interval_s, nodes)
    node, node_fate = _exporter(np.random.default_rng((seed, 12)), start, ticks, interval_s, nodes)
    return Scrapes(interval_s, gpu, node, gpu_fate, node_fate)


def _exporter(
    dice: np.random.Generator, start: float, ticks: int, interval_s: float, nodes: int
) -> tuple[Floats, NDArray[np.uint8]]:
    shape = (ticks, nodes)
    places = dice.uniform(0.02, 0.8, nodes) * interval_s
    times = start + np.arange(ticks)[:, None] * interval_s + places + np.abs(dice.normal(0.0, JITTER_S, shape))
    times += np.where(dice.random(shape) < LATE_SHARE, dice.uniform(0.3, 1.0, shape), 0.0) * min(LATE_S, interval_s / 8)
    lot = dice.random(shape)
    fate = np.where(lot < FAILED_SHARE, 1, np.where(lot < FAILED_SHARE + SKIPPED_SHARE, 2, 0)).astype(np.uint8)
    fate[0] = 0
    return np.round(times, 3), fate
