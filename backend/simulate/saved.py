"""The world as a small JSON file, so that a second start goes on where the first one stopped."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from backend.simulate.faults import Fault, Kind, Planned
from backend.simulate.scheduler import Host, Job
from backend.simulate.state import World
from backend.simulate.world import begin

VERSION = 1
ARRAYS = ("last_xid", "dbe", "remapped", "replays", "link_bytes", "interrupts")
#: The first mishap after a start comes within this time, so that nobody waits for it.
FIRST_WITHIN_S = 10.0


def save(world: World, path: Path) -> None:
    """Write the world beside ``path`` and move it into place: a crash leaves the old file or the new one."""
    with world.lock:
        text = orjson.dumps(_written(world))
    beside = path.with_suffix(".new")
    beside.write_bytes(text)
    os.replace(beside, path)


def load(seed: int, now: float, path: Path) -> World:
    """The saved world, moved to ``now``; a fresh one where there is none, or it is unreadable or of another seed."""
    world = begin(seed, now)
    try:
        kept = orjson.loads(path.read_bytes())
        if kept["version"] == VERSION and kept["seed"] == seed:
            _restore(world, kept)
    except (OSError, ValueError, KeyError, TypeError):
        return begin(seed, now)
    return world


def _written(world: World) -> dict[str, Any]:
    return {
        "version": VERSION,
        "seed": world.site.seed,
        "world_s": world.world_s,
        "steps": world.steps,
        "starts": world.starts,
        "planned": [asdict(planned) for planned in world.planned],
        "faults": [asdict(fault) for fault in world.faults],
        "performed": world.performed,
        "hosts": [asdict(host) for host in world.scheduler.hosts.values()],
        "jobs": [asdict(job) for job in world.scheduler.jobs.values()],
        "ended": world.scheduler.ended,
        "next_job": world.scheduler.next_job,
        "temperature_c": np.round(world.silicon.temperature_c, 2).tolist(),
        **{name: getattr(world, name).tolist() for name in ARRAYS},
    }


def _restore(world: World, kept: dict[str, Any]) -> None:
    """Put what was saved into a fresh world; KeyError or TypeError where the file is not ours."""
    world.world_s, world.steps, world.starts = kept["world_s"], kept["steps"], kept["starts"] + 1
    world.planned = [Planned(**{**row, "kind": Kind(row["kind"])}) for row in kept["planned"]]
    world.faults = [Fault(**{**row, "kind": Kind(row["kind"])}) for row in kept["faults"]]
    world.performed = dict(kept["performed"])
    scheduler = world.scheduler
    scheduler.hosts = {row["name"]: Host(**row) for row in kept["hosts"]}
    scheduler.jobs = {row["id"]: Job(**row) for row in kept["jobs"]}
    scheduler.ended, scheduler.next_job = list(kept["ended"]), kept["next_job"]
    scheduler.changed = scheduler.table()
    world.silicon.temperature_c = np.array(kept["temperature_c"])
    for name in ARRAYS:
        setattr(world, name, np.array(kept[name]))
    for planned in sorted(world.planned, key=lambda p: p.due_at)[:1]:
        planned.due_at = min(planned.due_at, world.world_s + FIRST_WITHIN_S)
