"""The log of accepted events: appended once, read in the order of arrival."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Table
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlmodel import Session, col, func, select

from backend.model.events import Event
from backend.store.claims import EVENTS, take_turn
from backend.store.upsert import portions

#: Rows of one statement: 16 columns each, far below SQLite's limit of 32,766 bound parameters.
MANY = 500


def append_events(session: Session, cluster: str, rows: Sequence[Event]) -> tuple[int, int]:
    """(accepted, duplicates): rows with a new ``dedupe`` are added in order, the others left out.

    Writers of one cluster take turns until they commit, so that ids become visible in their order: a reader's cursor
    would pass over a lower id that is committed later.
    """
    if not rows:
        return 0, 0
    session.flush()
    table = _table()
    on_postgresql = session.get_bind().dialect.name == "postgresql"
    take_turn(session, cluster, EVENTS)
    accepted = 0
    for at in range(0, len(rows), MANY):
        values = [_values(table, row) for row in rows[at : at + MANY]]
        added = postgresql_insert(table) if on_postgresql else sqlite_insert(table)
        statement = added.values(values).on_conflict_do_nothing(index_elements=["cluster", "dedupe"])
        accepted += len(session.connection().execute(statement.returning(table.c.id)).all())
    return accepted, len(rows) - accepted


def _values(table: Table, row: Event) -> dict[str, Any]:
    return {column.name: getattr(row, column.name) for column in table.columns if column.name != "id"}


def events_after(session: Session, cluster: str, seq: int, limit: int) -> list[Event]:
    """At most ``limit`` events with an id above ``seq``, lowest first."""
    query = select(Event).where(col(Event.cluster) == cluster, col(Event.id) > seq)
    return list(session.exec(query.order_by(col(Event.id)).limit(limit)))


def count_after(session: Session, cluster: str, seq: int) -> int:
    """How many events wait behind a cursor."""
    query = select(func.count()).select_from(Event)
    return session.exec(query.where(col(Event.cluster) == cluster, col(Event.id) > seq)).one()


def events_by_id(session: Session, cluster: str, ids: Sequence[int]) -> list[Event]:
    """These events, oldest first; evidence refers to them as ``event:123``."""
    found: list[Event] = []
    for at in range(0, len(ids), MANY):
        query = select(Event).where(col(Event.cluster) == cluster, col(Event.id).in_(ids[at : at + MANY]))
        found += session.exec(query)
    return sorted(found, key=lambda row: row.id or 0)


def events_of_node(session: Session, cluster: str, node: str, limit: int) -> list[Event]:
    """The latest ``limit`` events of one node, newest first."""
    query = select(Event).where(col(Event.cluster) == cluster, col(Event.node) == node)
    return list(session.exec(query.order_by(col(Event.at).desc(), col(Event.id).desc()).limit(limit)))


def last_alerts(session: Session, cluster: str, nodes: Sequence[str], since: datetime) -> dict[str, tuple[str, str]]:
    """(code, dedupe) of the newest event of each alert of these nodes ("" = of none) by fingerprint, from ``since``
    on."""
    found: dict[str, tuple[str, str]] = {}
    for some in portions(nodes):
        ours = (col(Event.cluster) == cluster, col(Event.node).in_(some), col(Event.at) >= since)
        query = select(Event.attrs, Event.code, Event.dedupe).where(*ours, col(Event.namespace) == "alert")
        for attrs, code, dedupe in session.exec(query.order_by(col(Event.id))):
            found[str(attrs.get("fingerprint", ""))] = code, dedupe
    return found


def last_seq(session: Session, cluster: str) -> int:
    """The highest id in the log of a cluster, 0 where it is empty."""
    return session.exec(select(func.max(col(Event.id))).where(col(Event.cluster) == cluster)).one() or 0


def _table() -> Table:
    found = Event.__table__  # type: ignore[attr-defined]  # sqlmodel leaves it untyped
    assert isinstance(found, Table)
    return found
