"""What the trainers of the make-believe cluster tell of themselves: steps, saves and loads, as any trainer would."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backend.simulate.scheduler import SAVE_S, Job

Told = Mapping[str, object]

STEP_S = 1.5
LOAD_S = 6.0
#: Ranks of a job that tell their own step time, layers that tell of themselves, and how often, in steps.
MOST_RANKS, LAYERS, LAYERS_EVERY = 16, 12, 20
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
                steps += rows_of(job, now, trainer.step)
        return {"steps": steps, "checkpoints": saves}


def since_start(job: Job, now: float) -> int:
    return 180_000 + int((now - (job.start or now)) / STEP_S)


def rows_of(job: Job, at: float, number: int) -> list[Told]:
    """What the ranks of one job tell of a step: one a node, layers now and then; of a policy also its sampler."""
    found = [step(job.run, job.id, at, number, STEP_S)]
    for rank, host in enumerate(job.nodes[:MOST_RANKS]):
        took = STEP_S * (1.0 + 0.004 * math.sin(number * 0.7 + rank))
        row = {"ts": at, "run": job.run, "job": job.id, "step": number, "rank": rank, "host": host}
        if rank:
            found.append({**row, "step_time_s": round(took, 4)})
    if number % LAYERS_EVERY < 3:
        found += [layer(job, at, number, n) for n in range(LAYERS)]
    return found


def layer(job: Job, at: float, number: int, n: int) -> Told:
    entropy = 2.4 + 0.05 * n + 0.01 * math.sin(number * 0.11 + n)
    norm = 0.06 * (1 + 0.1 * math.sin(number * 0.3 + 2 * n))
    row = {"ts": at, "run": job.run, "job": job.id, "step": number, "layer": n}
    return {**row, "qk_entropy": round(entropy, 4), "grad_norm": round(norm, 5)}


def sampler(number: int) -> Told:
    """Signals of asynchronous training, at ease."""
    return {
        "reward": round(0.62 - 0.3 / math.sqrt(1 + number / 3000) + 0.01 * math.sin(number * 0.9), 4),
        "ess": round(0.83 + 0.03 * math.sin(number * 0.37), 4),
        "staleness": round(2.0 + 0.4 * math.sin(number * 0.21), 3),
        "kl": round(0.012 + 0.003 * math.sin(number * 0.5), 5),
        "clip_share": round(0.06 + 0.01 * math.sin(number * 0.33), 4),
        "buffer_depth": 480 + round(30 * math.sin(number * 0.17)),
        "sync_s": round(1.8 + 0.1 * math.sin(number * 0.71), 3),
        "idle_share": round(0.07 + 0.02 * math.sin(number * 0.29), 4),
    }


def step(run: str, job: str, at: float, number: int, step_s: float) -> Told:
    loss = 1.7 + 6.0 / math.sqrt(1 + number / 400) + 0.02 * math.sin(number)
    norm = 0.4 + 3.0 / math.sqrt(1 + number / 200) + 0.03 * math.sin(number * 1.7)
    told: dict[str, object] = {"ts": at, "run": run, "job": job, "step": number, "loss": round(loss, 4)}
    told |= {"grad_norm": round(norm, 4), "step_time_s": step_s, "rank": 0}
    return {**told, **(sampler(number) if run.startswith("moe") else {})}


def checkpoint(run: str, job: str, kind: str, at: float, number: int, nodes: int, took_s: float) -> Told:
    told: dict[str, object] = {"ts": at, "run": run, "job": job, "step": number, "kind": kind}
    return {**told, "duration_s": took_s, "bytes": SAVE_BYTES * nodes}
