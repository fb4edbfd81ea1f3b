"""Runs, sums per hour and the whole over a window, as the accounting wrote them down."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func
from sqlmodel import Session, col, select

from backend.model.events import Finding
from backend.model.reckoning import Reckoning, Rollup, Run, RunJob
from backend.store.upsert import Row, portions, put, table_of

#: Columns of a run that a list shows: all but its document, which may be large.
LISTED = tuple(name for name in Run.model_fields if name not in ("document", "digest"))
#: (job, node, hour): what a row of sums is about.
SumKey = tuple[str, str, datetime]
SUMS = tuple(name for name in Rollup.model_fields if name not in ("cluster", "job", "node", "hour"))


# --- runs -----------------------------------------------------------------------------------------------------------


def runs_page(
    session: Session,
    cluster: str,
    limit: int,
    before: datetime | None = None,
    *,
    state: str = "",
    user: str = "",
    projects: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Runs without their documents, what moved last first. ``projects``: only those of these accounts, () = all."""
    table = table_of(Run)
    query = select(*(table.c[name] for name in LISTED)).where(table.c.cluster == cluster)
    if before is not None:
        query = query.where(table.c.moved_at < before)
    if state:
        query = query.where(table.c.state == state)
    if user:
        query = query.where(table.c.user == user)
    if projects:
        query = query.where(table.c.account.in_(projects))
    query = query.order_by(table.c.moved_at.desc(), table.c.name).limit(limit)
    return [dict(row._mapping) for row in session.execute(query)]


def run_states(session: Session, cluster: str, projects: Sequence[str] = ()) -> dict[str, int]:
    """How many runs are in each state, of all accounts or of these."""
    query = select(Run.state, func.count()).where(col(Run.cluster) == cluster).group_by(col(Run.state))
    if projects:
        query = query.where(col(Run.account).in_(projects))
    return {state: count for state, count in session.exec(query).all()}


def run_named(session: Session, cluster: str, name: str) -> Run | None:
    return session.get(Run, (cluster, name))


def newest_named(session: Session, cluster: str, name: str) -> Run | None:
    """Of runs that share a name, which are told apart by their first job, the one that moved last."""
    mine = (col(Run.cluster) == cluster, col(Run.name).startswith(f"{name} (", autoescape=True))
    return session.exec(select(Run).where(*mine).order_by(col(Run.moved_at).desc(), col(Run.name)).limit(1)).first()


def run_of_job(session: Session, cluster: str, job: str) -> str:
    """The name of the run that a job belongs to, empty where it is not accounted yet."""
    found = session.get(RunJob, (cluster, job))
    return found.run if found is not None else ""


def run_digests(session: Session, cluster: str) -> dict[str, str]:
    """Hash of each run's document, by name."""
    query = select(Run.name, Run.digest).where(col(Run.cluster) == cluster)
    return {name: digest for name, digest in session.exec(query).all()}


def put_runs(session: Session, cluster: str, rows: Sequence[Row], jobs: Mapping[str, str]) -> None:
    """Insert or replace runs, and whose each job is."""
    for some in portions(rows, 50):
        put(session, Run, some)
    told = [{"cluster": cluster, "job": job, "run": run} for job, run in sorted(jobs.items())]
    for part in portions(told):
        put(session, RunJob, part)


def drop_runs(session: Session, cluster: str, names: Collection[str]) -> None:
    """Forget runs that became part of another."""
    for some in portions(sorted(names)):
        mine = (table_of(Run).c.cluster == cluster, table_of(Run).c.name.in_(some))
        session.connection().execute(delete(table_of(Run)).where(*mine))
        theirs = (table_of(RunJob).c.cluster == cluster, table_of(RunJob).c.run.in_(some))
        session.connection().execute(delete(table_of(RunJob)).where(*theirs))


# --- the whole ------------------------------------------------------------------------------------------------------


def reckoning(session: Session, cluster: str, days: int) -> Reckoning | None:
    return session.get(Reckoning, (cluster, days))


def put_reckonings(session: Session, rows: Sequence[Row]) -> None:
    put(session, Reckoning, rows)


# --- sums per hour --------------------------------------------------------------------------------------------------


def sums(
    session: Session, cluster: str, start: datetime, end: datetime, *, job: str = "", node: str = ""
) -> list[dict[str, Any]]:
    """The hours of one job, of one node, or (both empty) of the cluster, from ``start`` up to ``end``, oldest first."""
    table = table_of(Rollup)
    bounds = (table.c.cluster == cluster, table.c.job == job, table.c.node == node)
    query = select(table.c.hour, *(table.c[name] for name in SUMS)).where(*bounds)
    query = query.where(table.c.hour >= start, table.c.hour < end).order_by(table.c.hour)
    return [dict(row._mapping) for row in session.execute(query)]


def all_sums(
    session: Session, cluster: str, start: datetime, end: datetime
) -> Iterator[tuple[SumKey, tuple[float, ...]]]:
    """Every row of the hours from ``start`` up to ``end``: its key, and its values in the order of SUMS."""
    table = table_of(Rollup)
    query = select(table.c.job, table.c.node, table.c.hour, *(table.c[name] for name in SUMS))
    query = query.where(table.c.cluster == cluster, table.c.hour >= start, table.c.hour < end)
    for row in session.execute(query):
        yield (row[0], row[1], row[2]), tuple(row[3:])


def put_sums(session: Session, cluster: str, rows: Mapping[SumKey, Sequence[float]]) -> None:
    """Insert or replace rows; the values in the order of SUMS."""
    told = [
        {"cluster": cluster, "job": job, "node": node, "hour": hour} | dict(zip(SUMS, values, strict=True))
        for (job, node, hour), values in rows.items()
    ]
    for some in portions(told):
        put(session, Rollup, some)


def drop_sums(session: Session, cluster: str, keys: Collection[SumKey]) -> None:
    table = table_of(Rollup)
    for job, node, hour in sorted(keys):
        one = (table.c.cluster == cluster, table.c.job == job, table.c.node == node, table.c.hour == hour)
        session.connection().execute(delete(table).where(*one))


def findings_by_node(session: Session, cluster: str, start: datetime, end: datetime) -> dict[str, int]:
    """How many findings were raised from ``start`` up to ``end``, by node; an empty name: on no node."""
    raised = col(Finding.raised_at)
    query = select(Finding.node, func.count()).where(col(Finding.cluster) == cluster, raised >= start, raised < end)
    return {node: count for node, count in session.exec(query.group_by(col(Finding.node))).all()}


def findings_after(session: Session, cluster: str, seq: int, limit: int) -> list[tuple[int, datetime]]:
    """(id, raised_at) of at most ``limit`` findings with an id above ``seq``, lowest first."""
    query = select(Finding.id, Finding.raised_at).where(col(Finding.cluster) == cluster, col(Finding.id) > seq)
    return [(id_ or 0, at) for id_, at in session.exec(query.order_by(col(Finding.id)).limit(limit)).all()]
