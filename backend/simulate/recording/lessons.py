"""What runs write down of their training: step rows, checkpoint rows, and each job's own log."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from backend.simulate.recording.scene import Dip
from backend.simulate.recording.work import Attempt, Phase, Run, Segments

ROW_EVERY_S = 30.0
#: Every so many rows one line in the job's own log, and every so many of those one that is shipped.
LOGGED, SHIPPED = 5, 4

#: Share of steps that take long for no reason worth a word: a collection of garbage, a slow read.
HICCUP_SHARE = 0.004

Row = Mapping[str, object]


@dataclass(slots=True)
class Lessons:
    """Rows of one run in the order of their times. ``shows``: what a run of this make reports besides its loss."""

    run: Run
    dips: Sequence[Dip]
    speed_at: Callable[[float], float]
    start: float
    end: float
    cards_a_node: int
    row_times: list[tuple[float, float]] = field(default_factory=list)
    save_times: list[tuple[float, float]] = field(default_factory=list)
    checkpoints: list[Row] = field(default_factory=list)
    logged: dict[str, list[tuple[float, int, str]]] = field(default_factory=dict)
    _saved: int = 0
    _step: int = 0
    _rows: int = 0

    def rows(self, attempts: Sequence[tuple[Attempt, Segments]]) -> Iterator[Row]:
        """Step rows; fills checkpoints, logs and times on the way."""
        self._saved = self.run.first_step
        for attempt, planned in attempts:
            if attempt.nodes and attempt.start < self.end:
                yield from self._attempt(attempt, planned)

    def _attempt(self, attempt: Attempt, planned: Segments) -> Iterator[Row]:
        dice = random.Random(f"lessons/{attempt.job}/{attempt.restart}")
        self._step = self._saved
        at = attempt.start
        self._log(attempt, attempt.start + 5.0, 0, f"launching {self.run.name} on {len(attempt.nodes)} nodes, "
                                                   f"world size {len(attempt.nodes) * self.cards_a_node}")  # fmt: skip
        for begin, end, phase in planned.each():
            if begin >= self.end:
                break
            if phase == Phase.STEPS:
                yield from self._steps(attempt, max(at, begin), min(end, self.end), dice)
            elif phase in (Phase.LOAD, Phase.SAVE) and end <= min(self.end, attempt.stop + 1e6):
                self._checkpoint(attempt, begin, end, phase)
            at = end

    def _steps(self, attempt: Attempt, at: float, end: float, dice: random.Random) -> Iterator[Row]:
        every = max(1, round(ROW_EVERY_S / self.run.step_s))
        while True:
            length = self.run.step_s / max(self.speed_at(at), 0.02) * dice.lognormvariate(0.0, 0.012)
            if dice.random() < HICCUP_SHARE:
                length *= dice.uniform(1.3, 2.6)
            if at + length > end:
                return
            at, self._step = at + length, self._step + 1
            if self._step % every == 0 and at >= self.start:
                yield from self._row(attempt, at, length, dice)

    def _row(self, attempt: Attempt, at: float, length: float, dice: random.Random) -> Iterator[Row]:
        loss, norm, more = self._learnt(at, dice)
        self.row_times.append((round(at, 3), length))
        row: dict[str, object] = {
            "ts": round(at, 3), "run": self.run.name, "job": attempt.job, "step": self._step, "loss": told(loss, 5),
            "grad_norm": told(norm, 5), "step_time_s": round(length, 4), "tokens": self._step * self.run.batch_tokens,
            **{key: round(value, 5) for key, value in more.items()},
        }  # fmt: skip
        self._rows += 1
        if self._rows % LOGGED == 0:
            took = f"elapsed time per iteration (ms): {length * 1000:.1f}"
            learnt = f"lm loss: {loss:.6E} | grad norm: {norm:.3f}"
            self._log(attempt, at, 0, f" iteration {self._step:8d}/  500000 | {took} | {learnt} |")
        yield row
        for dip in self._now(at, "replica"):
            for rank in range(len(attempt.nodes) * self.cards_a_node):
                off = dip.size * 0.06 * dice.random() if rank == dip.rank else 0.0
                yield {**row, "rank": rank, "loss": told(loss + off, 5), "grad_norm": told(norm * (1.0 + off), 5),
                       "param_checksum": (self._step * 2_654_435_761 + (17 if off else 0)) % 2**32}  # fmt: skip

    def _now(self, at: float, what: str = "") -> list[Dip]:
        return [dip for dip in self.dips if dip.start <= at < dip.end and (not what or dip.what == what)]

    def _learnt(self, at: float, dice: random.Random) -> tuple[float, float, dict[str, float]]:
        """Loss, norm of the gradient, and what else this run reports: its make is told by its name."""
        loss = self.run.first_loss * (1.0 - 0.012 * math.log1p((self._step - self.run.first_step) / 3000.0))
        loss += dice.gauss(0.0, 0.012)
        norm = dice.lognormvariate(0.0, 0.1)
        more = {
            "max_attention_logit": 14.0 * dice.lognormvariate(0.0, 0.04),
            "attention_entropy": dice.gauss(3.1, 0.03),
        }
        if self.run.row % 2 == 1:
            more |= {"router_entropy": dice.gauss(1.96, 0.01), "expert_load_max": 0.17 * dice.lognormvariate(0.0, 0.05)}
        if self.run.row % 2 == 0:
            more["kl"], more["ess"] = abs(dice.gauss(0.004, 0.001)), min(1.0, dice.gauss(0.92, 0.015))
            more["staleness"] = float(dice.randrange(1, 4))
        for dip in self._now(at):
            share = (at - dip.start) / max(dip.end - dip.start, 1.0)
            loss, norm = _hurt(dip, share, at - dip.start, loss, norm, more)
        return loss, norm, more

    def _checkpoint(self, attempt: Attempt, begin: float, end: float, phase: Phase) -> None:
        if phase == Phase.SAVE:
            self._saved = self._step
        kind = "save" if phase == Phase.SAVE else "load"
        if end < self.start:
            return
        self.save_times.append((round(end, 3), round(end - begin, 3)))
        self.checkpoints.append(
            {
                "ts": round(end, 3),
                "run": self.run.name,
                "job": attempt.job,
                "step": self._step,
                "kind": kind,
                "duration_s": round(end - begin, 3),
                "bytes": self.run.save_bytes,
            }
        )
        words = "saved checkpoint to" if kind == "save" else "loaded checkpoint from"
        self._log(
            attempt,
            end,
            0,
            f"  successfully {words} /scratch/{self.run.name} [ t {end - begin:.1f} s ] at iteration {self._step:7d}",
        )

    def _log(self, attempt: Attempt, at: float, rank: int, line: str) -> None:
        if at >= self.start:
            self.logged.setdefault(attempt.job, []).append((round(at, 3), rank, line))


def told(value: float, digits: int) -> float | str:
    """A number for JSON, which has no word for one that is none."""
    return round(value, digits) if math.isfinite(value) else "NaN"


def _hurt(
    dip: Dip, share: float, since_s: float, loss: float, norm: float, more: dict[str, float]
) -> tuple[float, float]:
    size = dip.size
    if dip.what == "spike":
        fall = math.exp(-since_s / 45.0)
        return loss + 1.3 * size * fall, norm * (1.0 + 9.0 * size * fall)
    if dip.what == "climb":
        return loss + 2.2 * size * share, norm * (1.0 + 4.0 * size * share)
    if dip.what == "nan":
        return (loss, norm * (1.0 + 30.0 * share)) if share < 0.3 else (math.nan, math.nan)
    if dip.what == "waves":
        return loss, norm * (1.0 + 2.0 * size * share)
    if dip.what == "logits":
        more["max_attention_logit"] *= 1.0 + 9.0 * size * share
        more["attention_entropy"] *= 1.0 - 0.55 * share
    elif dip.what == "router":
        more["router_entropy"] = more.get("router_entropy", 1.96) * (1.0 - 0.6 * share)
        more["expert_load_max"] = more.get("expert_load_max", 0.17) * (1.0 + 2.5 * size * share)
    elif dip.what == "policy":
        more["kl"] = more.get("kl", 0.004) + 0.25 * size * share
        more["ess"] = more.get("ess", 0.92) * (1.0 - 0.8 * share)
    elif dip.what == "stale":
        more["staleness"] = more.get("staleness", 2.0) + math.floor(40.0 * size * share)
    return loss, norm
