"""A node as it was: who ran on it, what broke, when it was out by whose word, which cards sat in it, what changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlmodel import Session, col, or_, select

from backend.facts import MaintenanceFacts, OutageFacts
from backend.model.actions import Exclusion, Order
from backend.model.cluster import Node
from backend.model.incidents import Incident
from backend.model.past import Cable, Change, DeviceSpan, NodeSpan
from backend.model.work import Allocation, Attempt
from backend.store import allocations, cables, ledger, outages, spans
from backend.store.ledger import VersionRow
from backend.store.upsert import portions

#: Rows of one lane at most; a longer past is asked for in pieces.
MOST_ROWS = 2000
#: Two sources that tell one outage tell its beginning within this of each other, in s.
SAME_OUTAGE_S = 120.0


@dataclass(frozen=True, slots=True)
class Held:
    """An attempt on a node, or on some GPUs of it, for a span; None: the attempt's own row is gone."""

    span: Allocation
    attempt: Attempt | None


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """Everything within [start, end], each lane oldest first; ``versions`` and ``cables`` are of now."""

    name: str
    node: Node | None
    start: datetime
    end: datetime
    jobs: tuple[Held, ...]
    incidents: tuple[Incident, ...]
    exclusions: tuple[Exclusion, ...]
    outages: tuple[OutageFacts, ...]
    maintenances: tuple[MaintenanceFacts, ...]
    orders: tuple[Order, ...]
    devices: tuple[DeviceSpan, ...]
    places: tuple[NodeSpan, ...]
    changes: tuple[Change, ...]
    versions: tuple[VersionRow, ...]
    cables: tuple[Cable, ...]

    @property
    def known(self) -> bool:
        """Somebody told of this node at some time."""
        lanes = (self.jobs, self.incidents, self.exclusions, self.outages, self.devices)
        return self.node is not None or any(lanes) or any(one.node == self.name for one in self.changes)


def node_history(session: Session, name: str, node: str, start: datetime, end: datetime) -> NodeHistory:
    announced = outages.maintenances(session, name, start, end)
    return NodeHistory(
        name=node,
        node=session.get(Node, (name, node)),
        start=start,
        end=end,
        jobs=held(session, name, allocations.allocations_between(session, name, start, end, node)[-MOST_ROWS:]),
        incidents=tuple(incidents_of(session, name, start, end, node)),
        exclusions=tuple(exclusions_of(session, name, start, end, node)),
        outages=told_once(outages.outages(session, name, start, end, [node])),
        maintenances=tuple(one for one in announced if node in one.nodes),
        orders=tuple(orders_of(session, name, start, end, node)),
        devices=tuple(spans.spans_on(session, name, node, start, end)),
        places=tuple(one for one in spans.node_spans(session, name, node) if within(one, start, end)),
        changes=tuple(reversed(ledger.changes(session, name, node=node, since=start, until=end, limit=MOST_ROWS))),
        versions=tuple(ledger.versions(session, name, node)),
        cables=tuple(cables.cables(session, name, {node})),
    )


def within(one: NodeSpan | DeviceSpan, start: datetime, end: datetime) -> bool:
    return one.start <= end and (one.end is None or one.end > start)


def held(session: Session, name: str, found: Sequence[Allocation]) -> tuple[Held, ...]:
    """Spans with their attempts, oldest first."""
    rows: dict[tuple[str, int, int], Attempt] = {}
    for some in portions(sorted({one.job for one in found})):
        for row in session.exec(select(Attempt).where(col(Attempt.cluster) == name, col(Attempt.job).in_(some))):
            rows[(row.job, row.life, row.restart)] = row
    order = sorted(found, key=lambda one: (one.start, one.id or 0))
    return tuple(Held(one, rows.get((one.job, one.life, one.restart))) for one in order)


def incidents_of(
    session: Session, name: str, start: datetime, end: datetime, node: str, device: str = ""
) -> Iterable[Incident]:
    """Incidents of a node, or of one device wherever it sat, open in part of [start, end]."""
    whose = col(Incident.entity_id) == device if device else col(Incident.node) == node
    still = or_(col(Incident.closed_at).is_(None), col(Incident.closed_at) > start)
    query = select(Incident).where(col(Incident.cluster) == name, whose, col(Incident.opened_at) <= end, still)
    return session.exec(query.order_by(col(Incident.opened_at), col(Incident.id)).limit(MOST_ROWS))


def exclusions_of(session: Session, name: str, start: datetime, end: datetime, node: str) -> Iterable[Exclusion]:
    query = select(Exclusion).where(
        col(Exclusion.cluster) == name,
        col(Exclusion.node) == node,
        col(Exclusion.origin) != "proposed",
        col(Exclusion.created_at) <= end,
        or_(col(Exclusion.lifted_at).is_(None), col(Exclusion.lifted_at) > start),
        col(Exclusion.until) > start,
    )
    return session.exec(query.order_by(col(Exclusion.created_at), col(Exclusion.id)).limit(MOST_ROWS))


def orders_of(session: Session, name: str, start: datetime, end: datetime, node: str) -> Iterable[Order]:
    when = (col(Order.created_at) >= start, col(Order.created_at) <= end)
    query = select(Order).where(col(Order.cluster) == name, col(Order.node) == node, *when)
    return session.exec(query.order_by(col(Order.created_at), col(Order.id)).limit(MOST_ROWS))


def told_once(found: Sequence[OutageFacts]) -> tuple[OutageFacts, ...]:
    """Without what we saw ourselves where a scheduler's own book tells the same span."""
    books = [one for one in found if one.source != "observed"]
    kept = [one for one in found if one.source == "observed" and not any(_same(one, book) for book in books)]
    return tuple(sorted([*books, *kept], key=lambda one: (one.start, one.source)))


def _same(ours: OutageFacts, book: OutageFacts) -> bool:
    ends = book.end is None or ours.start < book.end
    return abs(ours.start - book.start) <= SAME_OUTAGE_S or (book.start <= ours.start and ends)


def with_attempt(session: Session, name: str, found: Sequence[Allocation], gpu: int | None) -> tuple[Held, ...]:
    """As ``held``, only those that may hold the GPU of this index."""
    return tuple(one for one in held(session, name, found) if gpu is None or not one.span.gpus or gpu in one.span.gpus)


def clipped(one: Held, start: datetime, end: datetime | None) -> Held:
    """The part of a span that lies within [start, end]; the stored row is not touched."""
    span = one.span
    begin = max(span.start, start)
    last = span.end if end is None else end if span.end is None else min(span.end, end)
    plain = span.model_dump() | {"start": begin, "end": last}
    return replace(one, span=Allocation(**plain))
