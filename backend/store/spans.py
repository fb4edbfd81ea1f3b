"""Where devices and nodes stood, and when: a new place ends the one before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import or_, update
from sqlmodel import Session, col, select

from backend.model.past import DeviceSpan, NodeSpan
from backend.store.upsert import add, portions, table_of

Seat = tuple[str, str, str]


def seat_devices(session: Session, cluster: str, seats: Mapping[str, Seat | None], now: datetime) -> None:
    """Devices by id sit at (node, index, address) from ``now`` on; None = taken out."""
    known: dict[str, list[DeviceSpan]] = {}
    for some in portions(sorted(seats)):
        still = (col(DeviceSpan.cluster) == cluster, col(DeviceSpan.end).is_(None))
        for row in session.exec(select(DeviceSpan).where(*still, col(DeviceSpan.device).in_(some))):
            known.setdefault(row.device, []).append(row)
    ended: list[int] = []
    made: list[dict[str, object]] = []
    for device, seat in seats.items():
        here = known.get(device, [])
        stays = [row for row in here if (row.node, row.index, row.pci) == seat][:1]
        ended += [row.id or 0 for row in here if row not in stays]
        if seat is not None and not stays:
            node, index, pci = seat
            place = {"cluster": cluster, "device": device, "node": node, "index": index, "pci": pci}
            made.append(place | {"start": now, "end": None})
    _end(session, DeviceSpan, ended, now)
    add(session, DeviceSpan, made)


def seat_nodes(session: Session, cluster: str, seats: Mapping[str, Seat], now: datetime) -> None:
    """Nodes by name stand at (rack, switch, clique) from ``now`` on; a node that nobody placed has no span."""
    known: dict[str, list[NodeSpan]] = {}
    for some in portions(sorted(seats)):
        still = (col(NodeSpan.cluster) == cluster, col(NodeSpan.end).is_(None))
        for row in session.exec(select(NodeSpan).where(*still, col(NodeSpan.node).in_(some))):
            known.setdefault(row.node, []).append(row)
    ended: list[int] = []
    made: list[dict[str, object]] = []
    for node, seat in seats.items():
        here = known.get(node, [])
        stays = [row for row in here if (row.rack, row.switch, row.clique) == seat][:1]
        ended += [row.id or 0 for row in here if row not in stays]
        if any(seat) and not stays:
            rack, switch, clique = seat
            place = {"cluster": cluster, "node": node, "rack": rack, "switch": switch, "clique": clique}
            made.append(place | {"start": now, "end": None})
    _end(session, NodeSpan, ended, now)
    add(session, NodeSpan, made)


def rename_devices(session: Session, cluster: str, ids: Mapping[str, str]) -> None:
    """Spans of devices that live on under better ids go with them."""
    table = table_of(DeviceSpan)
    for old, new in ids.items():
        session.connection().execute(
            update(table).where(table.c.cluster == cluster, table.c.device == old).values(device=new)
        )


def _end(session: Session, kind: type[DeviceSpan] | type[NodeSpan], ids: Collection[int], now: datetime) -> None:
    table = table_of(kind)
    for some in portions(sorted(ids)):
        session.connection().execute(update(table).where(table.c.id.in_(some)).values(end=now))


def device_spans(session: Session, cluster: str, device: str) -> list[DeviceSpan]:
    """Where a device sat, oldest first."""
    query = select(DeviceSpan).where(col(DeviceSpan.cluster) == cluster, col(DeviceSpan.device) == device)
    return list(session.exec(query.order_by(col(DeviceSpan.start), col(DeviceSpan.id))))


def spans_on(session: Session, cluster: str, node: str, start: datetime, end: datetime) -> list[DeviceSpan]:
    """Which devices sat in a node in part of [start, end], oldest first."""
    ended = or_(col(DeviceSpan.end).is_(None), col(DeviceSpan.end) > start)
    query = select(DeviceSpan).where(col(DeviceSpan.cluster) == cluster, col(DeviceSpan.node) == node)
    query = query.where(col(DeviceSpan.start) <= end, ended)
    return list(session.exec(query.order_by(col(DeviceSpan.start), col(DeviceSpan.id))))


def device_at(session: Session, cluster: str, node: str, gpu: int, at: datetime) -> DeviceSpan | None:
    """Which device had this index on a node at ``at``."""
    found = [row for row in spans_on(session, cluster, node, at, at) if row.index == str(gpu)]
    return found[-1] if found else None


def node_spans(session: Session, cluster: str, node: str) -> list[NodeSpan]:
    """Where a node stood, oldest first."""
    query = select(NodeSpan).where(col(NodeSpan.cluster) == cluster, col(NodeSpan.node) == node)
    return list(session.exec(query.order_by(col(NodeSpan.start), col(NodeSpan.id))))
