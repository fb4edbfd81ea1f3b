"""A telemetry tick of 12,500 nodes x 8 GPUs through all detectors, against numpy adding up the same arrays: every
metric that a detector asks for, of GPUs, nodes, ports, mounts and NFS calls."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.ratio import Ratio
from benchmarks.tick import Course, compared, fleet_of, tick_of
from detectors.catalogue import load

NODES = 12_500
#: Different ticks; some 20 MB of numbers each, so that none stays in a cache.
VARIANTS = 4


def run() -> Iterator[Ratio]:
    catalogue = load()
    fleet = fleet_of(NODES)
    quiet = [tick_of(catalogue, fleet, seed, 0.0) for seed in range(VARIANTS)]
    sick = [tick_of(catalogue, fleet, seed, 0.001) for seed in range(VARIANTS)]
    for name, ticks in (("a quiet tick", quiet), ("a tick with 0.1 % of GPUs in trouble", sick)):
        course = Course(catalogue, fleet, quiet)
        points = sum(array.size for array in ticks[0].values.values())
        yield compared(course, ticks, f"{NODES} nodes x 8 GPUs, {points / 1e6:.2f} M points: {name}")
