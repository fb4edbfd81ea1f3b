"""Who held which GPU when: spans of nodes, found for any moment without reading the whole past."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, or_, union_all, update
from sqlalchemy import select as sql_select
from sqlmodel import Session, col, select

from backend.model.work import Allocation
from backend.store.upsert import Row, add, portions, table_of

#: Classes of length. A span that holds a moment began at most its length before it: short ones are looked for in the
#: last 2.3 hours before the moment, middling ones in the last 36 hours; long and open ones are few.
OPEN, SHORT, MIDDLING, LONG = range(4)
REACH = {SHORT: timedelta(seconds=2**13), MIDDLING: timedelta(seconds=2**17)}


def size_of(start: datetime, end: datetime | None) -> int:
    """The class of a span's length."""
    if end is None:
        return OPEN
    return next((size for size, reach in REACH.items() if end - start < reach), LONG)


def open_allocations(session: Session, cluster: str) -> list[Allocation]:
    """Nodes held now, oldest first."""
    query = select(Allocation).where(col(Allocation.cluster) == cluster, col(Allocation.size) == OPEN)
    return list(session.exec(query.order_by(col(Allocation.id))))


def allocations(session: Session, cluster: str, jobs: Collection[str]) -> list[Allocation]:
    """Every span of these jobs, ended or not, oldest first."""
    found: list[Allocation] = []
    for some in portions(sorted(jobs)):
        query = select(Allocation).where(col(Allocation.cluster) == cluster, col(Allocation.job).in_(some))
        found += session.exec(query.order_by(col(Allocation.id)))
    return found


def allocations_at(session: Session, cluster: str, at: datetime, node: str = "") -> list[Allocation]:
    """Who held which node at ``at``; a span holds its start and not its end."""
    return _moment(session, cluster, at, at, (col(Allocation.node) == node,) if node else ())


def allocations_between(
    session: Session, cluster: str, start: datetime, end: datetime, node: str = ""
) -> list[Allocation]:
    """Spans that have part of [start, end], oldest first."""
    return _moment(session, cluster, start, end, (col(Allocation.node) == node,) if node else ())


def holders(session: Session, cluster: str, node: str, at: datetime, gpu: int | None = None) -> list[Allocation]:
    """Who held a node, or one GPU of it, at ``at``. A span that does not say which GPUs may hold each of them."""
    found = allocations_at(session, cluster, at, node)
    return [row for row in found if gpu is None or not row.gpus or gpu in row.gpus]


def beside(session: Session, one: Allocation, at: datetime) -> list[Allocation]:
    """All spans of the attempt of ``one`` that hold ``at``: the peers of its GPUs."""
    query = select(Allocation).where(
        col(Allocation.cluster) == one.cluster,
        col(Allocation.job) == one.job,
        col(Allocation.life) == one.life,
        col(Allocation.restart) == one.restart,
        col(Allocation.start) <= at,
        or_(col(Allocation.end).is_(None), col(Allocation.end) > at),
    )
    return list(session.exec(query.order_by(col(Allocation.node))))


def _moment(
    session: Session, cluster: str, start: datetime, end: datetime, more: Iterable[ColumnElement[bool]]
) -> list[Allocation]:
    """One small piece of the index for each class of length, put together."""
    table = table_of(Allocation)
    classes: list[ColumnElement[bool]] = []
    for size in (OPEN, SHORT, MIDDLING, LONG):
        bounds = [table.c.size == size, table.c.start <= end]
        if size in REACH:
            bounds.append(table.c.start > start - REACH[size])
        if size != OPEN:
            bounds.append(table.c.end > start)
        classes.append(and_(table.c.cluster == cluster, *more, *bounds))
    pieces = union_all(*(sql_select(table).where(one) for one in classes)).subquery()
    query = sql_select(Allocation).from_statement(sql_select(pieces).order_by(pieces.c.id))
    return list(session.scalars(query))


def add_allocations(session: Session, rows: Sequence[Row]) -> None:
    add(session, Allocation, [dict(row) | {"size": size_of(row["start"], row["end"])} for row in rows])


def move_allocations(session: Session, ends: Mapping[int, tuple[datetime, datetime | None]]) -> None:
    """Give these spans, by id, their start and end."""
    table = table_of(Allocation)
    groups: dict[tuple[datetime, datetime | None], list[int]] = {}
    for id_, span in ends.items():
        groups.setdefault(span, []).append(id_)
    for (start, end), ids in groups.items():
        values = {"start": start, "end": end, "size": size_of(start, end)}
        for some in portions(sorted(ids)):
            session.connection().execute(update(table).where(table.c.id.in_(some)).values(**values))


def set_gpus(session: Session, told: Mapping[int, Sequence[int]]) -> None:
    """Which GPUs these spans, by id, hold."""
    table = table_of(Allocation)
    groups: dict[tuple[int, ...], list[int]] = {}
    for id_, gpus in told.items():
        groups.setdefault(tuple(gpus), []).append(id_)
    for gpus, ids in groups.items():
        for some in portions(sorted(ids)):
            session.connection().execute(update(table).where(table.c.id.in_(some)).values(gpus=list(gpus)))
