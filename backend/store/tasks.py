"""Backtests: what waits and runs, what came of it, and which thresholds were adopted."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlmodel import Session, col, select

from backend.model.base import LARGEST_ID
from backend.model.tasks import Task

#: States in which a task is not over.
OPEN = ("waiting", "running")


def by_id(session: Session, cluster: str, number: int) -> Task | None:
    row = session.get(Task, number, populate_existing=True) if 0 < number <= LARGEST_ID else None
    return row if row is not None and row.cluster == cluster else None


def page(session: Session, cluster: str, limit: int, before: int | None = None) -> Sequence[Task]:
    """Newest first; ``before`` is the id to go on from."""
    query = select(Task).where(col(Task.cluster) == cluster)
    query = query if before is None else query.where(col(Task.id) < before)
    return session.exec(query.order_by(col(Task.id).desc()).limit(limit)).all()


def open_ones(session: Session, cluster: str) -> Sequence[Task]:
    """Those that wait or run, oldest first."""
    query = select(Task).where(col(Task.cluster) == cluster, col(Task.state).in_(OPEN))
    return session.exec(query.order_by(col(Task.id))).all()


def in_force(session: Session, cluster: str) -> Sequence[Task]:
    """Those that were adopted, the first first."""
    query = select(Task).where(col(Task.cluster) == cluster, col(Task.adopted_at).is_not(None))
    return session.exec(query.order_by(col(Task.adopted_at), col(Task.id))).all()


def adopted(session: Session, cluster: str, known: Collection[str]) -> dict[str, float]:
    """Thresholds that were adopted, by name, the last word of each; those that this release does not know are left."""
    found: dict[str, float] = {}
    for row in in_force(session, cluster):
        found |= {name: float(value) for name, value in row.asked["thresholds"].items() if name in known}
    return found
