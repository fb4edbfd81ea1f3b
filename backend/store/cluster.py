"""Nodes, devices and attempts: every query about what a cluster is and who runs on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from sqlalchemy import delete, or_
from sqlalchemy import select as columns_of
from sqlalchemy.orm.attributes import set_committed_value
from sqlmodel import Session, col, select

from backend.clock import unix
from backend.facts import AttemptFacts, GpuFacts, NodeFacts
from backend.model.cluster import Cluster, Device, Node
from backend.model.events import Cursor
from backend.model.work import Allocation, Attempt
from backend.store.allocations import allocations, open_allocations
from backend.store.merging import in_line
from backend.store.upsert import Row, portions, put, table_of

__all__ = ["allocations", "open_allocations"]  # asked for beside nodes and attempts by most readers

#: Marks kept as cursors, so that a poll of 12,500 unchanged nodes writes one row: when anything was last heard, when
#: the scheduler last listed its nodes, and for each node that has fallen silent, when it was last heard.
HEARD, SCHEDULER, SILENT = "heard", "scheduler", "silent:"

#: Reasons by which a queued job wants no nodes yet (Slurm's words).
NOT_YET = ("Dependency", "DependencyNeverSatisfied", "JobHeldUser", "JobHeldAdmin", "BeginTime")
#: Columns of an attempt that are facts of the same name and form.
PLAIN: tuple[str, ...] = ("unit", "array", "name", "account", "partition", "reason", "exit_code", "signal")
PLAIN += ("requeued_by", "dependency", "limit_s", "source", "asks_nodes")


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


@dataclass(frozen=True, slots=True)
class Seen:
    """What a verdict needs of a node: its scheduler's words, and when anything was last heard of it."""

    name: str
    state: str
    flags: Sequence[str]
    reason: str
    reason_owner: str
    last_seen: datetime


def sights(session: Session, cluster: str) -> list[Seen]:
    """Every node that is not retired, without the weight of whole rows: this is read about once a second."""
    marks = _marks(session, cluster)
    newest = marks.get(HEARD)
    of = table_of(Node).c
    columns = (of.name, of.state, of.flags, of.reason, of.reason_owner, of.last_seen)
    query = columns_of(*columns).where(of.cluster == cluster, of.retired_at.is_(None))
    found = []
    for name, state, flags, reason, owner, seen in session.connection().execute(query):
        heard = marks.get(SILENT + name) or newest
        found.append(Seen(name, state, flags, reason, owner, seen if heard is None or heard < seen else heard))
    return found


def met(session: Session, cluster: str, names: Collection[str]) -> tuple[list[Node], list[Device]]:
    """The rows of these nodes, where there are any, and of their devices."""
    found: tuple[list[Node], list[Device]] = ([], [])
    for some in portions(sorted(names)):
        here = select(Node).where(col(Node.cluster) == cluster, col(Node.name).in_(some))
        there = select(Device).where(col(Device.cluster) == cluster, col(Device.node).in_(some))
        found[0].extend(session.exec(here.order_by(col(Node.first_seen), col(Node.name))))
        found[1].extend(session.exec(there.order_by(col(Device.first_seen), col(Device.pci), col(Device.id))))
    return found


def devices(session: Session, cluster: str, node: str = "", kind: str = "") -> list[Device]:
    """All devices, in the order they were first seen; with ``node`` only that node's, with ``kind`` only such."""
    query = select(Device).where(col(Device.cluster) == cluster)
    if kind:
        query = query.where(col(Device.kind) == kind)
    if node:
        query = query.where(col(Device.node) == node)
    return list(session.exec(query.order_by(col(Device.first_seen), col(Device.node), col(Device.pci), col(Device.id))))


def node_facts(session: Session, cluster: str, gpus_of: str | None = None) -> list[NodeFacts]:
    """Every node that is not retired, as its cluster last described it, with the jobs that hold it and its GPUs;
    ``gpus_of``: those of this node only, for one decision need not read 100,000."""
    listed = _marks(session, cluster).get(SCHEDULER)
    gpus: defaultdict[str, list[GpuFacts]] = defaultdict(list)
    for device in devices(session, cluster, gpus_of or "", "gpu") if gpus_of != "" else ():
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
        clique=row.clique,
        partitions=tuple(row.partitions),
        labels=dict(row.labels),
    )


def put_nodes(session: Session, rows: Sequence[Row]) -> None:
    """Insert or replace whole rows of Node."""
    put(session, Node, rows)


def put_devices(session: Session, rows: Sequence[Row]) -> None:
    """Insert or replace whole rows of Device."""
    put(session, Device, rows)


def drop_devices(session: Session, cluster: str, ids: Collection[str]) -> None:
    """Take away the rows of devices that live on under better ids."""
    table = table_of(Device)
    for some in portions(sorted(ids)):
        session.connection().execute(delete(table).where(table.c.cluster == cluster, table.c.id.in_(some)))


# --- attempts -------------------------------------------------------------------------------------------------------


