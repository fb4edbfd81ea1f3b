"""A store's facts over a span of time as one History: what the accounting takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from sqlmodel import Session, col, or_, select

from backend.clock import unix
from backend.facts import CheckpointFacts, VersionFacts
from backend.incidents import lifecycle
from backend.model.actions import Exclusion
from backend.model.events import Event
from backend.model.incidents import Incident
from backend.model.past import Version
from backend.reliability.history import ExclusionSpan, History, StepTable
from backend.store.accounting import attempts_since, verdicts_since
from backend.store.cluster import node_facts
from backend.store.incidents import real
from backend.store.outages import outages
from detectors.joblog.outcome import RESEMBLANCE
from detectors.joblog.rules import UNKNOWN

#: Steps, saves and loads from ``start`` to ``end`` (unix s).
Trained = Callable[[float, float], tuple[StepTable, list[CheckpointFacts]]]


def nothing_trained(start: float, end: float) -> tuple[StepTable, list[CheckpointFacts]]:
    """Where nobody keeps steps: the accounting alone tells, in bounds."""
    return StepTable.of(()), []


@dataclass(frozen=True, slots=True)
class Gathered:
    """left_out: attempts beyond the most that are counted."""

    history: History
    left_out: int


def gather(
    session: Session, cluster: str, since: datetime, until: datetime, most: int, trained: Trained = nothing_trained
) -> Gathered:
    """The facts from ``since`` to ``until``; attempts whole that ran, waited or ended in it."""
    attempts, left_out = attempts_since(session, cluster, since, most)
    steps, checkpoints = trained(unix(since), unix(until))
    history = History(
        start=unix(since),
        end=unix(until),
        attempts=attempts,
        steps=steps,
        checkpoints=checkpoints,
        outages=outages(session, cluster, since, until),
        incidents=tuple(lifecycle.facts_of(row) for row in _incidents(session, cluster, since)),
        nodes=node_facts(session, cluster, gpus_of=""),
        classes=classes_of(verdicts_since(session, cluster, since)),
        versions=_versions(session, cluster),
        excluded=_excluded(session, cluster, since, until),
    )
    return Gathered(history, left_out)


def narrowed(whole: History, start: float) -> History:
    """The same facts from ``start`` on (unix s), as if nothing was known of before."""
    steps = whole.table()
    kept = (steps.at >= start).nonzero()[0]
    return replace(
        whole,
        start=start,
        attempts=[a for a in whole.attempts if a.end is None or a.end >= start],
        steps=steps.take(kept) if len(steps) else steps,
        checkpoints=[c for c in whole.checkpoints if c.at >= start],
        outages=[o for o in whole.outages if o.end is None or o.end >= start],
        incidents=[i for i in whole.incidents if i.closed_at is None or i.closed_at >= start],
    )


def classes_of(verdicts: Iterable[Event]) -> dict[tuple[str, int], str]:
    """The log class of each attempt, the last word on it; what was only guessed by resemblance counts as unknown."""
    found = {}
    for event in verdicts:
        restart = str(event.attrs.get("restart", ""))
        if restart.isdecimal():
            guessed = event.attrs.get("by") == RESEMBLANCE
            found[event.job, int(restart)] = UNKNOWN if guessed else event.code
    return found


def _incidents(session: Session, cluster: str, since: datetime) -> list[Incident]:
    lasted = or_(col(Incident.closed_at) >= since, col(Incident.closed_at).is_(None))
    return list(session.exec(real(cluster).where(lasted).order_by(col(Incident.id))))


def _versions(session: Session, cluster: str) -> list[VersionFacts]:
    """What nodes run now, and since when."""
    query = select(Version).where(col(Version.cluster) == cluster, col(Version.job) == "", col(Version.device) == "")
    return [
        VersionFacts(row.node, row.item, row.value, unix(row.since), source=row.source) for row in session.exec(query)
    ]


def _excluded(session: Session, cluster: str, since: datetime, until: datetime) -> list[ExclusionSpan]:
    """Exclusions that bind, made by people or by us."""
    ended = or_(col(Exclusion.lifted_at) >= since, col(Exclusion.lifted_at).is_(None))
    query = select(Exclusion).where(col(Exclusion.cluster) == cluster, ended, col(Exclusion.until) >= since)
    rows = session.exec(query.where(col(Exclusion.origin) != "proposed").order_by(col(Exclusion.id)))
    found = []
    for row in rows:
        end = min(row.until, row.lifted_at or row.until)
        found.append(
            ExclusionSpan(row.node, unix(row.created_at), unix(end) if end <= until else None, row.owner, row.reason)
        )
    return found
