"""Attempts of jobs and the spans in which they held nodes, kept in step with what schedulers say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from backend.clock import unix, utc
from backend.facts import AttemptFacts
from backend.model.work import Allocation, Attempt
from backend.store import allocations as spans_of
from backend.store import cluster as rows
from backend.store.merging import OVER, WAITING, Key, fold, key_of

#: An idle node is still held by a job that began this recently: nodes and jobs are two readings.
SETTLE_S = 60.0
#: Records that are remembered as told, so that a poll writes only what changed.
REMEMBERED = 50_000


def holds(attempt: AttemptFacts) -> bool:
    """Whether it holds nodes now, as far as it says itself."""
    running = attempt.state not in WAITING and attempt.state not in OVER
    return running and attempt.end is None and attempt.start is not None and bool(attempt.nodes)


class AttemptsNow:
    """Which attempt of each job holds nodes now, and what each source last told of those that were told lately."""

    def __init__(self) -> None:
        self.held: dict[str, AttemptFacts] = {}
        self._told: dict[tuple[str, str, int, str], AttemptFacts] = {}

    def restore(self, running: Iterable[AttemptFacts]) -> None:
        """Begin with what the store holds."""
        self.held = {attempt.job: attempt for attempt in running}
        self._told = {}

    def news(self, told: Sequence[AttemptFacts], idle: Collection[str], now: float) -> list[AttemptFacts]:
        """Records that are new or differ from what their source told last, and jobs that are seen to have left a node
        that its scheduler calls idle."""
        news = [one for one in told if self._told.get(_record(one)) != one]
        self._told |= {_record(one): one for one in news}
        while len(self._told) > REMEMBERED:
            del self._told[next(iter(self._told))]
        left = self._left(idle, {one.job for one in told}, now)
        for one in left:  # should its scheduler go on telling that it runs, then it does
            self._forget(one.job)
        return news + left

    def take(self, written: Iterable[AttemptFacts]) -> None:
        """Follow what was written."""
        for attempt in written:
            held = self.held.get(attempt.job)
            if held is not None and (attempt.life, attempt.restart) < (held.life, held.restart):
                continue
            if holds(attempt):
                self.held[attempt.job] = attempt
            else:
                self.held.pop(attempt.job, None)

    def distrust(self) -> None:
        """What was written was rolled back: everything is to be written again when it is told again."""
        self._told.clear()

    def _forget(self, job: str) -> None:
        for key in [key for key in self._told if key[1] == job]:
            del self._told[key]

    def _left(self, idle: Collection[str], told: Collection[str], now: float) -> list[AttemptFacts]:
        """Jobs whose end nobody told, on nodes that are idle: how they ended is not known."""
        found: list[AttemptFacts] = []
        for attempt in self.held.values() if idle else ():
            left = tuple(name for name in attempt.nodes if name not in idle)
            old = attempt.start is not None and attempt.start < now - SETTLE_S
            if old and attempt.job not in told and left != attempt.nodes:
                found.append(replace(attempt, nodes=left) if left else replace(attempt, state="UNKNOWN", end=now))
        return found


def _record(one: AttemptFacts) -> tuple[str, str, int, str]:
    return (one.source, one.job, one.restart, one.unit if one.restart >= 0 else f"{one.unit} {one.start}")


def record_attempts(session: Session, cluster: str, told: Sequence[AttemptFacts], now: datetime) -> list[AttemptFacts]:
    """Write attempts and move their spans along; what is known of each that was told or ended by it.

    A later attempt of a job ends the earlier ones. One that is told again only moves what changed; one that is told
    when it is long over gets its spans too.
    """
    if not told:
        return []
    book = _Book(session, cluster, {attempt.job for attempt in told})
    written = fold(book.before.values(), told, unix(now))
    changed = [one for one in written if one != book.before.get(key_of(one))]
    rows.put_attempts(session, [_row(cluster, a, book.rows.get(key_of(a))) for a in changed])
    _move_spans(session, cluster, changed, book, now)
    return written


class _Book:
    """All attempts of some jobs as they were: rows, facts and spans."""

    def __init__(self, session: Session, cluster: str, jobs: Collection[str]) -> None:
        self.spans: defaultdict[Key, list[Allocation]] = defaultdict(list)
        for span in rows.allocations(session, cluster, jobs):
            self.spans[key_of(span)].append(span)
        self.rows = {key_of(row): row for row in rows.attempts(session, cluster, jobs)}
        self.before = {key: rows.attempt_facts(row, _latest(self.spans[key])) for key, row in self.rows.items()}


def _latest(spans: Sequence[Allocation]) -> list[Allocation]:
    """The open spans; where none is, all."""
    return [span for span in spans if span.end is None] or list(spans)


def _row(cluster: str, attempt: AttemptFacts, known: Attempt | None) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "job": attempt.job,
        "life": attempt.life,
        "restart": attempt.restart,
        "run": attempt.run,
        "user": attempt.user,
        "state": attempt.state,
        "submit": _at(attempt.submit),
        "eligible": _at(attempt.eligible),
        "start": _at(attempt.start),
        "end": _at(attempt.end),
        "gpus_per_node": attempt.gpus_per_node,
        "excluded": list(attempt.excluded),
        "roles": [list(pair) for pair in attempt.roles],
        "outputs": list(attempt.outputs),
        "attrs": dict(known.attrs) if known is not None else {},
    } | {name: getattr(attempt, name) for name in rows.PLAIN}


def _move_spans(session: Session, cluster: str, changed: Iterable[AttemptFacts], book: _Book, now: datetime) -> None:
    added: list[dict[str, Any]] = []
    moved: dict[int, tuple[datetime, datetime | None]] = {}
    gpus: dict[int, Sequence[int]] = {}
    for attempt in changed:
        have, before = book.spans.get(key_of(attempt), []), book.before.get(key_of(attempt))
        moved |= _ended(attempt, have, now) | _retimed(attempt, before, have)
        held = dict(attempt.gpus)
        gpus |= {s.id or 0: held[s.node] for s in have if held.get(s.node) and tuple(s.gpus) != held[s.node]}
        added += _added(cluster, attempt, have, now)
    spans_of.move_allocations(session, moved)
    spans_of.set_gpus(session, gpus)
    spans_of.add_allocations(session, added)


def _ended(
    attempt: AttemptFacts, have: Iterable[Allocation], now: datetime
) -> dict[int, tuple[datetime, datetime | None]]:
    """Open spans that are over: all, or those of nodes that the attempt let go."""
    kept = set(attempt.nodes) if holds(attempt) else set()
    at = _at(attempt.end) or now
    return {s.id or 0: (s.start, max(at, s.start)) for s in have if s.end is None and s.node not in kept}


def _retimed(
    attempt: AttemptFacts, before: AttemptFacts | None, have: Iterable[Allocation]
) -> dict[int, tuple[datetime, datetime | None]]:
    """Spans that followed a start or an end which has turned out to be another."""
    if before is None:
        return {}
    start, end = _at(attempt.start), _at(attempt.end)
    old_start, old_end = _at(before.start), _at(before.end)
    found: dict[int, tuple[datetime, datetime | None]] = {}
    for span in have:
        begin = start if start is not None and span.start == old_start else span.start
        last = end if end is not None and span.end is not None and span.end == old_end else span.end
        if (begin, last) != (span.start, span.end) and span.end is not None:
            found[span.id or 0] = (begin, max(begin, last) if last is not None else None)
        elif begin != span.start and end is None:
            found[span.id or 0] = (begin, None)
    return found


def _added(cluster: str, attempt: AttemptFacts, have: Sequence[Allocation], now: datetime) -> Iterator[dict[str, Any]]:
    start = _at(attempt.start)
    if start is None:
        return
    if holds(attempt):
        new = set(attempt.nodes) - {span.node for span in have if span.end is None}
        began = {span.node for span in have}
    elif attempt.end is not None:
        new, began = set(attempt.nodes) - {span.node for span in have}, set()
    else:
        return
    held = dict(attempt.gpus)
    for node in sorted(new):
        begin = max(start, now) if node in began else start  # let go, and taken again
        yield {
            "cluster": cluster,
            "job": attempt.job,
            "life": attempt.life,
            "restart": attempt.restart,
            "node": node,
            "gpus": list(held.get(node, ())),
            "start": begin,
            "end": max(_at(attempt.end) or now, begin) if attempt.end is not None else None,
        }


def _at(seconds: float | None) -> datetime | None:
    return utc(seconds) if seconds is not None else None


def latest(session: Session, cluster: str, job: str) -> Attempt | None:
    """The newest attempt of a job; None where nobody told us of it."""
    query = select(Attempt).where(col(Attempt.cluster) == cluster, col(Attempt.job) == job)
    return session.exec(query.order_by(col(Attempt.life).desc(), col(Attempt.restart).desc()).limit(1)).first()
