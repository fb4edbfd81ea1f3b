"""1,000 random fault histories keep what every guard promises (``make test-orders``); 40 of them in each run."""

from __future__ import annotations

import pytest

from tests.backend.decide.histories import cluster, step


def run(seeds: range) -> int:
    """Plays each history of 40 steps; how many nodes were taken out in all."""
    taken = 0
    for seed in seeds:
        world = cluster(seed)
        for _ in range(40):
            step(world)
        taken += len(world.taken)
    return taken


def test_forty_histories_keep_every_guard() -> None:
    assert run(range(40)) > 40, "guards that never let anything through prove nothing"


@pytest.mark.slow
def test_a_thousand_histories_keep_every_guard() -> None:
    assert run(range(1000, 2000)) > 1000
