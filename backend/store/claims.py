"""Who may change a row: the claim (only while it still is what the claimer saw), and turns for larger changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

from sqlalchemy import ColumnElement, inspect, text, update
from sqlmodel import Session, SQLModel

#: First halves of advisory locks' keys (four letters in ASCII); the second is the cluster's.
EVENTS, CHANGES = 0x65766E74, 0x63686E67


class Conflict(Exception):
    """The row is not in the state that the request needs: somebody was faster, or the page was old."""


def take_turn(session: Session, cluster: str, log: int = CHANGES) -> None:
    """Wait until every earlier writer of this cluster and ``log`` has committed. SQLite writers take turns anyway."""
    if session.get_bind().dialect.name == "postgresql":
        turn = {"log": log, "cluster": crc32(cluster.encode()) - 2**31}
        session.connection().execute(text("SELECT pg_advisory_xact_lock(:log, :cluster)"), turn)


def claim(
    session: Session,
    table: type[SQLModel],
    row_id: object,
    expect: Mapping[str, object],
    change: Mapping[str, object],
) -> bool:
    """True when the row ``row_id`` still matched ``expect`` and now holds ``change``; False when somebody was first.

    row_id: the primary key, a tuple where it has several columns. expect: column -> value; None means NULL, a tuple
    means any of these. A copy of the row in this session is read again at its next use. Raises ValueError for a
    column that the table does not have.
    """
    keys = [column.key for column in inspect(table).primary_key]
    ids = row_id if isinstance(row_id, tuple) else (row_id,)
    if len(keys) != len(ids):
        raise ValueError(f"{table.__name__} is keyed by {', '.join(keys)}; got {row_id!r}")
    wanted = [_is(table, name, value) for name, value in (*zip(keys, ids, strict=True), *expect.items())]
    changed = {_column(table, name): value for name, value in change.items()}
    statement = update(table).where(*wanted).values(changed).execution_options(synchronize_session=False)
    session.flush()
    if session.connection().execute(statement).rowcount != 1:
        return False
    held = session.identity_map.get(inspect(table).identity_key_from_primary_key(ids))
    if held is not None:
        session.expire(held)
    return True


def _is(table: type[SQLModel], name: str, value: object) -> ColumnElement[bool]:
    column: ColumnElement[Any] = _column(table, name)
    if isinstance(value, tuple):
        return column.in_(value)
    return column.is_(None) if value is None else column == value


def _column(table: type[SQLModel], name: str) -> Any:
    if name not in inspect(table).columns:
        raise ValueError(f"{table.__name__} has no column {name!r}")
    return getattr(table, name)
