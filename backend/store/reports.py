"""Reports of job wrappers: kept once, read by attempt, ticked off when their verdict was drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import delete, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlmodel import Session, col, select

from backend.clock import utc
from backend.model.reports import WrapReport
from backend.reported import ReportFacts
from backend.store.upsert import portions, table_of

#: Reports whose text is in memory at the same time.
MANY = 50
#: What identifies the reports of one attempt: (job, restart, "") or, where no job is told, ("", 0, id).
Group = tuple[str, int, str]


class Waiting(NamedTuple):
    """A report whose verdict is not drawn."""

    id: str
    task: int | None
    tasks: int | None
    at: datetime
    received_at: datetime


def put_reports(session: Session, cluster: str, reports: Sequence[ReportFacts], now: datetime) -> int:
    """How many are new; one that was told before stays as it was."""
    if not reports:
        return 0
    table = table_of(WrapReport)
    on_postgresql = session.get_bind().dialect.name == "postgresql"
    new = 0
    for some in portions(sorted(reports, key=lambda one: one.id), MANY):
        added = postgresql_insert(table) if on_postgresql else sqlite_insert(table)
        statement = added.values([_row(cluster, one, now) for one in some]).on_conflict_do_nothing()
        new += len(session.connection().execute(statement.returning(table.c.id)).all())
    return new


def _row(cluster: str, one: ReportFacts, now: datetime) -> dict[str, object]:
    return {
        "cluster": cluster,
        "id": one.id,
        "job": one.job,
        "restart": one.restart,
        "task": one.task,
        "tasks": one.tasks,
        "host": one.host,
        "at": utc(one.at),
        "received_at": now,
        "exit_code": one.exit_code,
        "log_class": one.log_class,
        "joined": False,
        "report": dict(one.whole),
    }


def waiting(session: Session, cluster: str) -> dict[Group, list[Waiting]]:
    """Those whose verdict is not drawn, by attempt, the first that came first."""
    fields = (WrapReport.id, WrapReport.job, WrapReport.restart, WrapReport.task, WrapReport.tasks)
    query = select(*fields, WrapReport.at, WrapReport.received_at).where(  # type: ignore[call-overload]
        col(WrapReport.cluster) == cluster, ~col(WrapReport.joined)
    )
    found: dict[Group, list[Waiting]] = {}
    for id_, job, restart, task, tasks, at, received in session.exec(query.order_by(col(WrapReport.received_at))):
        found.setdefault((job, restart, "" if job else id_), []).append(Waiting(id_, task, tasks, at, received))
    return found


def of_attempt(session: Session, cluster: str, group: Group) -> Iterator[WrapReport]:
    """All reports of an attempt, joined ones too, a few in memory at a time."""
    job, restart, alone = group
    query = select(WrapReport.id).where(col(WrapReport.cluster) == cluster, col(WrapReport.job) == job)
    if alone:
        query = query.where(col(WrapReport.id) == alone)
    ids = list(session.exec(query.where(col(WrapReport.restart) == restart).order_by(col(WrapReport.id))))
    for some in portions(ids, MANY):
        rows = session.exec(select(WrapReport).where(col(WrapReport.cluster) == cluster, col(WrapReport.id).in_(some)))
        yield from sorted(rows, key=lambda row: row.id)
        session.expunge_all()


def tick_off(session: Session, cluster: str, ids: Sequence[str]) -> None:
    """Their verdict is drawn."""
    for some in portions(sorted(ids)):
        mine = (col(WrapReport.cluster) == cluster, col(WrapReport.id).in_(some))
        session.connection().execute(update(WrapReport).where(*mine).values(joined=True))


def forget(session: Session, cluster: str, before: datetime, most: int = 500) -> int:
    """Delete reports whose verdict was drawn and that came before this time, ``most`` at once. How many went."""
    query = select(WrapReport.id).where(col(WrapReport.cluster) == cluster, col(WrapReport.joined))
    ids = list(session.exec(query.where(col(WrapReport.received_at) < before).limit(most)))
    for some in portions(ids, MANY):
        mine = (col(WrapReport.cluster) == cluster, col(WrapReport.id).in_(some))
        session.connection().execute(delete(WrapReport).where(*mine))
    return len(ids)


def latest(session: Session, cluster: str, job: str, limit: int) -> list[WrapReport]:
    """Reports of a job, those that failed first, then by when they ended; of all its attempts the newest first."""
    query = select(WrapReport).where(col(WrapReport.cluster) == cluster, col(WrapReport.job) == job)
    order = (col(WrapReport.restart).desc(), col(WrapReport.exit_code) == 0, col(WrapReport.at), col(WrapReport.id))
    return list(session.exec(query.order_by(*order).limit(limit)))
