"""Nodes, devices, attempts and allocations: every query about what a cluster is and who runs where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Table, delete, insert, or_, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm.attributes import set_committed_value
from sqlmodel import Session, SQLModel, col, select

from backend.clock import unix
from backend.facts import AttemptFacts, GpuFacts, NodeFacts
from backend.model.cluster import Allocation, Attempt, Cluster, Device, Node
from backend.model.events import Cursor

#: Marks kept as cursors, so that a poll of 12,500 unchanged nodes writes one row: when anything was last heard, when
#: the scheduler last listed its nodes, and for each node that has fallen silent, when it was last heard.
HEARD, SCHEDULER, SILENT = "heard", "scheduler", "silent:"
#: Bound parameters of one statement stay far below SQLite's limit of 32,766.
MANY = 500

Row = Mapping[str, Any]
T = TypeVar("T")


def ensure_cluster(session: Session, name: str, simulated: bool = False) -> Cluster:
    """The cluster's row, made where it is missing."""
    row = session.get(Cluster, name)
    if row is None:
        row = Cluster(name=name)
    row.simulated = simulated
    session.add(row)
    return row


# --- nodes and devices ----------------------------------------------------------------------------------------------


def nodes(session: Session, cluster: str) -> list[Node]:
    """All nodes by name. ``last_seen`` is when a node was last heard of, whatever its row was last written for."""
    marks = _marks(session, cluster)
    found = list(session.exec(select(Node).where(col(Node.cluster) == cluster).order_by(col(Node.name))))
    for row in found:
        heard = marks.get(SILENT + row.name) or marks.get(HEARD)
        if heard is not None and heard > row.last_seen:
            set_committed_value(row, "last_seen", heard)
    return found


def met(session: Session, cluster: str, names: Collection[str]) -> tuple[list[Node], list[Device]]:
    """The rows of these nodes, where there are any, and of their devices."""
    found: tuple[list[Node], list[Device]] = ([], [])
    for some in _portions(sorted(names)):
        here = select(Node).where(col(Node.cluster) == cluster, col(Node.name).in_(some))
        there = select(Device).where(col(Device.cluster) == cluster, col(Device.node).in_(some))
        found[0].extend(session.exec(here.order_by(col(Node.first_seen), col(Node.name))))
        found[1].extend(session.exec(there.order_by(col(Device.first_seen), col(Device.pci), col(Device.id))))
    return found


def devices(session: Session, cluster: str, node: str = "") -> list[Device]:
    """All devices, in the order they were first seen; with ``node`` only that node's."""
    query = select(Device).where(col(Device.cluster) == cluster)
    if node:
        query = query.where(col(Device.node) == node)
    return list(session.exec(query.order_by(col(Device.first_seen), col(Device.node), col(Device.pci), col(Device.id))))


def node_facts(session: Session, cluster: str, gpus_of: str | None = None) -> list[NodeFacts]:
    """Every node that is not retired, as its cluster last described it, with the jobs that hold it and its GPUs;
    ``gpus_of``: those of this node only, for one decision need not read 100,000."""
    listed = _marks(session, cluster).get(SCHEDULER)
    gpus: defaultdict[str, list[GpuFacts]] = defaultdict(list)
    for device in devices(session, cluster, gpus_of or "") if gpus_of != "" else ():
        if device.retired_at is None and device.kind == "gpu":
            index = int(device.index) if device.index.isdecimal() else -1
            uuid = "" if device.id.startswith("pci:") else device.id
            gpus[device.node].append(GpuFacts(index, uuid, device.pci, device.model))
    jobs: defaultdict[str, list[str]] = defaultdict(list)
    for held in open_allocations(session, cluster):
        jobs[held.node].append(held.job)
    return [
        _facts(row, listed, tuple(gpus[row.name]), tuple(dict.fromkeys(jobs[row.name])))
        for row in nodes(session, cluster)
        if row.retired_at is None
    ]


