"""The simulated scheduler as a source."""

from __future__ import annotations

from backend.ingest.base import Source
from backend.simulate.backend import SimulatedBackend
from backend.simulate.source import SimulatedSource
from backend.simulate.world import begin, step


def test_the_source_tells_of_every_node_and_of_foreign_drains() -> None:
    world = begin(7, 1_800_000_000.0)
    step(world, 1_800_000_003.0)
    world.scheduler.drain("gpu-048", "disk", "mira")
    source: Source = SimulatedSource(SimulatedBackend(world))
    batch = source.read(frozenset(), 1_800_000_000.0, 1_800_000_003.0)
    assert len(batch.nodes) == 48 and (batch.start, batch.end) == (1_800_000_000.0, 1_800_000_003.0)
    drained = {node.name: node.reason_owner for node in batch.nodes if "DRAIN" in node.flags}
    assert drained == {"gpu-048": "mira"}
    assert sum(bool(node.jobs) for node in batch.nodes) == 40
