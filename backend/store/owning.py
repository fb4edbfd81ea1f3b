"""Queries for the owner of a dead job: its nodes, and the incident that killed it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlmodel import Session, col, or_, select

from backend.facts import AttemptFacts
from backend.model.incidents import Incident
from backend.model.work import Allocation, Attempt
from backend.store.cluster import attempt_facts
from backend.store.incidents import real


def with_nodes(session: Session, cluster: str, row: Attempt) -> AttemptFacts:
    """An attempt with the nodes that it held, also after it ended."""
    mine = (
        col(Allocation.cluster) == cluster,
        col(Allocation.job) == row.job,
        col(Allocation.life) == row.life,
        col(Allocation.restart) == row.restart,
    )
    return attempt_facts(row, session.exec(select(Allocation).where(*mine)).all())


def incident_of(
    session: Session, cluster: str, job: str, nodes: Collection[str], at: datetime, before_s: float, after_s: float
) -> Incident | None:
    """The first loud, real incident of a job or on its nodes around its death."""
    since, until = at - timedelta(seconds=before_s), at + timedelta(seconds=after_s)
    near = (
        col(Incident.opened_at) >= since,
        col(Incident.opened_at) <= until,
        col(Incident.severity).in_(("high", "critical")),
        or_(col(Incident.job) == job, col(Incident.node).in_(list(nodes)[:500])),
    )
    return session.exec(real(cluster).where(*near).order_by(col(Incident.opened_at)).limit(1)).first()
