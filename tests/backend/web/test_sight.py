"""What this process sees of telemetry: the newest sample of each GPU, where a ring is filled."""

from __future__ import annotations

import numpy as np

from backend.facts import Batch, DeviceLabel, Series
from backend.registry import Parts
from backend.ring import Ring
from backend.web import shown
from backend.web.base import Visit
from detectors.catalogue import load


def samples(slot: int, at: float) -> Batch:
    label = DeviceLabel("gpu", "n1", uuid=str(slot))
    one = Series("temperature_c", label, np.array([at]), np.array([61.0]))
    return Batch("prometheus", at, at, (one,))


def test_the_newest_sample_of_each_row_is_known_once_its_tick_closed() -> None:
    ring = Ring(load().metrics, 15.0, 15.0)
    assert not ring.last_seen("gpu").size
    for slot, at in ((0, 1000.0), (2, 1005.0)):
        ring.accept(samples(slot, at), lambda label: int(label.uuid), at)
    list(ring.due(1100.0))
    seen = ring.last_seen("gpu")
    assert (seen[0], seen[2]) == (1000.0, 1005.0) and np.isnan(seen[1])


def test_a_process_without_a_filled_ring_claims_nothing_of_single_gpus(parts: Parts) -> None:
    watch = parts.watches["main"]
    visit = Visit(None, parts, watch, None, parts.clock.now())  # type: ignore[arg-type]  # only its watch is looked at
    assert shown.sight(visit).sampled is None
