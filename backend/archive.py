"""Old findings and events leave the database for Parquet files, day by day, and are read back from there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from sqlalchemy import delete, func, select
from sqlmodel import Session

from backend import export
from backend.export import TABLES, Row
from backend.store.engine import Store
from backend.store.upsert import table_of

#: What leaves. Everything else is small, and stays.
OLD = ("findings", "events")
#: Rows deleted in one transaction: writers must not wait long.
AT_ONCE = 5000


class Lost(Exception):
    """A file does not hold what was written into it; nothing was deleted."""


def archive_day(store: Store, cluster: str, folder: Path, before: datetime) -> str:
    """Move the oldest day that ended before ``before`` out of the database, of one table; the file's name, "" where no
    such day is left.

    Rows are deleted only once the file was read back with as many of them. A crash between leaves rows in both; the
    next time they go into another file of that day, and reading takes each once. Raises NoParquet, OSError, Lost.
    """
    for name in OLD:
        day = _oldest(store, cluster, name, before)
        if day is not None:
            return _archive(store, cluster, folder, name, day)
    return ""


def _oldest(store: Store, cluster: str, name: str, before: datetime) -> datetime | None:
    """The begin of the oldest whole day with rows that may go."""
    what = TABLES[name]
    table = table_of(what.model)
    with store.read() as session:
        first = session.execute(select(func.min(table.c[what.at])).where(table.c.cluster == cluster)).scalar()
    if first is None:
        return None
    day = datetime.combine(first.astimezone(UTC).date(), time(), UTC)
    return day if day + timedelta(days=1) <= before else None


def _archive(store: Store, cluster: str, folder: Path, name: str, day: datetime) -> str:
    target = folder / cluster / name
    target.mkdir(parents=True, exist_ok=True)
    part = 1
    while (file := target / f"{day:%Y-%m-%d}.{part}.parquet").exists():
        part += 1
    until = day + timedelta(days=1)
    ids: list[int] = []
    with store.read() as session:
        count = export.to_parquet(name, _noted(export.rows_of(session, cluster, name, day, until), ids), file)
    back = export.from_parquet([file], TABLES[name].key, day, until, TABLES[name].at)
    if len(back) != count or {row["id"] for row in back} != set(ids):
        raise Lost(f"{file} holds {len(back)} of {count} rows; nothing was deleted")
    for at in range(0, len(ids), AT_ONCE):
        with store.write() as session:
            _drop(session, name, ids[at : at + AT_ONCE])
    return str(file)


def _noted(rows: Iterator[Row], ids: list[int]) -> Iterator[Row]:
    for row in rows:
        ids.append(row["id"])
        yield row


def _drop(session: Session, name: str, ids: list[int]) -> None:
    table = table_of(TABLES[name].model)
    for at in range(0, len(ids), 500):
        session.connection().execute(delete(table).where(table.c.id.in_(ids[at : at + 500])))


def archived(folder: Path, cluster: str, name: str, since: datetime, until: datetime) -> list[Row]:
    """Rows that left, from ``since`` up to ``until``, each once. Raises NoParquet, KeyError for another table."""
    what = TABLES[name]
    files = sorted((folder / cluster / name).glob("*.parquet"))
    first, last = f"{since.astimezone(UTC):%Y-%m-%d}", f"{until.astimezone(UTC):%Y-%m-%d}"
    return export.from_parquet([f for f in files if first <= f.name[:10] <= last], what.key, since, until, what.at)