def _facts(row: Node, listed: datetime | None, gpus: tuple[GpuFacts, ...], jobs: tuple[str, ...]) -> NodeFacts:
    read = [at for at in (row.state_at, listed) if at is not None] if row.state_at is not None else []
    return NodeFacts(
        name=row.name,
        state=row.state or "unknown",
        flags=frozenset(row.flags),
        reason=row.reason,
        reason_owner=row.reason_owner,
        rack=row.rack,
        switch=row.switch,
        model=row.model,
        gpus=gpus,
        expected_gpus=row.expected_gpus,
        boot_at=unix(row.boot_at) if row.boot_at is not None else None,
        jobs=jobs,
        read_at=unix(max(read)) if read else 0.0,
    )


def put_nodes(session: Session, rows: Sequence[Row]) -> None:
    """Insert or replace whole rows of Node."""
    _put(session, Node, rows)


def put_devices(session: Session, rows: Sequence[Row]) -> None:
    """Insert or replace whole rows of Device."""
    _put(session, Device, rows)


def drop_devices(session: Session, cluster: str, ids: Collection[str]) -> None:
    """Take away the rows of devices that live on under better ids."""
    table = _table(Device)
    for some in _portions(sorted(ids)):
        session.connection().execute(delete(table).where(table.c.cluster == cluster, table.c.id.in_(some)))


# --- attempts and allocations ---------------------------------------------------------------------------------------


def running(session: Session, cluster: str) -> list[AttemptFacts]:
    """Attempts that hold nodes now, by job."""
    held: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for row in open_allocations(session, cluster):
        held[(row.job, row.restart)].append(row.node)
    found: list[AttemptFacts] = []
    for some in _portions(sorted({job for job, _ in held})):
        query = select(Attempt).where(col(Attempt.cluster) == cluster, col(Attempt.job).in_(some))
        for attempt in session.exec(query.order_by(col(Attempt.job), col(Attempt.restart))):
            names = held.get((attempt.job, attempt.restart))
            if names:
                found.append(attempt_facts(attempt, sorted(names)))
    return found


def attempt_facts(row: Attempt, names: Iterable[str] = ()) -> AttemptFacts:
    return AttemptFacts(
        job=row.job,
        restart=row.restart,
        run=row.run,
        user=row.user,
        state=row.state,
        submit=_seconds(row.submit),
        eligible=_seconds(row.eligible),
        start=_seconds(row.start),
        end=_seconds(row.end),
        nodes=tuple(names),
        gpus_per_node=row.gpus_per_node,
        excluded=tuple(row.excluded),
    )


def attempts(session: Session, cluster: str, jobs: Collection[str]) -> list[Attempt]:
    """All attempts of these jobs, oldest restart first."""
    found: list[Attempt] = []
    for some in _portions(sorted(jobs)):
        query = select(Attempt).where(col(Attempt.cluster) == cluster, col(Attempt.job).in_(some))
        found += session.exec(query.order_by(col(Attempt.job), col(Attempt.restart)))
    return found


def put_attempts(session: Session, rows: Sequence[Row]) -> None:
    """Insert or replace whole rows of Attempt."""
    _put(session, Attempt, rows)


def open_allocations(session: Session, cluster: str) -> list[Allocation]:
    """Nodes held now, oldest first."""
    query = select(Allocation).where(col(Allocation.cluster) == cluster, col(Allocation.end).is_(None))
    return list(session.exec(query.order_by(col(Allocation.id))))


def allocations(session: Session, cluster: str, jobs: Collection[str]) -> list[Allocation]:
    """Every span of these jobs, ended or not, oldest first."""
    found: list[Allocation] = []
    for some in _portions(sorted(jobs)):
        query = select(Allocation).where(col(Allocation.cluster) == cluster, col(Allocation.job).in_(some))
        found += session.exec(query.order_by(col(Allocation.id)))
    return found


