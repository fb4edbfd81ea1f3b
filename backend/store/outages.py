"""When nodes were out, by whose word, and which windows were announced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import or_
from sqlmodel import Session, col, select

from backend.clock import unix, utc
from backend.facts import MaintenanceFacts, OutageFacts
from backend.model.past import Maintenance, Outage
from backend.store.upsert import put


def put_outages(session: Session, cluster: str, told: Iterable[OutageFacts]) -> None:
    """Insert or replace: (node, source, start) is one span."""
    rows = {
        (one.node, one.source, one.start): {
            "cluster": cluster,
            "node": one.node,
            "source": one.source,
            "start": utc(one.start),
            "end": utc(max(one.end, one.start)) if one.end is not None else None,
            "state": one.state,
            "reason": one.reason,
            "user": one.user,
        }
        for one in told
    }
    put(session, Outage, list(rows.values()))


def open_outages(session: Session, cluster: str) -> list[OutageFacts]:
    query = select(Outage).where(col(Outage.cluster) == cluster, col(Outage.end).is_(None))
    return [outage_facts(row) for row in session.exec(query.order_by(col(Outage.start), col(Outage.node)))]


def outages(
    session: Session, cluster: str, start: datetime, end: datetime, nodes: Sequence[str] = ()
) -> list[OutageFacts]:
    """Spans that have part of [start, end], oldest first; with ``nodes`` (at most 500) theirs only."""
    ended = or_(col(Outage.end).is_(None), col(Outage.end) > start)
    query = select(Outage).where(col(Outage.cluster) == cluster, col(Outage.start) <= end, ended)
    if nodes:
        query = query.where(col(Outage.node).in_(nodes))
    return [outage_facts(row) for row in session.exec(query.order_by(col(Outage.start), col(Outage.node)))]


def outage_facts(row: Outage) -> OutageFacts:
    end = unix(row.end) if row.end is not None else None
    return OutageFacts(row.node, unix(row.start), end, row.state, row.reason, row.user, row.source)


def put_maintenances(session: Session, cluster: str, told: Iterable[MaintenanceFacts], source: str) -> None:
    """Insert or replace: (source, name) is one window."""
    rows = {
        (one.source or source, one.name): {
            "cluster": cluster,
            "source": one.source or source,
            "name": one.name,
            "nodes": list(one.nodes),
            "start": utc(one.start),
            "end": utc(max(one.end, one.start)) if one.end is not None else None,
            "text": one.text,
        }
        for one in told
    }
    put(session, Maintenance, list(rows.values()))


def maintenances(session: Session, cluster: str, start: datetime, end: datetime) -> list[MaintenanceFacts]:
    """Windows that have part of [start, end], oldest first."""
    ended = or_(col(Maintenance.end).is_(None), col(Maintenance.end) > start)
    query = select(Maintenance).where(col(Maintenance.cluster) == cluster, col(Maintenance.start) <= end, ended)
    return [
        MaintenanceFacts(
            row.name,
            tuple(row.nodes),
            unix(row.start),
            unix(row.end) if row.end is not None else None,
            row.text,
            row.source,
        )
        for row in session.exec(query.order_by(col(Maintenance.start), col(Maintenance.name)))
    ]
