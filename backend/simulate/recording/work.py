"""Training runs and their attempts: what a job does from its start to its end, phase by phase."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Phase(IntEnum):
    NONE = 0
    INIT = 1
    LOAD = 2
    STEPS = 3
    EVAL = 4
    SAVE = 5
    STALL = 6
    TEARDOWN = 7


TEARDOWN_S = 22.0
#: An evaluation after every so many saves.
EVAL_EVERY = 3
EVAL_S = 150.0


@dataclass(frozen=True, slots=True)
class Run:
    """A training run. ``load``: share of full power of its steps; ``row``: its place on the axis of runs."""

    row: int
    name: str
    user: str
    vendor: str
    need: int
    load: float
    memory_mib: int
    step_s: float
    save_every_s: float
    save_s: float
    load_s: float
    save_bytes: int
    first_step: int
    first_loss: float
    batch_tokens: int


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt of a run. ``nodes``: rows; ``end`` None while it runs on; ``stalled_at``: when its steps stopped."""

    run: Run
    job: str
    restart: int
    nodes: tuple[int, ...]
    submit: float
    eligible: float
    start: float
    planned_end: float
    end: float | None = None
    state: str = "RUNNING"
    exit: str = "0:0"
    reason: str = "None"
    failed_node: str = ""
    stalled_at: float | None = None
    excluded: tuple[str, ...] = ()
    why: str = ""
    said: list[tuple[float, int, str]] = field(default_factory=list)
    slow_saves: list[tuple[float, float, float]] = field(default_factory=list)
    failed_save: float | None = None

    @property
    def stop(self) -> float:
        """When its work stopped, whatever came after; infinite while it runs on."""
        ends = [at for at in (self.stalled_at, self.end) if at is not None]
        return min(ends, default=float("inf"))


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Phases of one attempt: ``begins`` float64[n] rising; phase i lasts from begins[i] to begins[i + 1] or ``end``."""

    begins: Floats
    phases: NDArray[np.int8]
    end: float

    def at(self, now: Floats) -> NDArray[np.int8]:
        place = np.searchsorted(self.begins, now, side="right") - 1
        return np.where((place >= 0) & (now < self.end), self.phases[np.maximum(place, 0)], Phase.NONE).astype(np.int8)

    def each(self) -> list[tuple[float, float, Phase]]:
        ends = [*self.begins[1:].tolist(), self.end]
        return [(a, b, Phase(int(p))) for a, b, p in zip(self.begins.tolist(), ends, self.phases.tolist(), strict=True)]


def opening(attempt: Attempt) -> tuple[float, float]:
    """Seconds its init and its load take; thrown from the attempt's own name."""
    dice = random.Random(f"opening/{attempt.run.name}/{attempt.job}/{attempt.restart}")
    return dice.uniform(35.0, 80.0), attempt.run.load_s * dice.uniform(0.9, 1.2)


def save_length(attempt: Attempt, at: float) -> float:
    """Seconds a save takes that begins at ``at``."""
    dice = random.Random(f"save/{attempt.job}/{attempt.restart}/{at:.0f}")
    length = attempt.run.save_s * dice.uniform(0.93, 1.08)
    for start, end, factor in attempt.slow_saves:
        if start <= at < end:
            length *= factor
    return length


def segments(attempt: Attempt, horizon: float) -> Segments:
    """Phases up to the attempt's end, or to ``horizon`` where it runs on."""
    init, load = opening(attempt)
    end = horizon if attempt.end is None else attempt.end
    done = attempt.state == "COMPLETED"
    stop = min(end, attempt.stop if not done else end - TEARDOWN_S - attempt.run.save_s)
    begins, phases = [attempt.start, attempt.start + init], [Phase.INIT, Phase.LOAD]
    at, saves = attempt.start + init + load, 0
    while at < stop:
        begins, phases = [*begins, at, at + attempt.run.save_every_s], [*phases, Phase.STEPS, Phase.SAVE]
        at += attempt.run.save_every_s
        at, saves = at + save_length(attempt, at), saves + 1
        if saves % EVAL_EVERY == 0:
            begins, phases, at = [*begins, at], [*phases, Phase.EVAL], at + EVAL_S
    kept = [i for i, begin in enumerate(begins) if begin < stop]
    begins, phases = [begins[i] for i in kept], [phases[i] for i in kept]
    if done:
        begins, phases = [*begins, stop, end - TEARDOWN_S], [*phases, Phase.SAVE, Phase.TEARDOWN]
    elif stop < end:
        begins, phases = [*begins, stop], [*phases, Phase.STALL]
    return Segments(np.array(begins), np.array(phases, np.int8), end)


def runs(seed: int, nvidia: int, amd: int) -> tuple[Run, ...]:
    """Runs that fill a site but for some spare nodes; ``nvidia`` and ``amd``: nodes of each maker."""
    dice = random.Random(f"runs/{seed}")
    shares = {"nvidia": _split(nvidia), "amd": _split(amd)[:1] if amd else []}
    needs = [(vendor, need) for vendor, found in shares.items() for need in found]
    names = dice.sample(
        ("aurora-34b", "basalt-moe", "cinder-7b", "delta-vlm", "ember-70b", "fjord-code", "gale-asr"), 7
    )
    users = dice.sample(("hana", "mateo", "ines", "oskar", "priya", "yusuf", "lin"), 7)
    return tuple(_run(dice, row, names[row % 7], users[row % 7], *needs[row]) for row in range(len(needs)))


def _split(nodes: int) -> list[int]:
    """Sizes of the runs on ``nodes`` nodes; about one node in ten stays spare."""
    if nodes <= 2:
        return [1] if nodes else []
    usable = nodes - max(1, nodes // 10)
    if usable < 4:
        return [usable]
    sizes = [usable // 2]
    rest = usable - sizes[0]
    while rest > 0:
        sizes.append(min(rest, max(1, (rest + 1) * 2 // 3)) if len(sizes) < 5 else rest)
        rest -= sizes[-1]
    return sizes


def _run(dice: random.Random, row: int, name: str, user: str, vendor: str, need: int) -> Run:
    return Run(
        row,
        f"{name}-{row + 1:02d}",
        user,
        vendor,
        need,
        load=dice.uniform(0.8, 0.95),
        memory_mib=dice.randrange(56_000, 74_000),
        step_s=dice.uniform(3.5, 9.5),
        save_every_s=dice.uniform(900.0, 1500.0),
        save_s=dice.uniform(25.0, 60.0),
        load_s=dice.uniform(60.0, 150.0),
        save_bytes=dice.randrange(60, 400) * 10**9,
        first_step=dice.randrange(4_000, 60_000),
        first_loss=dice.uniform(1.9, 2.5),
        batch_tokens=dice.choice((1, 2, 4)) * 1_048_576,
    )