def running(session: Session, cluster: str) -> list[AttemptFacts]:
    """Attempts that hold nodes now, by job."""
    held: defaultdict[tuple[str, int, int], list[Allocation]] = defaultdict(list)
    for row in open_allocations(session, cluster):
        held[(row.job, row.life, row.restart)].append(row)
    found: list[AttemptFacts] = []
    for some in portions(sorted({job for job, _, _ in held})):
        query = select(Attempt).where(col(Attempt.cluster) == cluster, col(Attempt.job).in_(some))
        for attempt in session.exec(query.order_by(col(Attempt.job), col(Attempt.life), col(Attempt.restart))):
            spans = held.get((attempt.job, attempt.life, attempt.restart))
            if spans:
                found.append(attempt_facts(attempt, spans))
    return found


def waiting(session: Session, cluster: str) -> list[tuple[str, str, int]]:
    """Jobs that wait in the queue and could start: (job, partition, nodes they ask for), where that is known. What a
    person holds, or what waits for another job, needs no nodes yet."""
    query = select(Attempt).where(col(Attempt.cluster) == cluster, col(Attempt.state).in_(("PENDING", "REQUEUED")))
    found = {row.job: row for row in session.exec(query.order_by(col(Attempt.job), col(Attempt.life)))}
    rows = (row for row in found.values() if row.asks_nodes and row.reason not in NOT_YET)
    return [(row.job, row.partition, row.asks_nodes) for row in rows]


def attempt_facts(row: Attempt, spans: Iterable[Allocation] = ()) -> AttemptFacts:
    """An attempt as facts, on the nodes and GPUs of these spans."""
    on = {span.node: tuple(span.gpus) for span in spans}
    return AttemptFacts(
        job=row.job,
        restart=row.restart,
        life=row.life,
        run=row.run,
        user=row.user,
        state=row.state,
        submit=_seconds(row.submit),
        eligible=_seconds(row.eligible),
        start=_seconds(row.start),
        end=_seconds(row.end),
        nodes=tuple(sorted(on)),
        gpus=tuple((node, gpus) for node, gpus in sorted(on.items()) if gpus),
        roles=tuple((node, role) for node, role in row.roles),
        gpus_per_node=row.gpus_per_node,
        excluded=tuple(row.excluded),
        outputs=tuple(row.outputs),
        **{name: getattr(row, name) for name in PLAIN},
    )


def attempts(session: Session, cluster: str, jobs: Collection[str]) -> list[Attempt]:
    """All attempts of these jobs, in line: lives, in each the oldest first."""
    found: list[Attempt] = []
    for some in portions(sorted(jobs)):
        query = select(Attempt).where(col(Attempt.cluster) == cluster, col(Attempt.job).in_(some))
        found += session.exec(query.order_by(col(Attempt.job)))
    facts = {(row.job, row.life, row.restart): row for row in found}
    of_job = (in_line(attempt_facts(row) for row in mine) for _, mine in groupby(found, lambda row: row.job))
    return [facts[(one.job, one.life, one.restart)] for line in of_job for one in line]


def attempts_between(session: Session, cluster: str, start: datetime, end: datetime) -> list[Attempt]:
    """Attempts that ran in part of [start, end], by start."""
    ended = or_(col(Attempt.end).is_(None), col(Attempt.end) > start)
    query = select(Attempt).where(col(Attempt.cluster) == cluster, col(Attempt.start) <= end, ended)
    return list(session.exec(query.order_by(col(Attempt.start), col(Attempt.job), col(Attempt.restart))))


def put_attempts(session: Session, rows: Sequence[Row]) -> None:
    """Insert or replace whole rows of Attempt."""
    put(session, Attempt, rows)


# --- marks ----------------------------------------------------------------------------------------------------------


def mark(session: Session, cluster: str, name: str, at: datetime) -> None:
    """Set one mark (HEARD, SCHEDULER, SILENT + node) to a time."""
    put(session, Cursor, [{"cluster": cluster, "name": name, "position": 0, "at": at}])


def mark_sounds(
    session: Session, cluster: str, heard: datetime | None, quiet: Mapping[str, datetime], before: Collection[str]
) -> None:
    """Note when anything was last heard, and which nodes were not: node -> when it was last. ``before`` holds the
    nodes that were noted as silent until now."""
    table = table_of(Cursor)
    for some in portions(sorted(SILENT + name for name in set(before) - set(quiet))):
        gone = (table.c.cluster == cluster, table.c.name.in_(some))
        session.connection().execute(delete(table).where(*gone))
    noted = {SILENT + name: at for name, at in sorted(quiet.items()) if name not in before}
    noted |= {HEARD: heard} if heard is not None else {}
    put(session, Cursor, [{"cluster": cluster, "name": name, "position": 0, "at": at} for name, at in noted.items()])


def silent(session: Session, cluster: str) -> dict[str, datetime]:
    """Nodes that have fallen silent while others speak, and when they were last heard."""
    found = _marks(session, cluster)
    return {name.removeprefix(SILENT): at for name, at in found.items() if name.startswith(SILENT)}


def _marks(session: Session, cluster: str) -> dict[str, datetime]:
    ours = or_(col(Cursor.name).in_([HEARD, SCHEDULER]), col(Cursor.name).startswith(SILENT, autoescape=True))
    rows = session.exec(select(Cursor).where(col(Cursor.cluster) == cluster, ours))
    return {row.name: row.at for row in rows if row.at is not None}


def _seconds(at: datetime | None) -> float | None:
    return unix(at) if at is not None else None
