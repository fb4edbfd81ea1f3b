"""Insert-or-replace on both databases, and long lists of keys in portions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Table, insert
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlmodel import Session, SQLModel

#: Bound parameters of one statement stay far below SQLite's limit of 32,766.
MANY = 500

Row = Mapping[str, Any]
T = TypeVar("T")


def put(session: Session, table: type[SQLModel], rows: Sequence[Row]) -> None:
    """Insert rows, or replace those with the same key. Every row holds every column; ``first_seen`` stays."""
    if not rows:
        return
    session.flush()
    target = table_of(table)
    on_postgresql = session.get_bind().dialect.name == "postgresql"
    statement = postgresql_insert(target) if on_postgresql else sqlite_insert(target)
    keys = [column.name for column in target.primary_key]
    rows = sorted(rows, key=lambda row: [str(row[key]) for key in keys])  # two writers meet in one order: no deadlock
    fresh = {c.name: statement.excluded[c.name] for c in target.columns if c.name not in (*keys, "first_seen")}
    session.connection().execute(
        statement.on_conflict_do_update(index_elements=keys, set_=fresh), [dict(row) for row in rows]
    )
    expire(session, table)


def add(session: Session, table: type[SQLModel], rows: Sequence[Row]) -> None:
    """Insert rows; the database numbers them."""
    if rows:
        session.connection().execute(insert(table_of(table)), [dict(row) for row in rows])


def expire(session: Session, table: type[SQLModel]) -> None:
    """Copies in this session are read again at their next use."""
    for held in session.identity_map.values():
        if isinstance(held, table):
            session.expire(held)


def table_of(table: type[SQLModel]) -> Table:
    found = table.__table__  # type: ignore[attr-defined]  # sqlmodel leaves it untyped
    assert isinstance(found, Table)
    return found


def portions(things: Sequence[T], many: int = MANY) -> Iterator[Sequence[T]]:
    for at in range(0, len(things), many):
        yield things[at : at + many]
