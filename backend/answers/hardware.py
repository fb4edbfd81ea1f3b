"""What a vendor may see of its nodes: parts, faults, codes and checks; no job, no person, no other node."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from backend.model.checks import Check
from backend.model.cluster import Device, Node
from backend.model.events import Event
from backend.model.incidents import Incident
from backend.security.redact import MASK, redact
from backend.store.incidents import real
from backend.store.upsert import portions

#: Events that speak of hardware; what jobs and schedulers said stays here.
NAMESPACES = ("xid", "sxid", "goe", "afid", "dcgm", "aer", "nic", "mce", "edac", "pcie", "power", "thermal")
#: What incidents may be about: a job, a run or a rank is nobody's hardware.
KINDS = ("node", "gpu", "nic", "link")
MOST = 5000
Told = TypeVar("Told", Incident, Event, Check)
_PROCESS = re.compile(r"\b(pid|tid|name|comm|process|user|uid|job|jobid|cgroup)([=:]\s?)[^,\s)]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Hardware:
    """Rows as they may leave, newest first, but for nodes and devices."""

    nodes: tuple[dict[str, Any], ...]
    incidents: tuple[dict[str, Any], ...]
    events: tuple[dict[str, Any], ...]
    checks: tuple[dict[str, Any], ...]

    @property
    def cut(self) -> tuple[str, ...]:
        """Of what there may be more than the MOST newest that are here."""
        return tuple(name for name in ("incidents", "events", "checks") if len(getattr(self, name)) >= MOST)


def hardware(session: Session, cluster: str, only: Collection[str], since: datetime, until: datetime) -> Hardware:
    """Of the nodes in ``only`` (empty: all), from ``since`` up to ``until``."""
    rows = session.exec(select(Node).where(col(Node.cluster) == cluster).order_by(col(Node.name))).all()
    mine = {row.name: row for row in rows if not only or row.name in only}
    others = {row.name for row in rows} - set(mine)
    devices: dict[str, list[dict[str, Any]]] = {}
    for one in session.exec(select(Device).where(col(Device.cluster) == cluster).order_by(col(Device.id))).all():
        if one.node in mine and one.retired_at is None:
            devices.setdefault(one.node, []).append(
                {"id": one.id, "kind": one.kind, "index": one.index, "pci": one.pci, "model": one.model}
            )
    return Hardware(
        nodes=tuple(
            {"node": name, "model": row.model, "boot_at": row.boot_at, "devices": devices.get(name, [])}
            for name, row in mine.items()
        ),
        incidents=_incidents(session, cluster, mine, others, since, until),
        events=_events(session, cluster, mine, others, since, until),
        checks=_checks(session, cluster, mine, others, since, until),
    )


def _incidents(
    session: Session, cluster: str, mine: Collection[str], others: Collection[str], since: datetime, until: datetime
) -> tuple[dict[str, Any], ...]:
    query = real(cluster).where(
        col(Incident.opened_at) >= since,
        col(Incident.opened_at) < until,
        col(Incident.entity_kind).in_(KINDS),
    )
    rows = newest(session, query, Incident, mine)
    return tuple(
        {
            "id": row.id,
            "node": row.node,
            "entity": row.entity_name,
            "kind": row.kind,
            "severity": row.severity,
            "state": row.state,
            "opened_at": row.opened_at,
            "closed_at": row.closed_at,
            "text": scrubbed(row.headline, [row.job, row.run], others),
        }
        for row in rows
    )


def _events(
    session: Session, cluster: str, mine: Collection[str], others: Collection[str], since: datetime, until: datetime
) -> tuple[dict[str, Any], ...]:
    query = select(Event).where(
        col(Event.cluster) == cluster,
        col(Event.at) >= since,
        col(Event.at) < until,
        col(Event.namespace).in_(NAMESPACES),
    )
    rows = newest(session, query, Event, mine)
    return tuple(
        {
            "at": row.at,
            "node": row.node,
            "entity": row.entity_name,
            "namespace": row.namespace,
            "code": row.code,
            "text": scrubbed(row.text, [], others),
        }
        for row in rows
    )


def _checks(
    session: Session, cluster: str, mine: Collection[str], others: Collection[str], since: datetime, until: datetime
) -> tuple[dict[str, Any], ...]:
    query = select(Check).where(col(Check.cluster) == cluster, col(Check.at) >= since, col(Check.at) < until)
    rows = newest(session, query, Check, mine)
    return tuple(
        {
            "at": row.at,
            "node": row.node,
            "peer": row.peer if row.peer in mine else MASK if row.peer else "",
            "name": row.name,
            "verdict": row.verdict,
            "text": scrubbed(row.text, [], others),
            "reading": row.reading,
        }
        for row in rows
    )


def newest(session: Session, query: SelectOfScalar[Told], table: type[Told], mine: Collection[str]) -> list[Told]:
    """The newest MOST rows of these nodes, newest first: of other nodes none is read, so none takes their place."""
    found: list[Told] = []
    for some in portions(sorted(mine)):
        own = query.where(col(table.node).in_(some)).order_by(col(table.id).desc()).limit(MOST)
        found += session.exec(own).all()
    return sorted(found, key=lambda row: row.id or 0, reverse=True)[:MOST]


def scrubbed(text: str, names: Iterable[str], others: Collection[str]) -> str:
    """Text without secrets, processes, jobs, runs, and without names of nodes that are not theirs."""
    found = _PROCESS.sub(rf"\1\2{MASK}", redact(text))
    for name in names:
        if name:
            found = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", MASK, found)
    return re.sub(r"[A-Za-z0-9][\w.-]*", lambda word: MASK if word[0].rstrip(".") in others else word[0], found)
