"""Which training rows, saves and loads belong to which attempt, and which run they name."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from backend.facts import AttemptFacts, CheckpointFacts
from backend.reliability.history import History, StepTable
from backend.reliability.runs import Run, label

#: Rows are written a little before the start and after the end that the scheduler records, s.
EARLY_S, LATE_S = 1.0, 60.0
#: A save that finished this much after the recorded end (whole seconds) still belongs to it, s.
SAVED_LATE_S = 1.0

Slice = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What was told from inside an attempt; checkpoints in the order they finished."""

    steps: StepTable
    checkpoints: tuple[CheckpointFacts, ...]

    @property
    def first_at(self) -> float:
        """When the earliest of it was told, infinity where nothing was."""
        return min([*self.steps.at[:1], *(c.at for c in self.checkpoints[:1])], default=np.inf)


class Rows:
    """Finds the evidence of attempts. ``named``: run names by the place of the attempt; ``total``: rows of steps."""

    def __init__(self, history: History, attempts: Sequence[AttemptFacts]) -> None:
        table = history.table()
        # rows of a job by job and time; those that name only their run by run and time
        jobs = np.array([bool(job) for job in table.jobs] or [True])
        by_job = jobs[table.job_of] if len(table) else np.zeros(0, np.bool_)
        key = np.where(by_job, table.job_of, len(table.jobs) + table.run_of)
        order = np.lexsort((table.at, key))
        self._table = table.take(order)
        keys, starts = np.unique(key[order], return_index=True)
        ends = np.append(starts, len(table))[1:].tolist()
        names = [("job", job) for job in table.jobs] + [("run", run) for run in table.runs]
        parts = zip(keys.tolist(), starts.tolist(), ends, strict=True)
        self._slices: dict[tuple[str, str], Slice] = {names[k]: (low, high) for k, low, high in parts}
        self._saves: defaultdict[tuple[str, str], list[CheckpointFacts]] = defaultdict(list)
        for row in sorted(set(history.checkpoints), key=lambda c: (c.at, c.kind, c.step, c.duration_s)):
            if np.isfinite(row.at) and np.isfinite(row.duration_s):
                self._saves[("job", row.job) if row.job else ("run", row.run)].append(row)
        self._until = _next_starts(attempts)
        self.named = self._names(attempts)
        self.total = len(table)

    def of_run(self, run: Run) -> dict[int, Evidence]:
        """Evidence by ``id`` of each attempt of ``run`` that started."""
        found: dict[int, Evidence] = {}
        loose = ("run", run.name if run.by == "name" else "")
        rows_done, saves_done = 0, -np.inf
        for attempt in run.attempts:
            if attempt.start is None:
                continue
            parts = self._of_job(attempt)
            if not parts and loose in self._slices:
                low, high = self._cut(attempt, self._slices[loose])
                parts, rows_done = [(max(low, rows_done), high)], max(rows_done, high)
            saves = [c for name in _ids(attempt) for c in self._saves_of(attempt, ("job", name))]
            more = [c for c in self._saves_of(attempt, loose) if c.at > saves_done]
            saves_done = max([saves_done, *(c.at for c in more)])
            if not (parts or saves or more):
                continue
            which = np.concatenate([np.zeros(0, np.int64), *(np.arange(low, high) for low, high in parts)])
            end = np.inf if attempt.end is None else attempt.end
            told = [_ended_by(c, end) for c in saves + more]
            found[id(attempt)] = Evidence(self._table.take(which), tuple(sorted(told, key=lambda c: c.at)))
        return found

    def _names(self, attempts: Sequence[AttemptFacts]) -> dict[int, str]:
        """The run that the rows of an attempt name; else its own label, where rows without a job name that run."""
        loose = {name for kind, name in [*self._slices, *self._saves] if kind == "run" and name}
        found: dict[int, str] = {}
        for place, attempt in enumerate(attempts):
            votes: Counter[str] = Counter()
            for low, high in self._of_job(attempt):
                codes, counts = np.unique(self._table.run_of[low:high], return_counts=True)
                votes.update({self._table.runs[c]: int(n) for c, n in zip(codes, counts, strict=True)})
            for name in _ids(attempt):
                votes.update(c.run for c in self._saves_of(attempt, ("job", name)))
            votes.pop("", None)
            if votes:
                found[place] = min(votes, key=lambda name: (-votes[name], name))
            elif label(attempt) in loose:
                found[place] = label(attempt)
        return found

    def _of_job(self, attempt: AttemptFacts) -> list[Slice]:
        """Slices of the table: the rows that name its job."""
        found = []
        for name in _ids(attempt):
            part = self._slices.get(("job", name))
            if part is not None and attempt.start is not None:
                low, high = self._cut(attempt, part)
                found += [(low, high)] if high > low else []
        return sorted(found)

    def _cut(self, attempt: AttemptFacts, part: Slice) -> Slice:
        assert attempt.start is not None
        at = self._table.at[part[0] : part[1]]
        until = self._until[id(attempt)]
        end = until if attempt.end is None else min(until, attempt.end + LATE_S)
        low, high = np.searchsorted(at, [attempt.start - EARLY_S, np.nextafter(end, np.inf)])
        return part[0] + int(low), part[0] + int(high)

    def _saves_of(self, attempt: AttemptFacts, key: tuple[str, str]) -> list[CheckpointFacts]:
        rows = self._saves.get(key)
        if rows is None or attempt.start is None or not key[1]:
            return []
        end = self._until[id(attempt)] if attempt.end is None else attempt.end + SAVED_LATE_S
        low = bisect_right(rows, attempt.start, key=lambda c: c.at)
        return rows[low : bisect_right(rows, end, key=lambda c: c.at)]


def _ended_by(checkpoint: CheckpointFacts, end: float) -> CheckpointFacts:
    """The same, finished at ``end`` at the latest; when it began stays."""
    late = max(0.0, checkpoint.at - end)
    return replace(checkpoint, at=checkpoint.at - late, duration_s=max(0.0, checkpoint.duration_s - late))


def _ids(attempt: AttemptFacts) -> list[str]:
    """The ids that rows may call its job by."""
    return [name for name in dict.fromkeys((attempt.job, attempt.array)) if name]


def _next_starts(attempts: Sequence[AttemptFacts]) -> dict[int, float]:
    """Until when rows of its job belong to an attempt: shortly before the job starts again."""
    by_job: defaultdict[str, list[AttemptFacts]] = defaultdict(list)
    for attempt in attempts:
        by_job[attempt.job].append(attempt)
    found: dict[int, float] = {}
    for rows in by_job.values():
        until = np.inf
        for attempt in sorted(rows, key=_started, reverse=True):
            found[id(attempt)] = float(until)
            if attempt.start is not None:
                until = attempt.start - EARLY_S
    return found


def _started(attempt: AttemptFacts) -> float:
    return np.inf if attempt.start is None else attempt.start
