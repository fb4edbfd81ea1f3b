"""Slurm's accounting as a source: every attempt once, through restarts, late records and clocks; outages of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from backend.clients.slurm import SlurmError
from backend.clients.slurm_accounting import Told
from backend.facts import AttemptFacts, Batch, OutageFacts
from backend.ingest.base import SourceError
from detectors.model import Need

#: Each question reaches back this far before what is known: slurmctld tells slurmdbd in its own time.
OVERLAP_S = 3600.0
#: Records that were held up longer (slurmdbd was away; slurmctld kept them) are found by looking this far back ...
DEEP_S = 7 * 86_400.0
#: ... this often, and at the first question after a start.
DEEP_EVERY_S = 6 * 3600.0
#: Longest span of one question while catching up, and the shortest that is tried when it takes too long.
CHUNK_S, LEAST_CHUNK_S = 86_400.0, 300.0
#: Running jobs that vanished from the answers and are asked for by number, at most, in one read.
MANY_VANISHED = 1000
#: Rows that could not be read, remembered so that each counts once.
REMEMBERED = 20_000
#: Name of the mark that says how far the accounting was read (unix s).
TO = "to"

Key = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Span:
    """One question: unix s. ``last``: nothing newer is left to ask."""

    start: float
    end: float
    last: bool
    deep: bool = False


class Accounts(Protocol):
    """What keeps the accounting: sacct and sacctmgr, or slurmrestd. Every method raises SlurmError."""

    def kept(self) -> bool:
        """False where this cluster keeps none."""
        ...

    def attempts(self, start: float, end: float) -> Told: ...

    def of_jobs(self, jobs: Sequence[str]) -> Told: ...

    def outages(self, start: float, end: float) -> list[OutageFacts]: ...


class SlurmAccountingSource:
    """Source and Follows over ``sacct -D``. What was committed is a mark; all else it remembers may be forgotten.

    A row is told again until its batch was taken, and whenever it changes; the store knows it by job, number and
    times, so that a row told twice is one attempt. reach_s: how far the first read ever goes back.
    """

    def __init__(self, accounting: Accounts, reach_s: float, name: str = "slurm-accounting") -> None:
        self._accounting = accounting
        self._reach_s = reach_s
        self._name = name
        self._counts: Counter[str] = Counter()
        self._unread: dict[str, None] = {}
        self._chunk_s = CHUNK_S
        self._kept = False
        self.resume({})

    @property
    def name(self) -> str:
        return self._name

    def resume(self, marks: Mapping[str, str]) -> None:
        """Go on from what was committed; what was only told must be told again."""
        self._to = float(marks[TO]) if TO in marks else None
        self._deep_at: float | None = None
        self._told: dict[Key, AttemptFacts] = {}
        self._open: set[str] = set()
        self._out: dict[tuple[str, float], OutageFacts] = {}

    def counts(self) -> Mapping[str, float]:
        return dict(self._counts)

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        """What is new in the accounting up to ``end`` (unix s), in spans of at most a day; ``start`` is not needed.

        Raises SourceError. A cluster that keeps no accounting gives an empty batch.
        """
        try:
            self._kept = self._kept or self._accounting.kept()
            if not self._kept:
                self._counts["no accounting"] = 1
                return Batch(self._name, end, end)
            span = self._span(end)
            told = self._accounting.attempts(span.start, span.end)
            outages = self._accounting.outages(span.start, span.end)
            late = self._late(told) if span.last else Told(())
        except SlurmError as failed:
            self._chunk_s = max(LEAST_CHUNK_S, self._chunk_s / 4)  # it may have been too much at once
            raise SourceError(str(failed), permanent=failed.permanent) from failed
        return self._batch(span, told, late, outages)

    def _span(self, end: float) -> Span:
        """The next question. A clock that stepped back asks again for what it has already seen."""
        to = end - self._reach_s if self._to is None else min(self._to, end)
        if end - to > self._chunk_s:
            return Span(to - OVERLAP_S, to + self._chunk_s, last=False)
        due = self._deep_at is None or abs(end - self._deep_at) >= DEEP_EVERY_S
        deep = due and self._chunk_s >= CHUNK_S  # not while short questions already take too long
        return Span(to - (DEEP_S if deep else OVERLAP_S), end, last=True, deep=deep)

    def _late(self, told: Told) -> Told:
        """Jobs that ran when last seen and are not among those of now: they ended before this span, told late."""
        seen = {attempt.job for attempt in told.attempts}
        gone = sorted(self._open - seen)[:MANY_VANISHED]
        self._open -= set(gone)
        return self._accounting.of_jobs(gone) if gone else Told(())

    def _batch(self, span: Span, told: Told, late: Told, outages: Iterable[OutageFacts]) -> Batch:
        fresh = [a for a in (*told.attempts, *late.attempts) if self._told.get(key_of(a)) != a]
        news = [one for one in outages if self._out.get((one.node, one.start)) != one]
        self._open |= {a.job for a in fresh if a.end is None}
        self._open -= {a.job for a in fresh if a.end is not None} - {a.job for a in fresh if a.end is None}
        self._told |= {key_of(a): a for a in fresh}
        self._out |= {(one.node, one.start): one for one in news}
        unread = [why for why in (*told.unread, *late.unread) if why not in self._unread]
        self._unread |= dict.fromkeys(unread)
        for memory in (self._told, self._out, self._unread):
            _trim(memory)
        self._to = max(span.end, self._to or 0.0) if span.last else span.end
        self._deep_at = span.end if span.deep else self._deep_at
        self._chunk_s = min(CHUNK_S, self._chunk_s * 2)
        self._counts.update(questions=1, attempts=len(fresh), outages=len(news), unread=len(unread))
        return Batch(
            self._name,
            span.start,
            span.end,
            attempts=tuple(fresh),
            dropped={"rows of sacct that could not be read": len(unread)} if unread else {},
            outages=tuple(news),
            marks={TO: f"{self._to:.3f}"},
            more=not span.last,
        )


def key_of(attempt: AttemptFacts) -> Key:
    """What a row keeps while it changes: slurmdbd has one row a job and time of submission."""
    return attempt.job, attempt.restart, attempt.unit or f"{attempt.submit}"


def _trim(memory: dict[Key, AttemptFacts] | dict[tuple[str, float], OutageFacts] | dict[str, None]) -> None:
    """Forget the oldest: it is told again at worst, and the store knows it."""
    while len(memory) > REMEMBERED:
        del memory[next(iter(memory))]  # type: ignore[arg-type]  # the key is its own
