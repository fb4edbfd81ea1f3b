"""What stands about many incidents at once: their decisions, orders and findings, one query each, never one a row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from sqlmodel import Session, col, func, select

from backend.model.actions import Decision, Order
from backend.model.events import Finding
from backend.model.incidents import Incident

#: Ids asked for at once; both databases take some 32,000 parameters.
AT_ONCE = 10_000


def _ids(rows: Sequence[Incident]) -> Iterator[list[int]]:
    ids = [row.id or 0 for row in rows]
    for start in range(0, len(ids), AT_ONCE):
        yield ids[start : start + AT_ONCE]


def told_decisions(session: Session, rows: Sequence[Incident]) -> dict[int, Decision]:
    """As ``actions.told_decision``, by incident: the newest while it lives, the last with a step once it ended."""
    live = [row for row in rows if row.closed_at is None]
    ended = [row for row in rows if row.closed_at is not None]
    found: dict[int, Decision] = {}
    for ids in _ids(live):
        newest = (
            select(func.max(Decision.id)).where(col(Decision.incident_id).in_(ids)).group_by(col(Decision.incident_id))
        )
        found |= {d.incident_id: d for d in session.exec(select(Decision).where(col(Decision.id).in_(newest))).all()}
    for ids in _ids(ended):
        query = select(Decision).where(col(Decision.incident_id).in_(ids)).order_by(col(Decision.id).desc())
        for d in session.exec(query).all():
            known = found.get(d.incident_id)
            if known is None or (d.plan and not known.plan):
                found[d.incident_id] = d
    return found


def orders_of(session: Session, rows: Sequence[Incident]) -> dict[int, list[Order]]:
    """By incident, oldest first."""
    found: defaultdict[int, list[Order]] = defaultdict(list)
    for ids in _ids(rows):
        for order in session.exec(select(Order).where(col(Order.incident_id).in_(ids)).order_by(col(Order.id))).all():
            found[order.incident_id].append(order)
    return found


def causes_of(session: Session, rows: Sequence[Incident]) -> dict[int, list[Finding]]:
    """Findings that are no victims, by incident, oldest first."""
    found: defaultdict[int, list[Finding]] = defaultdict(list)
    for ids in _ids(rows):
        query = select(Finding).where(col(Finding.incident_id).in_(ids), col(Finding.victim).is_(False))
        for finding in session.exec(query.order_by(col(Finding.raised_at), col(Finding.id))).all():
            found[finding.incident_id or 0].append(finding)
    return found
