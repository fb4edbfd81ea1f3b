"""What the trainers of the make-believe cluster tell of themselves: steps, saves and loads, as any trainer would."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backend.simulate.scheduler import SAVE_S, Job

Told = Mapping[str, object]

STEP_S = 1.5
LOAD_S = 6.0
#: Bytes of a save, for each node.
SAVE_BYTES = 3.1e10


@dataclass(slots=True)
class Trainer:
    """The progress of one attempt of a run. ``step`` goes back to ``saved`` where the next attempt begins."""

    attempt: tuple[str, int]
    step: int
    saved: int
    at: float
    saving: bool = False


@dataclass(slots=True)
class Trainers:
    """All runs by name."""

    by_run: dict[str, Trainer] = field(default_factory=dict)

    def tell(self, jobs: Sequence[Job], now: float, world_s: float) -> dict[str, list[Told]]:
        """Rows of ``steps`` and ``checkpoints`` since the last call, at unix time ``now``."""
        steps: list[Told] = []
        saves: list[Told] = []
        for job in jobs:
            trainer = self.by_run.get(job.run)
            if trainer is None or trainer.attempt != (job.id, job.restart):
                if not job.steps(world_s):
                    continue
                first = trainer is None
                saved = trainer.saved if trainer is not None else since_start(job, now)
                self.by_run[job.run] = trainer = Trainer((job.id, job.restart), saved, saved, now)
                saves += [] if first else [checkpoint(job.run, job.id, "load", now, saved, len(job.nodes), LOAD_S)]
                continue
            if trainer.saving and not job.saves(world_s):
                trainer.saving, trainer.saved, trainer.at = False, trainer.step, now
                saves.append(checkpoint(job.run, job.id, "save", now, trainer.step, len(job.nodes), SAVE_S))
            elif job.saves(world_s):
                trainer.saving = True
            elif job.steps(world_s) and now > trainer.at:
                trainer.step += max(1, round((now - trainer.at) / STEP_S))
                trainer.at = now
                steps.append(step(job.run, job.id, now, trainer.step, STEP_S))
        return {"steps": steps, "checkpoints": saves}


def since_start(job: Job, now: float) -> int:
    return 180_000 + int((now - (job.start or now)) / STEP_S)


def step(run: str, job: str, at: float, number: int, step_s: float) -> Told:
    loss = 1.7 + 6.0 / math.sqrt(1 + number / 400) + 0.02 * math.sin(number)
    return {"ts": at, "run": run, "job": job, "step": number, "loss": round(loss, 4), "step_time_s": step_s, "rank": 0}


def checkpoint(run: str, job: str, kind: str, at: float, number: int, nodes: int, took_s: float) -> Told:
    told: dict[str, object] = {"ts": at, "run": run, "job": job, "step": number, "kind": kind}
    return {**told, "duration_s": took_s, "bytes": SAVE_BYTES * nodes}
