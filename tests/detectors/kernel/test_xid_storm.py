"""A storm of codes costs by its length: a line is held against the rows of its own device, not of the whole fleet."""

from __future__ import annotations

import time

from detectors.catalogue import load
from detectors.kernel.levels import family
from detectors.model import Entity, Event, Fleet, Tick

NOW = 1_770_120_000.0
EMPTY = Fleet("main", 0, {}, (), (), (), (), (), {})


def took(count: int) -> float:
    """CPU seconds of one tick with ``count`` lines of as many GPUs, while as many rows stand already."""
    detector = family("kernel/xid", load())
    state = detector.start(EMPTY)
    gpus = [Entity("main", "gpu", f"GPU-{i}", f"n{i}/gpu0", f"n{i}") for i in range(count)]
    lines = tuple(Event(NOW, gpu, "xid", "79", "fell off the bus", i) for i, gpu in enumerate(gpus))
    assert len(detector.step(state, Tick(NOW, events=lines), EMPTY).findings) == count
    again = tuple(Event(NOW + 60, gpu, "xid", "79", "fell off the bus", count + i) for i, gpu in enumerate(gpus))
    begun = time.process_time()
    assert len(detector.step(state, Tick(NOW + 60, events=again), EMPTY).findings) == count
    return time.process_time() - begun


def test_eight_times_the_storm_takes_nowhere_near_the_square() -> None:
    assert took(4000) < 32 * took(500) + 0.2
