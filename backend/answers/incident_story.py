"""One incident with everything its page tells: findings, events, decision, orders, timeline, what came before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func
from sqlmodel import Session, col, select

from backend.answers.what_changed import Suspect, what_changed
from backend.model.actions import Decision, Order
from backend.model.cluster import Node
from backend.model.events import Event, Finding
from backend.model.incidents import Entry, Incident
from backend.model.work import Attempt
from backend.store import actions, cluster, events, findings, incidents

#: How far back "seen before" looks.
ALIKE_DAYS = 90
#: Events of the node that may belong to the story: this long before it opened, at most so many.
BEFORE = timedelta(minutes=30)
MOST_EVENTS = 200


@dataclass(frozen=True, slots=True)
class Alike:
    """Incidents of the same kind in ALIKE_DAYS: how many, on this node, closed, and their median length in s."""

    total: int
    here: int
    closed: int
    median_s: float | None


@dataclass(frozen=True, slots=True)
class IncidentStory:
    incident: Incident
    findings: Sequence[Finding]
    events: Sequence[Event]
    decision: Decision | None
    orders: Sequence[Order]
    timeline: Sequence[Entry]
    node: Node | None
    attempt: Attempt | None
    alike: Alike
    beside: tuple[str, ...] = ()  #: nodes that its job had when it opened
    changed: tuple[Suspect, ...] = ()  #: what changed before it, likeliest to matter first

    @property
    def end(self) -> datetime | None:
        return self.incident.closed_at


def incident_story(session: Session, name: str, incident_id: int, now: datetime) -> IncidentStory | None:
    """None where the cluster has no such incident."""
    row = incidents.by_id(session, name, incident_id)
    if row is None:
        return None
    levels = findings.of_incident(session, incident_id)
    beside = _beside(session, row)
    return IncidentStory(
        incident=row,
        findings=levels,
        events=_events(session, row, levels, now),
        decision=actions.told_decision(session, row),
        orders=actions.orders_of(session, incident_id),
        timeline=incidents.timeline(session, incident_id),
        node=session.get(Node, (name, row.node)) if row.node else None,
        attempt=_attempt(session, row),
        alike=_alike(session, row, now),
        beside=beside,
        changed=what_changed(session, row, beside, _size(session, name)),
    )


def changed_before(session: Session, row: Incident) -> tuple[Suspect, ...]:
    """What changed before one incident, likeliest to matter first."""
    return what_changed(session, row, _beside(session, row), _size(session, row.cluster))


def _size(session: Session, name: str) -> int:
    query = select(func.count()).select_from(Node).where(col(Node.cluster) == name, col(Node.retired_at).is_(None))
    return int(session.exec(query).one())


def _attempt(session: Session, row: Incident) -> Attempt | None:
    """The attempt of its job that ran when it opened; else the last that had begun, else the last."""
    found = cluster.attempts(session, row.cluster, [row.job]) if row.job else []
    begun = [one for one in found if one.start is not None and one.start <= row.opened_at]
    return begun[-1] if begun else found[-1] if found else None


def _beside(session: Session, row: Incident) -> tuple[str, ...]:
    if not row.job:
        return ()
    spans, at = cluster.allocations(session, row.cluster, [row.job]), row.opened_at
    return tuple(sorted({one.node for one in spans if one.start <= at and (one.end is None or one.end > at)}))


def _events(session: Session, row: Incident, levels: Iterable[Finding], now: datetime) -> list[Event]:
    """Events that evidence names, and the node's own around the same time, oldest first."""
    ids = {int(ref[6:]) for level in levels for ref in refs(level) if ref.startswith("event:") and ref[6:].isdecimal()}
    found = {event.id: event for event in events.events_by_id(session, row.cluster, sorted(ids))}
    start, end = row.opened_at - BEFORE, row.closed_at or now
    for event in events.events_of_node(session, row.cluster, row.node, MOST_EVENTS) if row.node else ():
        if start <= event.at <= end:
            found.setdefault(event.id, event)
    return sorted(found.values(), key=lambda event: (event.at, event.id or 0))


def refs(level: Finding) -> list[str]:
    return [str(piece.get("ref", "")) for piece in level.evidence]


def _alike(session: Session, row: Incident, now: datetime) -> Alike:
    since = now - timedelta(days=ALIKE_DAYS)
    others = session.exec(
        select(Incident.node, Incident.opened_at, Incident.closed_at).where(
            col(Incident.cluster) == row.cluster,
            col(Incident.kind) == row.kind,
            col(Incident.id) != row.id,
            col(Incident.drill) == "",
            col(Incident.opened_at) >= since,
        )
    ).all()
    lengths = sorted((closed - opened).total_seconds() for _, opened, closed in others if closed is not None)
    here = sum(node == row.node for node, _, _ in others) if row.node else 0
    return Alike(len(others), here, len(lengths), lengths[len(lengths) // 2] if lengths else None)
