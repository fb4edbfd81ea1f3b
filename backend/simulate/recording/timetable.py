"""Who runs where and when: attempts begun, cut short, requeued and ended in the order in which it happens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from backend.simulate.recording.plant import Plant
from backend.simulate.recording.work import Attempt, Phase, Run, segments

#: A requeued job becomes eligible again after this long; a person who resubmits by hand takes longer.
REQUEUE_S = (60.0, 125.0)
RESUBMIT_S = (300.0, 1500.0)
CHUNK_S = (9_000.0, 26_000.0)


@dataclass(slots=True)
class Timetable:
    """``free_at``: from when each node takes new work; ``attempts`` in the order they were begun."""

    site: Plant
    runs: tuple[Run, ...]
    start: float
    end: float
    dice: random.Random
    next_job: int
    free_at: list[float]
    attempts: list[Attempt] = field(default_factory=list)
    newest: dict[str, Attempt] = field(default_factory=dict)

    def job_number(self) -> str:
        self.next_job += self.dice.randrange(1, 9)
        return str(self.next_job)

    def advance(self, now: float) -> None:
        """Bring attempts that end by themselves before ``now`` to their end, and begin the next ones."""
        for run in self.runs:
            newest = self.newest[run.name]
            while newest.end is None and newest.planned_end <= now:
                self.finish(newest, newest.planned_end, "COMPLETED")
                wait = self.dice.uniform(5.0, 40.0)
                newest = self.begin(run, self.job_number(), 0, newest.planned_end - 3600.0, newest.planned_end + wait)

    def begin(
        self, run: Run, job: str, restart: int, submit: float, eligible: float, excluded: Sequence[str] = ()
    ) -> Attempt:
        """The next attempt of a run on free nodes of its maker, fewer where too few are free, waiting where none is."""
        start = eligible + self.dice.uniform(2.0, 8.0)
        able = [n.row for n in self.site.nodes if n.vendor == run.vendor and n.name not in excluded]
        able = able or [n.row for n in self.site.nodes if n.vendor == run.vendor]
        earliest = min((self.free_at[row] for row in able), default=self.end)
        start = max(start, min(earliest, self.end) + 5.0)
        free = [row for row in able if self.free_at[row] <= start]
        before = self.newest.get(run.name)
        home = set(before.nodes) if before is not None else set()
        chosen = tuple(sorted(sorted(free, key=lambda row: (row not in home, row))[: run.need]))
        made = Attempt(
            run, job, restart, chosen, submit, max(submit, eligible), start, start + self.dice.uniform(*CHUNK_S),
            excluded=tuple(excluded),
        )  # fmt: skip
        for row in chosen:
            self.free_at[row] = float("inf")
        self.attempts.append(made)
        self.newest[run.name] = made
        return made

    def finish(self, attempt: Attempt, end: float, state: str, code: str = "0:0", reason: str = "None") -> None:
        attempt.end, attempt.state, attempt.exit, attempt.reason = end, state, code, reason
        for row in attempt.nodes:
            if self.free_at[row] == float("inf"):
                self.free_at[row] = end

    def hold(self, node: int, until: float) -> None:
        """Keep a node from new work until then; one that has work keeps it."""
        self.free_at[node] = max(until, self.free_at[node])

    def requeue(self, attempt: Attempt, excluded: Sequence[str] = ()) -> Attempt:
        """The same job id again, by the scheduler itself."""
        assert attempt.end is not None
        eligible = attempt.end + self.dice.uniform(*REQUEUE_S)
        out = tuple(dict.fromkeys((*attempt.excluded, *excluded)))
        return self.begin(attempt.run, attempt.job, attempt.restart + 1, attempt.end + 1.0, eligible, out)

    def resubmit(self, attempt: Attempt, excluded: Sequence[str] = (), wait_s: float | None = None) -> Attempt:
        """A new job id, by a person."""
        assert attempt.end is not None
        wait = self.dice.uniform(*RESUBMIT_S) if wait_s is None else wait_s
        out = tuple(dict.fromkeys((*attempt.excluded, *excluded)))
        return self.begin(attempt.run, self.job_number(), 0, attempt.end + wait, attempt.end + wait, out)

    def stepping(self, now: float, for_s: float = 60.0) -> list[Attempt]:
        """Attempts that step at ``now`` and go on for a while: what trouble may strike."""
        found = []
        for run in self.runs:
            newest = self.newest[run.name]
            if newest.start > now or newest.stop <= now + for_s or newest.planned_end <= now + for_s:
                continue
            phases = {
                phase for a, b, phase in segments(newest, now + for_s + 1.0).each() if a < now + for_s and b > now
            }
            if phases == {Phase.STEPS}:
                found.append(newest)
        return found

    def spare(self, now: float) -> list[int]:
        return [row for row, free_at in enumerate(self.free_at) if free_at <= now]

    def at_node(self, node: int, now: float) -> Attempt | None:
        for attempt in reversed(self.attempts):
            if node in attempt.nodes and attempt.start <= now and (attempt.end is None or now < attempt.end):
                return attempt
        return None


def timetable(site: Plant, runs: tuple[Run, ...], start: float, end: float) -> Timetable:
    """All runs but the last already under way at ``start``; the last begins soon after it."""
    dice = random.Random(f"timetable/{site.seed}")
    made = Timetable(site, runs, start, end, dice, dice.randrange(40_000, 900_000), [float("-inf")] * len(site.nodes))
    for run in runs:
        late = run.row == len(runs) - 1 and len(runs) > 1
        eligible = start + dice.uniform(240.0, 420.0) if late else start - dice.uniform(900.0, 5400.0)
        begun = made.begin(run, made.job_number(), 0, eligible - dice.uniform(5.0, 900.0), eligible)
        begun.planned_end = max(begun.planned_end, start + dice.uniform(3600.0, 15_000.0))
    return made
