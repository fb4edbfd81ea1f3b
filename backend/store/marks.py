"""How far sources that follow files, journals and streams have come."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Table, delete
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlmodel import Session, col, select

from backend.model.events import Mark

#: Rows of one statement: 5 columns each, far below SQLite's limit of 32,766 bound parameters.
MANY = 500


def marks(session: Session, cluster: str, source: str) -> dict[str, str]:
    """Every mark of one source: name to position."""
    query = select(Mark.name, Mark.position).where(col(Mark.cluster) == cluster, col(Mark.source) == source)
    return dict(session.exec(query).all())


def keep_marks(session: Session, cluster: str, source: str, moved: Mapping[str, str | None], now: datetime) -> None:
    """Write what moved, in the caller's transaction; None forgets a mark."""
    gone = [name for name, position in moved.items() if position is None]
    for at in range(0, len(gone), MANY):
        here = delete(Mark).where(col(Mark.cluster) == cluster, col(Mark.source) == source)
        session.connection().execute(here.where(col(Mark.name).in_(gone[at : at + MANY])))
    kept = [
        {"cluster": cluster, "source": source, "name": name, "position": position, "at": now}
        for name, position in moved.items()
        if position is not None
    ]
    table = Mark.__table__  # type: ignore[attr-defined]  # sqlmodel leaves it untyped
    assert isinstance(table, Table)
    insert = postgresql_insert if session.get_bind().dialect.name == "postgresql" else sqlite_insert
    for at in range(0, len(kept), MANY):
        added = insert(table).values(kept[at : at + MANY])
        newer = {"position": added.excluded.position, "at": added.excluded.at}
        statement = added.on_conflict_do_update(index_elements=["cluster", "source", "name"], set_=newer)
        session.connection().execute(statement)
