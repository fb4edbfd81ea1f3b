"""What exporters on the simulated nodes would print: one array a metric, and which rows are there to be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.simulate.physics import HBM_ABOVE_DIE_C, MEMORY_MHZ, SLOWDOWN_C, Floats
from backend.simulate.site import CARDS_A_NODE
from backend.simulate.state import World

#: Bits of the clock event mask: power cap by software, thermal slowdown by software.
POWER_CAP_BIT = 0x4
THERMAL_BIT = 0x20
OWN_MEMORY_MIB = 620.0


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """cards: float64[cards] by the simulation's metric name; ``card_seen`` bool[cards]. nodes: float64[nodes].

    ``node_up`` and ``exporter_up`` bool[nodes]: does the host answer, does its GPU exporter. ``job_of`` per node.
    """

    cards: Mapping[str, Floats]
    card_seen: NDArray[np.bool_]
    nodes: Mapping[str, Floats]
    node_up: NDArray[np.bool_]
    exporter_up: NDArray[np.bool_]
    job_of: tuple[str, ...]


def readings(world: World, noise: np.random.Generator) -> Readings:
    """Read everything once; values are rounded as exporters round them."""
    names = [machine.name for machine in world.site.machines]
    jobs = {node: job for job in world.scheduler.jobs.values() for node in job.nodes}
    node_up = np.array([world.scheduler.hosts[name].up for name in names])
    down = world.exporters_down()
    exporter_up = node_up & np.array([name not in down for name in names])
    busy = np.array([name in jobs for name in names])
    return Readings(
        cards=_cards(world, noise, np.repeat(busy, CARDS_A_NODE)),
        card_seen=np.repeat(exporter_up, CARDS_A_NODE) & ~world.lost(),
        nodes=_nodes(world, noise, busy),
        node_up=node_up,
        exporter_up=exporter_up,
        job_of=tuple(jobs[name].id if name in jobs else "" for name in names),
    )


def _cards(world: World, noise: np.random.Generator, busy: NDArray[np.bool_]) -> dict[str, Floats]:
    matter, n = world.silicon, len(world.load)
    hot = matter.temperature_c > SLOWDOWN_C
    utilisation = np.where(busy & (world.load > 0.11), 100.0 - noise.integers(0, 4, n), np.round(world.load * 300.0))
    return {
        "temperature": np.round(matter.temperature_c),
        "memory_temperature": np.round(matter.temperature_c + HBM_ABOVE_DIE_C * (0.5 + 0.5 * world.load)),
        "power": np.round(matter.power_w, 3),
        "clock": matter.clock_mhz,
        "memory_clock": np.full(n, MEMORY_MHZ),
        "utilisation": np.clip(utilisation, 0.0, 100.0),
        "memory_used": np.where(busy, _held(world), OWN_MEMORY_MIB),
        "last_xid": world.last_xid.copy(),
        "dbe": world.dbe.copy(),
        "remapped_uncorrectable": world.remapped.copy(),
        "remapped_correctable": np.zeros(n),
        "remap_failed": np.zeros(n),
        "replays": world.replays.copy(),
        "link_bytes": world.link_bytes.copy(),
        "clock_events": np.where(hot, THERMAL_BIT, 0) + np.where(matter.power_w > 640.0, POWER_CAP_BIT, 0) + 0.0,
    }


def _held(world: World) -> Floats:
    """Frame buffer in use by the run on each card, MiB."""
    held = np.full(len(world.load), OWN_MEMORY_MIB)
    runs = {run.name: run.memory_mib for run in world.site.runs}
    rows = {machine.name: machine.row for machine in world.site.machines}
    for job in world.scheduler.jobs.values():
        for node in job.nodes:
            first = rows[node] * CARDS_A_NODE
            held[first : first + CARDS_A_NODE] = runs[job.run] + np.arange(CARDS_A_NODE) * 2.0
    return held


def _nodes(world: World, noise: np.random.Generator, busy: NDArray[np.bool_]) -> dict[str, Floats]:
    n = len(busy)
    return {
        "load1": np.round(np.where(busy, 34.0, 0.6) + noise.normal(0.0, 0.4, n).clip(-0.5), 2),
        "running": np.where(busy, 33.0, 1.0) + noise.integers(0, 4, n),
        "interrupts": world.interrupts.copy(),
    }
