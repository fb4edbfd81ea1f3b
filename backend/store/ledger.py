"""Versions and changes: what runs where, and what became another."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, or_
from sqlalchemy import select as sql_select
from sqlmodel import Session, col, select

from backend.model.past import Change, Version
from backend.store.upsert import Row, add, put, table_of

VERSION = ("node", "device", "job", "item", "source", "value", "since")


class VersionRow(NamedTuple):
    """One row of Version, by VERSION."""

    node: str
    device: str
    job: str
    item: str
    source: str
    value: str
    since: datetime


def versions(
    session: Session, cluster: str, node: str = "", *, jobs: bool = True, items: Collection[str] | None = None
) -> list[VersionRow]:
    """What runs now: columns, not rows, for a fleet has hundreds of thousands. ``node``, ``items``: these only."""
    table = table_of(Version)
    query = sql_select(*(table.c[name] for name in VERSION)).where(table.c.cluster == cluster)
    if node:
        query = query.where(table.c.node == node)
    if not jobs:
        query = query.where(table.c.job == "")
    if items is not None:
        query = query.where(table.c.item.in_(items))
    return [VersionRow(*row) for row in session.connection().execute(query)]


def tally(session: Session, cluster: str) -> dict[tuple[str, str], list[tuple[str, int]]]:
    """(item, source) to how many nodes and devices hold which value; what runs in jobs is left out."""
    table = table_of(Version)
    columns = (table.c.item, table.c.source, table.c.value)
    query = sql_select(*columns, func.count()).where(table.c.cluster == cluster, table.c.job == "").group_by(*columns)
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for item, source, value, count in session.connection().execute(query):
        found.setdefault((item, source), []).append((value, count))
    return found


def put_versions(session: Session, rows: Sequence[Row]) -> None:
    put(session, Version, rows)


def add_changes(session: Session, rows: Sequence[Row]) -> None:
    add(session, Change, rows)


def changes(
    session: Session,
    cluster: str,
    *,
    node: str = "",
    nodes: Sequence[str] | None = None,
    job: str = "",
    item: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
    limit: int = 500,
) -> list[Change]:
    """Changes, newest first. ``node``, ``nodes``: theirs, and those of the whole cluster. ``before``: the id to go on
    from."""
    query = select(Change).where(col(Change.cluster) == cluster)
    of_nodes = [node] if node else nodes
    if of_nodes is not None:
        query = query.where(or_(col(Change.node).in_(of_nodes), (col(Change.node) == "") & (col(Change.job) == "")))
    if job:
        query = query.where(col(Change.job) == job)
    if item:
        query = query.where(col(Change.item) == item)
    if since is not None:
        query = query.where(col(Change.at) >= since)
    if until is not None:
        query = query.where(col(Change.at) <= until)
    if before is not None:
        query = query.where(col(Change.id) < before)
    return list(session.exec(query.order_by(col(Change.at).desc(), col(Change.id).desc()).limit(limit)))
