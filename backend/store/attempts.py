"""Attempts of jobs and the spans in which they held nodes, kept in step with what schedulers say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlmodel import Session

from backend.clock import unix, utc
from backend.facts import AttemptFacts
from backend.model.cluster import Allocation, Attempt
from backend.store import cluster as rows

#: States in which a job waits and holds no nodes (``man squeue``, JOB STATE CODES).
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
#: States in which it is over.
OVER = frozenset(
    ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE")
    + ("OUT_OF_MEMORY", "LAUNCH_FAILED", "REVOKED", "RECONFIG_FAIL")
)

#: An idle node is still held by a job that began this recently: nodes and jobs are two readings.
SETTLE_S = 60.0
#: Attempts that are remembered as written, so that a poll writes only what changed.
REMEMBERED = 50_000

Spans = Mapping[tuple[str, int], list[Allocation]]


def holds(attempt: AttemptFacts) -> bool:
    """Whether it holds nodes now, as far as it says itself."""
    running = attempt.state not in WAITING and attempt.state not in OVER
    return running and attempt.end is None and attempt.start is not None and bool(attempt.nodes)


def settled(attempt: AttemptFacts, now: float) -> AttemptFacts:
    """The same attempt with an end only where it is over: schedulers also print when a job will have to end."""
    nodes = tuple(sorted(set(attempt.nodes)))
    end = attempt.end if attempt.state in WAITING | OVER else None
    if attempt.state in OVER:
        end = now if end is None else min(end, now)
    return replace(attempt, nodes=nodes, end=end)


class AttemptsNow:
    """Which attempt of each job holds nodes now, and what was last written of those that were told lately."""

    def __init__(self) -> None:
        self.held: dict[str, AttemptFacts] = {}
        self._written: dict[tuple[str, int], AttemptFacts] = {}

    def restore(self, running: Iterable[AttemptFacts]) -> None:
        """Begin with what the store holds."""
        self.held = {attempt.job: attempt for attempt in running}
        self._written = {(a.job, a.restart): a for a in self.held.values()}

    def follow(self, told: Sequence[AttemptFacts], idle: Collection[str], now: float) -> list[AttemptFacts]:
        """Attempts that are to be written: new, changed, or seen to have left a node that its scheduler calls idle."""
        heard = [settled(attempt, now) for attempt in told]
        heard += self._left(idle, {attempt.job for attempt in told}, now)
        changed = [a for a in heard if self._written.get((a.job, a.restart)) != a]
        for attempt in changed:
            self._written[(attempt.job, attempt.restart)] = attempt
            held = self.held.get(attempt.job)
            if held is not None and attempt.restart < held.restart:
                continue
            if holds(attempt):
                self.held[attempt.job] = attempt
            else:
                self.held.pop(attempt.job, None)
        while len(self._written) > REMEMBERED:
            del self._written[next(iter(self._written))]
        return changed

    def distrust(self) -> None:
        """What was written was rolled back: everything is to be written again when it is told again."""
        self._written.clear()

    def _left(self, idle: Collection[str], told: Collection[str], now: float) -> list[AttemptFacts]:
        """Jobs whose end nobody told, on nodes that are idle: how they ended is not known."""
        found: list[AttemptFacts] = []
        for attempt in self.held.values() if idle else ():
            left = tuple(name for name in attempt.nodes if name not in idle)
            old = attempt.start is not None and attempt.start < now - SETTLE_S
            if old and attempt.job not in told and left != attempt.nodes:
                found.append(replace(attempt, nodes=left) if left else replace(attempt, state="UNKNOWN", end=now))
        return found


def record_attempts(session: Session, cluster: str, told: Sequence[AttemptFacts], now: datetime) -> None:
    """Write attempts and move their spans along.

    A higher restart ends the lower ones of its job. An attempt that is told again only moves what changed; one that is
    told when it is long over gets its spans too.
    """
    if not told:
        return
    jobs = {attempt.job for attempt in told}
    known = {(row.job, row.restart): row for row in rows.attempts(session, cluster, jobs)}
    spans: defaultdict[tuple[str, int], list[Allocation]] = defaultdict(list)
    for span in rows.allocations(session, cluster, jobs):
        spans[(span.job, span.restart)].append(span)
    latest = {(a.job, a.restart): a for a in told}
    wanted = sorted(_with_requeued(latest, known, unix(now)), key=lambda a: (a.job, a.restart))
    rows.put_attempts(session, [_row(cluster, a, known.get((a.job, a.restart))) for a in wanted])
    _move_spans(session, cluster, wanted, spans, now)


def _with_requeued(
    told: Mapping[tuple[str, int], AttemptFacts], known: Mapping[tuple[str, int], Attempt], now: float
) -> Iterable[AttemptFacts]:
    """What was told, and the earlier attempts that it ended: a scheduler just shows the next one in their place."""
    newest = {job: restart for job, restart in sorted({*told, *known})}
    for (job, restart), attempt in told.items():
        yield _requeued(attempt, told.get((job, newest[job])), now) if restart < newest[job] else attempt
    for (job, restart), row in known.items():
        if (job, restart) in told or restart >= newest[job]:
            continue
        earlier = rows.attempt_facts(row)
        if earlier.state not in OVER and earlier.end is None:
            yield _requeued(earlier, told.get((job, newest[job])), now)


def _requeued(earlier: AttemptFacts, later: AttemptFacts | None, now: float) -> AttemptFacts:
    """An attempt that gave way to ``later``; it ended when that was submitted, began, or at the latest now."""
    if earlier.state in OVER or earlier.end is not None:
        return earlier
    after = earlier.start or earlier.submit or 0.0
    marks = [at for at in (later.submit, later.start) if at is not None and at >= after] if later else []
    return replace(earlier, state="REQUEUED", end=min([now, *marks]))


def _row(cluster: str, attempt: AttemptFacts, known: Attempt | None) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "job": attempt.job,
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
        "attrs": dict(known.attrs) if known is not None else {},
    }


def _move_spans(session: Session, cluster: str, told: Iterable[AttemptFacts], spans: Spans, now: datetime) -> None:
    added: list[dict[str, Any]] = []
    ended: defaultdict[datetime, list[int]] = defaultdict(list)
    for attempt in told:
        have = spans.get((attempt.job, attempt.restart), [])
        open_now = [span for span in have if span.end is None]
        at = _at(attempt.end) or now
        if holds(attempt):
            gone = [span for span in open_now if span.node not in attempt.nodes]
            new = set(attempt.nodes) - {span.node for span in open_now}
        else:
            gone = open_now
            over = attempt.start is not None and attempt.end is not None
            new = set(attempt.nodes) - {span.node for span in have} if over else set()
        for span in gone:
            ended[max(at, span.start)].append(span.id or 0)
        start = _at(attempt.start)
        added += [
            {
                "cluster": cluster,
                "job": attempt.job,
                "restart": attempt.restart,
                "node": node,
                "start": start,
                "end": max(at, start) if attempt.end is not None and start is not None else None,
            }
            for node in sorted(new)
        ]
    for end, ids in ended.items():
        rows.end_allocations(session, ids, end)
    rows.add_allocations(session, added)


def _at(seconds: float | None) -> datetime | None:
    return utc(seconds) if seconds is not None else None
