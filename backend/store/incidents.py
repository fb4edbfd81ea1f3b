"""Incidents and their timelines: every query about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, func, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from backend.model.base import LARGEST_ID
from backend.model.incidents import Entry, Incident

LIVE = ("open", "acknowledged", "mitigated")


def real(cluster: str) -> SelectOfScalar[Incident]:
    """Incidents of what happened: without drills, of which nobody but the decide loop, its orders and the pages of
    incidents may hear. Whoever tells an owner, a vendor or a report of incidents begins here."""
    return select(Incident).where(col(Incident.cluster) == cluster, col(Incident.drill) == "")


def live_real(session: Session, cluster: str) -> Sequence[Incident]:
    """Real incidents that are not resolved, oldest first."""
    return session.exec(real(cluster).where(col(Incident.state).in_(LIVE)).order_by(col(Incident.id))).all()


def live(session: Session, cluster: str) -> Sequence[Incident]:
    """Incidents that are not resolved, oldest first."""
    query = select(Incident).where(col(Incident.cluster) == cluster, col(Incident.state).in_(LIVE))
    return session.exec(query.order_by(col(Incident.id))).all()


def cleared(session: Session, cluster: str, hold_s: float) -> Sequence[Incident]:
    """Live incidents that have been seen and clear for ``hold_s``, oldest first."""
    query = select(Incident).where(col(Incident.cluster) == cluster, col(Incident.state).in_(LIVE))
    query = query.where(col(Incident.blind).is_(False), col(Incident.clear_s) >= hold_s)
    return session.exec(query.order_by(col(Incident.id))).all()


def live_on(session: Session, cluster: str, node: str) -> Sequence[Incident]:
    """Live incidents of one node, oldest first."""
    query = select(Incident).where(col(Incident.cluster) == cluster, col(Incident.state).in_(LIVE))
    return session.exec(query.where(col(Incident.node) == node).order_by(col(Incident.id))).all()


def foldable(session: Session, cluster: str, closed_after: datetime) -> Sequence[Incident]:
    """Live incidents and those closed since ``closed_after``: where a late victim may still belong."""
    recent = or_(col(Incident.state).in_(LIVE), col(Incident.closed_at) >= closed_after)
    return session.exec(real(cluster).where(recent).order_by(col(Incident.id))).all()


def struck(session: Session, cluster: str, since: datetime) -> frozenset[str]:
    """Nodes with a live incident that opened since then and is loud enough to act on."""
    query = select(Incident.node).where(
        col(Incident.cluster) == cluster,
        col(Incident.state).in_(LIVE),
        col(Incident.opened_at) >= since,
        col(Incident.node) != "",
        col(Incident.severity).in_(("high", "critical")),
        col(Incident.drill) == "",
    )
    return frozenset(session.exec(query.distinct()).all())


def undecided(session: Session, cluster: str) -> Sequence[Incident]:
    """Live incidents whose newest revision no decision has looked at, oldest first."""
    query = select(Incident).where(
        col(Incident.cluster) == cluster,
        col(Incident.state).in_(LIVE),
        col(Incident.decided_revision) < col(Incident.revision),
    )
    return session.exec(query.order_by(col(Incident.id))).all()


def by_id(session: Session, cluster: str, incident_id: int) -> Incident | None:
    row = session.get(Incident, incident_id) if incident_id <= LARGEST_ID else None
    return row if row is not None and row.cluster == cluster else None


def page(
    session: Session, cluster: str, states: Sequence[str], limit: int, before: int | None = None
) -> Sequence[Incident]:
    """Newest first; ``before`` is the id to go on from; no states = all."""
    query = select(Incident).where(col(Incident.cluster) == cluster)
    if states:
        query = query.where(col(Incident.state).in_(states))
    if before is not None:
        query = query.where(col(Incident.id) < before)
    return session.exec(query.order_by(col(Incident.id).desc()).limit(limit)).all()


def of_run(
    session: Session, cluster: str, run: str, jobs: Sequence[str], since: datetime, most: int
) -> Sequence[Incident]:
    """The newest incidents of a run, by its name or those of its jobs, that opened since; oldest first."""
    its = or_(col(Incident.run) == run, col(Incident.job).in_(list(jobs)[-500:]))
    query = select(Incident).where(Incident.cluster == cluster, its, col(Incident.opened_at) >= since)
    return list(reversed(session.exec(query.order_by(col(Incident.opened_at).desc()).limit(most)).all()))


def count_live(session: Session, cluster: str) -> int:
    query = select(func.count()).select_from(Incident)
    return session.exec(query.where(col(Incident.cluster) == cluster, col(Incident.state).in_(LIVE))).one()


def tell(
    session: Session, incident: Incident, at: datetime, what: str, text: str, actor: str = "", **attrs: Any
) -> None:
    """One line on the incident's timeline."""
    assert incident.id is not None
    session.add(
        Entry(cluster=incident.cluster, incident_id=incident.id, at=at, what=what, actor=actor, text=text, attrs=attrs)
    )


def timeline(session: Session, incident_id: int) -> Sequence[Entry]:
    return session.exec(select(Entry).where(col(Entry.incident_id) == incident_id).order_by(col(Entry.id))).all()


def entries_after(session: Session, entry_id: int, limit: int = 500) -> Sequence[Entry]:
    """Entries of all clusters in order of writing: the feed of what changed."""
    return session.exec(select(Entry).where(col(Entry.id) > entry_id).order_by(col(Entry.id)).limit(limit)).all()


def entries_by_id(session: Session, ids: Sequence[int]) -> Sequence[Entry]:
    return session.exec(select(Entry).where(col(Entry.id).in_(ids)).order_by(col(Entry.id))).all()


def newest_entry(session: Session) -> int:
    return session.exec(select(func.max(col(Entry.id)))).one() or 0
