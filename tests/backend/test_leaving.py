"""A node that leaves the fleet takes its incident's reasons with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend import pipeline, writes
from backend.clock import ManualClock
from backend.facts import Batch
from backend.inventory.places import GONE_LISTS
from backend.store.engine import Store
from tests.backend.bench import APPROVER, Bench


@pytest.fixture
def bench(sqlite_store: Store, clock: ManualClock) -> Bench:
    return Bench(sqlite_store, clock)


def without(bench: Bench, gone: str) -> None:
    """The scheduler's list without one node, and telemetry without it."""
    nodes = tuple(replace(n, read_at=bench.now) for n in bench.backend.inventory() if n.name != gone)
    pipeline.accept(bench.watch, Batch("scheduler", bench.now, bench.now, nodes=nodes, listing=True))
    bench.telemetry(dark={gone})
    bench.turn()


def test_the_incident_of_a_node_that_left_says_so_and_closes(bench: Bench) -> None:
    node = bench.busy_node()
    bench.ticks(3)
    bench.xid(node, 3, 79)
    bench.ticks(3, silent={(node, 3)})
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.turn()
    for _ in range(GONE_LISTS + 2):
        bench.clock.set(bench.clock.now() + timedelta(seconds=400))
        without(bench, node)
    assert any(f"{node} left the fleet" in text for text in bench.texts())
    for _ in range(12):
        bench.clock.set(bench.clock.now() + timedelta(seconds=15))
        without(bench, node)
    assert bench.incident().state == "resolved", bench.texts()
    assert not bench.exclusions()
    assert "left the fleet" in bench.texts()[-1]
