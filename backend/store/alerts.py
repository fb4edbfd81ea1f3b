"""Queries of grouping: which group an incident is in, which are due, what is silenced."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from sqlalchemy import func
from sqlmodel import Session, col, or_, select

from backend.model.actions import Decision
from backend.model.alerts import AlertGroup, AlertMember, Silence
from backend.model.incidents import Incident
from backend.store.incidents import LIVE, real
from backend.store.upsert import portions

#: Kinds of entities that may speak for what hangs on them.
PLACES = ("switch", "rack")


def open_group(session: Session, cluster: str, route: str, key: str, joined_after: datetime) -> AlertGroup | None:
    """The newest open group of a key that is not told yet, or that somebody joined after ``joined_after``."""
    mine = (
        col(AlertGroup.cluster) == cluster,
        col(AlertGroup.route) == route,
        col(AlertGroup.key) == key,
        col(AlertGroup.state) == "open",
        or_(col(AlertGroup.told_at).is_(None), col(AlertGroup.joined_at) >= joined_after),
    )
    return session.exec(select(AlertGroup).where(*mine).order_by(col(AlertGroup.id).desc()).limit(1)).first()


def groups_of(session: Session, incident_id: int) -> Sequence[tuple[AlertGroup, AlertMember]]:
    """Every group that an incident is or was in, oldest first."""
    joined = col(AlertMember.group_id) == col(AlertGroup.id)
    query = select(AlertGroup, AlertMember).where(joined, col(AlertMember.incident_id) == incident_id)
    return session.exec(query.order_by(col(AlertGroup.id))).all()


def in_groups(session: Session, incident_ids: Sequence[int]) -> set[int]:
    """Which of these incidents are or were in a group."""
    found: set[int] = set()
    for some in portions(incident_ids):
        found.update(session.exec(select(AlertMember.incident_id).where(col(AlertMember.incident_id).in_(some))).all())
    return found


def members_of(session: Session, group_id: int) -> Sequence[tuple[AlertMember, Incident]]:
    """Who is in a group, in the order in which they joined."""
    joined = col(AlertMember.incident_id) == col(Incident.id)
    query = select(AlertMember, Incident).where(joined, col(AlertMember.group_id) == group_id)
    return session.exec(query.order_by(col(Incident.id))).all()


def due_groups(session: Session, cluster: str, now: datetime, limit: int = 50) -> Sequence[int]:
    """Open groups whose moment has come, longest due first."""
    due = (
        col(AlertGroup.cluster) == cluster,
        col(AlertGroup.state) == "open",
        col(AlertGroup.due_at).is_not(None),
        col(AlertGroup.due_at) <= now,
    )
    found = session.exec(select(AlertGroup.id).where(*due).order_by(col(AlertGroup.due_at)).limit(limit)).all()
    return [number for number in found if number is not None]


def open_groups(session: Session, cluster: str, limit: int = 200) -> Sequence[tuple[AlertGroup, Incident]]:
    """Open groups with the incident that leads them, the newest first."""
    leads = col(AlertGroup.lead) == col(Incident.id)
    mine = (col(AlertGroup.cluster) == cluster, col(AlertGroup.state) == "open")
    query = select(AlertGroup, Incident).where(leads, *mine)
    return session.exec(query.order_by(col(AlertGroup.id).desc()).limit(limit)).all()


def counts_of(session: Session, group_ids: Sequence[int]) -> dict[tuple[int, str], int]:
    """Members by (group, state)."""
    query = select(AlertMember.group_id, AlertMember.state, func.count()).where(
        col(AlertMember.group_id).in_(group_ids)
    )
    rows = session.exec(query.group_by(col(AlertMember.group_id), col(AlertMember.state))).all()
    return {(group, state): number for group, state, number in rows}


def held_members(session: Session, cluster: str, limit: int = 100) -> Sequence[tuple[AlertMember, Incident]]:
    """What is held back now, the newest first."""
    joined = col(AlertMember.incident_id) == col(Incident.id)
    held = (col(AlertMember.cluster) == cluster, col(AlertMember.state) == "held", col(Incident.state) != "resolved")
    query = select(AlertMember, Incident).where(joined, *held)
    return session.exec(query.order_by(col(Incident.id).desc()).limit(limit)).all()


def openings(session: Session, incident: Incident, since: datetime) -> tuple[datetime, ...]:
    """When the same thing opened since ``since``, this time included, oldest first."""
    return openings_of(session, [incident], incident.opened_at - since)[incident.id or 0]


def openings_of(session: Session, rows: Sequence[Incident], window: timedelta) -> dict[int, tuple[datetime, ...]]:
    """By the id of each of these incidents of one cluster when the same thing opened within ``window`` before it, this
    time included, oldest first. Drills count for themselves only."""
    found: dict[tuple[str, str], list[datetime]] = {}
    for some in portions(sorted({row.entity_id for row in rows})):
        query = select(Incident.kind, Incident.entity_id, Incident.opened_at).where(
            col(Incident.cluster) == rows[0].cluster,
            col(Incident.entity_id).in_(some),
            col(Incident.opened_at) >= min(row.opened_at for row in rows) - window,
            col(Incident.drill) == "",
        )
        for kind, entity, at in session.exec(query.order_by(col(Incident.opened_at))):
            found.setdefault((kind, entity), []).append(at)
    told: dict[int, tuple[datetime, ...]] = {}
    for row in rows:
        near = found.get((row.kind, row.entity_id), [])
        its = [at for at in near if row.opened_at - window <= at <= row.opened_at]
        told[row.id or 0] = tuple(its if row.drill == "" else sorted([*its, row.opened_at]))
    return told


def may_speak(session: Session, cluster: str, kinds: Sequence[str]) -> list[Incident]:
    """Live incidents of places, and those of a kind that one of these patterns fits. Oldest first."""
    query = real(cluster).where(col(Incident.state).in_(LIVE))
    if not any(mark in kind for kind in kinds for mark in "*?["):
        query = query.where(or_(col(Incident.entity_kind).in_(PLACES), col(Incident.kind).in_(kinds)))
    found = session.exec(query.order_by(col(Incident.id))).all()
    return [row for row in found if row.entity_kind in PLACES or any(fnmatchcase(row.kind, kind) for kind in kinds)]


def waiting_plans(session: Session, incident_ids: Sequence[int]) -> dict[int, int]:
    """Incident -> its newest decision, where that still waits for an approver."""
    found: dict[int, int] = {}
    for some in portions(incident_ids):
        newest = select(func.max(Decision.id)).where(col(Decision.incident_id).in_(some))
        waits = (col(Decision.id).in_(newest.group_by(col(Decision.incident_id))), col(Decision.state) == "proposed")
        found |= {
            incident: number or 0
            for incident, number in session.exec(select(Decision.incident_id, Decision.id).where(*waits))
        }
    return found


def silences(session: Session, cluster: str, now: datetime, *, ended: bool = False, limit: int = 500) -> list[Silence]:
    """Silences and announced work that hold now or will; with ``ended`` those that are over too. Newest first."""
    wanted = [col(Silence.cluster) == cluster]
    if not ended:
        wanted += [col(Silence.ended_at).is_(None), col(Silence.ends_at) > now]
    return list(session.exec(select(Silence).where(*wanted).order_by(col(Silence.id).desc()).limit(limit)).all())


def wake_held(session: Session, cluster: str, now: datetime) -> int:
    """Every open group is looked at again now: what held its members back may be gone. Returns how many."""
    mine = (col(AlertGroup.cluster) == cluster, col(AlertGroup.state) == "open")
    rows = session.exec(select(AlertGroup).where(*mine)).all()
    for row in rows:
        row.due_at = now
        session.add(row)
    return len(rows)
