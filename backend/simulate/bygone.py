"""What the make-believe cluster did in the weeks before the demo began, told through the same routes as the rest."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from backend.simulate.scheduler import Job
from backend.simulate.site import Run, Site
from backend.simulate.training import STEP_S, Told, checkpoint, step

DAY_S = 86_400.0
DAYS = 28
#: Longest attempt, seconds between rows of steps, between saves, and how long a save blocks.
LONGEST_S, ROW_S, SAVE_EVERY_S, SAVE_S = 22 * 3600.0, 900.0, 2700.0, 42.0
#: Nodes of a run that keep the numbers of its jobs apart from those of the next.
NODES = 16
#: How often an attempt fails, and shares of why: a node lost, memory of the job's own; the rest tells no cause.
FAILS, NODE, MEMORY = 0.34, 0.62, 0.2
#: How often people let a run be after one more failure. The last days belong to the run that still goes on.
GIVEN_UP, GOES_ON_S = 0.3, 2 * DAY_S
#: The node that is lost far more often than others, and what users leave out without a reason.
LEMON, FEARED = "gpu-017", ("gpu-017", "gpu-030")


@dataclass(slots=True)
class Bygone:
    """Rows by route: jobs, steps, checkpoints."""

    jobs: list[Told] = field(default_factory=list)
    steps: list[Told] = field(default_factory=list)
    checkpoints: list[Told] = field(default_factory=list)


def bygone(site: Site, jobs: Sequence[Job], now: float) -> Bygone:
    """The four weeks before ``now`` (unix s); the same for the same seed. ``jobs``: those that run now."""
    found = Bygone()
    dice = random.Random(f"bygone/{site.seed}")
    for run in site.runs:
        _run(found, dice, run, _first(site, run), now)
    for job in jobs:
        if job.start is not None:
            _trained(found, job.run, job.id, job.start + 40.0, now, 170_000, len(job.nodes), 30.0)
    return found


def _first(site: Site, run: Run) -> int:
    """Where its nodes begin, in order of the runs."""
    before = site.runs[: site.runs.index(run)]
    return sum(other.nodes for other in before)


def _run(found: Bygone, dice: random.Random, run: Run, first: int, now: float) -> None:
    at, job, reached = now - DAYS * DAY_S + dice.uniform(0, 7200), run.first_job - 20_000 + 3000 * first // NODES, 1000
    last = now - 2400.0
    restart, part, name = 0, 1, f"{run.name}-part01"
    out: tuple[str, ...] = ()
    while at < last:
        nodes = [f"gpu-{first + place + 1:03d}" for place in range(run.nodes)]
        start = at + dice.uniform(15, 420)
        lasts = dice.uniform(0.35, 1.0) * LONGEST_S
        bad = dice.random() < FAILS
        end = min(last, start + (lasts * dice.uniform(0.08, 0.85) if bad else lasts))
        if end <= start:
            break
        state, reason, hang = ("COMPLETED", "", 0.0) if not bad else _ending(dice, nodes)
        row = {"job": str(job), "restart": restart, "run": name, "user": run.user, "gpus_per_node": 8}
        times = {"submit": at, "eligible": at, "start": start, "end": end}
        feared = FEARED if dice.random() < 0.15 else out
        found.jobs.append(row | times | {"state": state, "reason": reason, "nodes": nodes, "excluded": list(feared)})
        reached = _trained(found, name, str(job), start + 70.0, end - hang, reached, run.nodes, ROW_S)
        out = tuple(reason.split()[-1:]) if reason else ()
        over = not bad or (restart > 0 and dice.random() < GIVEN_UP)
        restart, job, part = (0, job + 13, part + 1) if over else (restart + 1, job, part)
        if over:
            named = run.name if end > last - GOES_ON_S else f"{run.name}-part{part:02d}"
            name, reached = named, reached if named == name else 1000
        at = end + dice.uniform(20, 300)


def _ending(dice: random.Random, nodes: list[str]) -> tuple[str, str, float]:
    """(state, reason, seconds that it hung before)."""
    chance = dice.random()
    if chance < NODE:
        lost = LEMON if LEMON in nodes and dice.random() < 0.6 else dice.choice(nodes)
        return "NODE_FAIL", f"failed node {lost}", dice.uniform(60, 1500)
    return ("OUT_OF_MEMORY", "", 5.0) if chance < NODE + MEMORY else ("FAILED", "", dice.uniform(5, 900))


def _trained(
    found: Bygone, run: str, job: str, begin: float, end: float, reached: int, nodes: int, every_s: float
) -> int:
    """Rows from ``begin`` to ``end``: a load, steps, saves; the step that the last save holds."""
    load_s = min(55.0, max(1.0, (end - begin) / 4))
    if end - begin < 120.0:
        return reached
    found.checkpoints.append(checkpoint(run, job, "load", begin + load_s, reached, nodes, load_s))
    at, number, saved, next_save = begin + load_s, reached, reached, begin + load_s + SAVE_EVERY_S
    while True:
        until = min(at + every_s, next_save, end)
        number += max(1, round((until - at) / STEP_S))
        at = until
        found.steps.append(step(run, job, at, number, STEP_S))
        if at >= end:
            return saved
        if at >= next_save:
            next_save = at + SAVE_EVERY_S
            if at + SAVE_S < end:
                at, saved = at + SAVE_S, number
                found.checkpoints.append(checkpoint(run, job, "save", at, number, nodes, SAVE_S))