def allocations_at(session: Session, cluster: str, at: datetime, node: str = "") -> list[Allocation]:
    """Who held which node at ``at``; a span holds its start and not its end."""
    ended = or_(col(Allocation.end).is_(None), col(Allocation.end) > at)
    query = select(Allocation).where(col(Allocation.cluster) == cluster, col(Allocation.start) <= at, ended)
    if node:
        query = query.where(col(Allocation.node) == node)
    return list(session.exec(query.order_by(col(Allocation.id))))


def add_allocations(session: Session, rows: Sequence[Row]) -> None:
    if rows:
        session.connection().execute(insert(_table(Allocation)), [dict(row) for row in rows])


def end_allocations(session: Session, ids: Collection[int], end: datetime) -> None:
    """Close these spans; one that has an end keeps it."""
    table = _table(Allocation)
    for some in _portions(sorted(ids)):
        still = (table.c.id.in_(some), table.c.end.is_(None))
        session.connection().execute(update(table).where(*still).values(end=end))


# --- marks ----------------------------------------------------------------------------------------------------------


def mark(session: Session, cluster: str, name: str, at: datetime) -> None:
    """Set one mark (HEARD, SCHEDULER, SILENT + node) to a time."""
    _put(session, Cursor, [{"cluster": cluster, "name": name, "position": 0, "at": at}])


def mark_sounds(
    session: Session, cluster: str, heard: datetime | None, quiet: Mapping[str, datetime], before: Collection[str]
) -> None:
    """Note when anything was last heard, and which nodes were not: node -> when it was last. ``before`` holds the
    nodes that were noted as silent until now."""
    table = _table(Cursor)
    for some in _portions(sorted(SILENT + name for name in set(before) - set(quiet))):
        gone = (table.c.cluster == cluster, table.c.name.in_(some))
        session.connection().execute(delete(table).where(*gone))
    noted = {SILENT + name: at for name, at in sorted(quiet.items()) if name not in before}
    noted |= {HEARD: heard} if heard is not None else {}
    _put(session, Cursor, [{"cluster": cluster, "name": name, "position": 0, "at": at} for name, at in noted.items()])


def silent(session: Session, cluster: str) -> dict[str, datetime]:
    """Nodes that have fallen silent while others speak, and when they were last heard."""
    found = _marks(session, cluster)
    return {name.removeprefix(SILENT): at for name, at in found.items() if name.startswith(SILENT)}


def _marks(session: Session, cluster: str) -> dict[str, datetime]:
    ours = or_(col(Cursor.name).in_([HEARD, SCHEDULER]), col(Cursor.name).startswith(SILENT, autoescape=True))
    rows = session.exec(select(Cursor).where(col(Cursor.cluster) == cluster, ours))
    return {row.name: row.at for row in rows if row.at is not None}


# --- both dialects --------------------------------------------------------------------------------------------------


def _put(session: Session, table: type[SQLModel], rows: Sequence[Row]) -> None:
    """Insert rows, or replace those with the same key. Every row holds every column."""
    if not rows:
        return
    session.flush()
    target = _table(table)
    on_postgresql = session.get_bind().dialect.name == "postgresql"
    statement = postgresql_insert(target) if on_postgresql else sqlite_insert(target)
    keys = [column.name for column in target.primary_key]
    rows = sorted(rows, key=lambda row: [str(row[key]) for key in keys])  # two writers meet in one order: no deadlock
    fresh = {c.name: statement.excluded[c.name] for c in target.columns if c.name not in (*keys, "first_seen")}
    session.connection().execute(
        statement.on_conflict_do_update(index_elements=keys, set_=fresh), [dict(row) for row in rows]
    )
    _expire(session, table)


def _expire(session: Session, table: type[SQLModel]) -> None:
    """Copies in this session are read again at their next use."""
    for held in session.identity_map.values():
        if isinstance(held, table):
            session.expire(held)


def _table(table: type[SQLModel]) -> Table:
    found = table.__table__  # type: ignore[attr-defined]  # sqlmodel leaves it untyped
    assert isinstance(found, Table)
    return found


def _portions(things: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(things), MANY):
        yield things[at : at + MANY]


def _seconds(at: datetime | None) -> float | None:
    return unix(at) if at is not None else None
