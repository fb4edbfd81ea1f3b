"""The life of the make-believe cluster, one step after another; the same seed and steps give the same life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.simulate import faults, lines, mishaps
from backend.simulate.faults import Kind
from backend.simulate.physics import BOOST_MHZ, Floats, silicon
from backend.simulate.readings import Readings, readings
from backend.simulate.scheduler import Job, scheduler
from backend.simulate.site import CARDS_A_NODE, Run, site
from backend.simulate.state import World

#: A pause of the simulation (a stopped demo, a busy machine) passes for at most this long in its world.
LONGEST_STEP_S = 10.0
SAVE_LOAD = 0.10
START_LOAD = 0.04
#: Ranks that wait for a lost peer spin in the collective: busy, yet they draw little.
SPIN_LOAD = 0.15
BAD_FAN = 0.46
LINK_BYTES_A_S = 2.1e11
INTERRUPTS_A_S = 10_000.0


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What one step would make visible: log rows, attempts that changed, and telemetry of that moment."""

    at: float
    lines: tuple[Mapping[str, object], ...]
    jobs: tuple[Mapping[str, object], ...]
    readings: Readings


def begin(seed: int, now: float) -> World:
    """A warm, healthy, busy cluster at unix time ``now``, with its first mishaps due within seconds."""
    place = site(seed)
    n, nodes = len(place.cards), len(place.machines)
    world = World(
        site=place,
        scheduler=scheduler([machine.name for machine in place.machines], place.runs, now),
        silicon=silicon(CARDS_A_NODE, nodes, seed),
        now=now,
        planned=faults.opening(seed),
    )
    for name in ("last_xid", "dbe", "remapped", "replays", "link_bytes"):
        setattr(world, name, np.zeros(n))
    world.interrupts = np.full(nodes, 1.0e9)
    world.load = _load(world)
    world.silicon.settle(world.load, np.random.default_rng((seed, 2)))
    return world


def step(world: World, now: float) -> Report:
    """Move the world on to unix time ``now`` and say what it shows; time never runs backwards in it."""
    with world.lock:
        dt = min(max(now - world.now, 0.0), LONGEST_STEP_S)
        world.now, world.world_s, world.steps = max(now, world.now), world.world_s + dt, world.steps + 1
        _mishaps(world)
        world.scheduler.step(world.now, world.world_s)
        noise = np.random.default_rng((world.site.seed, 3, world.starts, world.steps))
        _matter(world, dt, noise)
        _chatter(world, dt)
        report = Report(world.now, tuple(world.lines), tuple(world.scheduler.changed), readings(world, noise))
        world.lines, world.scheduler.changed = [], []
        return report


def _mishaps(world: World) -> None:
    due = [planned for planned in world.planned if planned.due_at <= world.world_s]
    for planned in due:
        world.planned.remove(planned)
        if not mishaps.strike(world, planned):
            planned.due_at = world.world_s + 15.0
            world.planned.append(planned)
        elif not world.planned:
            world.planned.append(faults.following(world.site.seed, planned.number + 1, world.world_s))
    world.faults = [fault for fault in world.faults if mishaps.tend(world, fault)]
    mishaps.watchdog(world)


def _matter(world: World, dt: float, noise: np.random.Generator) -> None:
    world.load = _load(world)
    cooling = np.ones(len(world.load))
    cooling[[fault.card for fault in world.faults if fault.kind is Kind.FAN]] = BAD_FAN
    asked = np.clip(world.load + noise.normal(0.0, 0.008, len(world.load)) * (world.load > 0), 0.0, 1.0)
    world.silicon.step(asked, cooling, dt, noise)
    stepping = world.load > SPIN_LOAD
    world.link_bytes += np.floor(stepping * LINK_BYTES_A_S * world.load * dt)
    busy = world.load.reshape(-1, CARDS_A_NODE).mean(axis=1)
    world.interrupts += np.floor((0.3 + busy) * INTERRUPTS_A_S * dt * noise.normal(1.0, 0.02, len(busy)))
    world.replays += noise.random(len(world.load)) < dt * 2e-6


def _load(world: World) -> Floats:
    """Work asked of each card, 0..1. A job steps as fast as its slowest card, so the others idle for the rest."""
    load = np.zeros(len(world.site.cards))
    lost = world.lost()
    rows = {machine.name: machine.row for machine in world.site.machines}
    runs = {run.name: run for run in world.site.runs}
    for job in world.scheduler.jobs.values():
        held = np.concatenate([np.arange(8) + rows[n] * CARDS_A_NODE for n in job.nodes] or [np.zeros(0, int)])
        load[held] = _asked(job, runs[job.run], world.silicon.clock_mhz[held], lost[held], world.world_s)
    load[lost] = 0.0
    return load


def _asked(job: Job, run: Run, clock_mhz: Floats, lost: NDArray[np.bool_], world_s: float) -> Floats | float:
    if job.steps(world_s):
        speed = clock_mhz / BOOST_MHZ
        slowest = float(speed[~lost].min(initial=1.0))
        return run.load * np.minimum(slowest / np.maximum(speed, 0.05) + 0.25, 1.25) / 1.25
    if job.saves(world_s):
        return SAVE_LOAD
    return SPIN_LOAD if job.stalled_at is not None else START_LOAD


def _chatter(world: World, dt: float) -> None:
    dice = world.dice("chatter")
    for _ in range(int(dt / 4.0 + dice.random())):
        machine = dice.choice(world.site.machines)
        if world.scheduler.hosts[machine.name].up:
            world.say(machine.name, lines.chatter(dice))
