"""Who held which GPU when: spans of nodes, found for any moment without reading the whole past."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Executable, bindparam, union_all, update
from sqlalchemy import select as sql_select
from sqlmodel import Session, col, select

from backend.model.base import UtcDateTime
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


def _moment(*, node: bool) -> Executable:
    """The question for spans of a moment: one small piece of the index for each class of length, put together."""
    table, at = table_of(Allocation), UtcDateTime()
    pieces = []
    for size in (OPEN, SHORT, MIDDLING, LONG):
        bounds = [table.c.cluster == bindparam("cluster"), table.c.size == size]
        bounds += [table.c.node == bindparam("node")] if node else []
        bounds += [table.c.start <= bindparam("end", type_=at)]
        bounds += [table.c.start > bindparam(f"from_{size}", type_=at)] if size in REACH else []
        bounds += [table.c.end > bindparam("start", type_=at)] if size != OPEN else []
        pieces.append(sql_select(table).where(*bounds))
    found = union_all(*pieces).subquery()
    return sql_select(Allocation).from_statement(sql_select(found).order_by(found.c.id))


def _attempt() -> Executable:
    """The question for an attempt's spans. No order is asked for: SQLite would read the index that has it instead."""
    table = table_of(Allocation)
    keys = ("cluster", "job", "life", "restart")
    return sql_select(Allocation).where(*(table.c[name] == bindparam(name) for name in keys))


#: Built once: putting such a question together takes longer than its answer.
ON_NODE, ANYWHERE, OF_ATTEMPT = _moment(node=True), _moment(node=False), _attempt()


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
    return allocations_between(session, cluster, at, at, node)


def allocations_between(
    session: Session, cluster: str, start: datetime, end: datetime, node: str = ""
) -> list[Allocation]:
    """Spans that have part of [start, end], in order of writing."""
    said: dict[str, object] = {"cluster": cluster, "start": start, "end": end}
    said |= {f"from_{size}": start - reach for size, reach in REACH.items()}
    if node:
        return list(session.scalars(ON_NODE, said | {"node": node}))
    return list(session.scalars(ANYWHERE, said))


def holders(session: Session, cluster: str, node: str, at: datetime, gpu: int | None = None) -> list[Allocation]:
    """Who held a node, or one GPU of it, at ``at``. A span that does not say which GPUs may hold each of them."""
    found = allocations_at(session, cluster, at, node)
    return [row for row in found if gpu is None or not row.gpus or gpu in row.gpus]


def beside(session: Session, one: Allocation, at: datetime) -> list[Allocation]:
    """All spans of the attempt of ``one`` that hold ``at``: the peers of its GPUs."""
    said = {"cluster": one.cluster, "job": one.job, "life": one.life, "restart": one.restart}
    found = [row for row in session.scalars(OF_ATTEMPT, said) if row.start <= at and (row.end is None or row.end > at)]
    return sorted(found, key=lambda row: row.node)


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
