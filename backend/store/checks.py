"""Results of checks: every query about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete
from sqlmodel import Session, col, func, select

from backend.model.checks import Check

#: Results of one node that are kept; older ones go when it is checked again.
KEPT = 200


def add(session: Session, row: Check) -> Check:
    """Keep a result; of a node only its last KEPT stay."""
    session.add(row)
    session.flush()
    mine = (col(Check.cluster) == row.cluster, col(Check.node) == row.node)
    oldest = session.exec(select(Check.id).where(*mine).order_by(col(Check.id).desc()).offset(KEPT).limit(1)).first()
    if oldest is not None:
        session.connection().execute(delete(Check).where(*mine, col(Check.id) <= oldest))
    return row


def of_node(session: Session, cluster: str, node: str, limit: int = 50) -> Sequence[Check]:
    """Newest first; no node = all."""
    query = select(Check).where(col(Check.cluster) == cluster)
    query = query.where(col(Check.node) == node) if node else query
    return session.exec(query.order_by(col(Check.id).desc()).limit(limit)).all()


def latest(session: Session, cluster: str) -> dict[tuple[str, str], Check]:
    """(node, check) -> its newest result."""
    newest = select(func.max(Check.id)).where(col(Check.cluster) == cluster).group_by(col(Check.node), col(Check.name))
    rows = session.exec(select(Check).where(col(Check.id).in_(newest))).all()
    return {(row.node, row.name): row for row in rows}


def failing(session: Session, cluster: str) -> list[Check]:
    """Newest results that failed, where an incident was opened for it."""
    return [row for row in latest(session, cluster).values() if row.verdict == "fail" and row.incident_id is not None]


def since(session: Session, cluster: str, name: str, at: datetime) -> Sequence[Check]:
    """Results of one check on all nodes since then."""
    query = select(Check).where(col(Check.cluster) == cluster, col(Check.name) == name, col(Check.at) >= at)
    return session.exec(query.order_by(col(Check.id))).all()
