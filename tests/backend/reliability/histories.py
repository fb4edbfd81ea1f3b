"""Made-up histories of training runs whose parts are written down while they are made, not worked out afterwards."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from backend.facts import AttemptFacts, CheckpointFacts, StepFacts

DAY = 86_400.0
START = 1_700_000_000.0


@dataclass
class Truth:
    """What really happened in one attempt, by part."""

    parts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    queue: float = 0.0
    hold: float = 0.0


@dataclass
class Past:
    """A history, and the truth of each attempt by (job, restart)."""

    attempts: list[AttemptFacts] = field(default_factory=list)
    steps: list[StepFacts] = field(default_factory=list)
    checkpoints: list[CheckpointFacts] = field(default_factory=list)
    truth: dict[tuple[str, int], Truth] = field(default_factory=dict)
    failed: int = 0
    end: float = 0.0


@dataclass
class _Trainer:
    """One run as it lives: the clock, the step it has reached, the step that is saved."""

    past: Past
    run: str
    rng: np.random.Generator
    nodes: tuple[str, ...]
    step_s: float
    stride: int
    now: float
    step: int = 0
    saved: int = 0
    job: int = 0
    restart: int = 0

    def live(self, until: float) -> None:
        eligible, submit = self.now, self.now
        before_end: float | None = None
        while True:
            truth = Truth()
            truth.hold = 0.0 if before_end is None else eligible - before_end
            start = eligible + float(self.rng.uniform(1, 400))
            if start >= until:
                return
            truth.queue = start - eligible
            state, end = self._attempt(start, until, truth)
            self.past.truth[(str(self.job), self.restart)] = truth
            facts = AttemptFacts(
                job=str(self.job),
                restart=self.restart,
                run=self.run,
                user="u",
                state=state,
                submit=submit,
                eligible=eligible,
                start=start,
                end=None if state == "RUNNING" else end,
                nodes=self.nodes,
                gpus_per_node=8,
            )
            self.past.attempts.append(facts)
            if state in ("COMPLETED", "RUNNING"):
                return
            self.past.failed += state in ("FAILED", "NODE_FAIL", "REQUEUED")
            before_end = end
            if state in ("NODE_FAIL", "PREEMPTED", "REQUEUED"):
                self.restart += 1
                submit, eligible = end, end + float(self.rng.choice([0.0, 120.0]))
            else:
                self.job, self.restart = self.job + 1, 0
                submit = eligible = end + float(self.rng.uniform(300, 20_000))

    def _attempt(self, start: float, until: float, truth: Truth) -> tuple[str, float]:
        """(state, end); rows and truth are written on the way."""
        self.now, self.step = start, self.saved
        fails = start + float(self.rng.exponential(1.2 * DAY))
        state = str(self.rng.choice(["NODE_FAIL", "FAILED", "REQUEUED", "PREEMPTED", "TIMEOUT", "CANCELLED"]))
        stop = min(fails, until)
        for part, seconds in (("startup", self.rng.uniform(30, 400)), ("load", self.rng.uniform(10, 900))):
            seconds = min(float(seconds), stop - self.now)
            truth.parts[part] += seconds
            self.now += seconds
            if self.now >= stop:
                if part == "load":  # a load that never finished writes no row
                    truth.parts["startup"] += truth.parts.pop("load")
                return self._over(truth, state, until, 0.0, 0.0, False)
        self._saved("load", truth.parts["load"])
        return self._train(truth, state, stop, until)

    def _train(self, truth: Truth, state: str, stop: float, until: float) -> tuple[str, float]:
        kept, pending, since_save = 0.0, 0.0, 0
        while True:
            took = self.stride * self.step_s * float(self.rng.uniform(0.97, 1.03))
            if self.rng.random() < 0.004 and since_save:
                took += 12 * self.stride * self.step_s  # an evaluation before the next row
            if self.now + took > stop:
                return self._unfinished(truth, state, stop, until, kept, pending)
            self.now += took
            self.step += self.stride
            pending += took
            since_save += 1
            self._row(took)
            if self.step >= 40_000 * self.stride:
                truth.parts["productive"] = kept + pending
                truth.parts["teardown"] = float(self.rng.uniform(2, 90))
                return "COMPLETED", self.now + truth.parts["teardown"]
            length = float(self.rng.uniform(20, 120))
            if since_save >= 120 and self.now + length <= stop:
                self.now += length
                truth.parts["save_stall"] += length
                self.saved, since_save = self.step, 0
                kept, pending = kept + pending, 0.0
                self._saved("save", length)

    def _unfinished(
        self, truth: Truth, state: str, stop: float, until: float, kept: float, pending: float
    ) -> tuple[str, float]:
        """It ended before its next row."""
        partial, self.now = stop - self.now, stop
        if stop >= until:
            return self._over(truth, state, until, kept + partial, pending, True)
        if partial > max(60.0, 3 * self.step_s, self.stride * self.step_s * 1.25):
            truth.parts["hang"] = partial  # it died in an evaluation: silence, by the contract
            return self._over(truth, state, until, kept, pending, False)
        return self._over(truth, state, until, kept, pending + partial, True)

    def _over(
        self, truth: Truth, state: str, until: float, kept: float, pending: float, stepped: bool
    ) -> tuple[str, float]:
        if self.now >= until:
            truth.parts["productive"] = kept + pending
            return "RUNNING", until
        truth.parts["productive"], truth.parts["lost_since_checkpoint"] = kept, pending
        if stepped and self.rng.random() < 0.5:
            self._hang(truth, until)
        return state, self.now

    def _hang(self, truth: Truth, until: float) -> None:
        """It had stopped after its last row, and was noticed only later."""
        last = max(
            [r.at for r in self.past.steps[-1:] if r.job == str(self.job)]
            + [c.at for c in self.past.checkpoints[-1:] if c.run == self.run]
        )
        unfinished = self.now - last
        longer = float(self.rng.uniform(5 * self.stride * self.step_s + 61, 3000))
        end = min(last + longer, until - 1)
        if end - last <= max(61.0, 3 * self.stride * self.step_s) or end < self.now:
            return
        truth.parts["lost_since_checkpoint"] -= unfinished
        truth.parts["hang"] = end - last
        self.now = end

    def _row(self, took: float) -> None:
        row = StepFacts(
            at=self.now,
            run=self.run,
            job=str(self.job),
            step=self.step,
            loss=2.0,
            step_time_s=min(took / self.stride, 1.05 * self.step_s),
        )
        self.past.steps.append(row)

    def _saved(self, kind: Literal["save", "load"], length: float) -> None:
        self.past.checkpoints.append(CheckpointFacts(self.now, self.run, self.step, kind, length, job=self._said()))

    def _said(self) -> str:
        return str(self.job) if self.job % 2 else ""


def make(seed: int, nodes: int = 63, days: float = 14.0, step_s: float = 20.0) -> Past:
    """Runs side by side on ``nodes`` until ``days`` have passed; some complete, some still go on."""
    rng = np.random.default_rng(seed)
    past = Past(end=START + days * DAY)
    names = [f"n{i:02d}" for i in range(nodes)]
    sizes, at, number = (24, 16, 12, 8, 2, 1), 0, 0
    for size in sizes:
        trainer = _Trainer(
            past=past,
            run=f"run-{number}",
            rng=np.random.default_rng(rng.integers(2**32)),
            nodes=tuple(names[at : at + size]),
            step_s=step_s * float(rng.uniform(0.5, 1.5)),
            stride=int(rng.choice([1, 1, 5])),
            now=START + float(rng.uniform(0, DAY)),
            job=1000 * (number + 1),
        )
        trainer.live(past.end)
        at, number = at + size, number + 1
    return past
