"""Healthy GPUs over the last day: derived from spans of incidents and exclusions, exact at every change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import Session, col, or_, select

from backend.answers.fleet_state import FleetState, Slots, Trouble
from backend.model.actions import Exclusion
from backend.model.incidents import Incident
from backend.store.incidents import real

DAY = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Step:
    """From ``at`` on ``healthy`` GPUs are healthy, because of ``why``."""

    at: datetime
    healthy: int
    why: str


@dataclass(frozen=True, slots=True)
class Span:
    """These GPUs, as (node, place), are out from ``start`` to ``end`` (None = still)."""

    gpus: frozenset[tuple[str, int]]
    start: datetime
    end: datetime | None
    why: str


def healthy_day(session: Session, name: str, now: datetime, fleet: FleetState) -> tuple[Step, ...]:
    """Steps of the last 24 h, oldest first, the last one now; empty where no GPU is known.

    Starts when the first node was heard of, if that was later: before it nothing is known, so nothing is drawn.
    """
    if not fleet.total or fleet.since is None:
        return ()
    slots = fleet.slots
    start = max(now - DAY, fleet.since)
    spans = [
        *_incident_spans(session, name, start, slots),
        *_exclusion_spans(session, name, start, slots),
        *(_span_of(t, slots) for t in fleet.troubles),
    ]
    steps = sweep(spans, start, now, fleet.total)
    return (*steps, Step(now, fleet.healthy, "now"))


def sweep(spans: Iterable[Span], start: datetime, now: datetime, total: int) -> tuple[Step, ...]:
    """What is left of ``total`` at the start and at each change; a GPU that is out twice counts once."""
    turns: list[tuple[datetime, int, Span]] = []
    for span in spans:
        turns.append((max(span.start, start), 1, span))
        if span.end is not None and span.end <= now:
            turns.append((max(span.end, start), -1, span))
    out: Counter[tuple[str, int]] = Counter()
    left = total
    steps = [Step(start, total, "start")]
    for at, sign, span in sorted(turns, key=lambda turn: (turn[0], turn[1])):
        for gpu in span.gpus:
            out[gpu] += sign
            left -= sign if out[gpu] == (1 if sign > 0 else 0) else 0
        if left == steps[-1].healthy:
            continue
        step = Step(at, left, span.why if sign > 0 else f"{span.why}: over")
        steps = [*steps[:-1], Step(at, left, "start")] if at == start else [*steps, step]
    return tuple(steps)


def _gpus(slots: Slots, node: str, device: str = "") -> frozenset[tuple[str, int]]:
    if device:
        return frozenset({(node, slots.place[device])}) if device in slots.place else frozenset()
    return frozenset((node, i) for i in range(slots.size.get(node, 0)))


def _span_of(t: Trouble, slots: Slots) -> Span:
    """What is wrong now has a beginning, too: a drain of somebody else's, a node that fell silent."""
    gpus = _gpus(slots, t.node) if t.gpu is None else frozenset({(t.node, t.gpu)})
    return Span(gpus, t.since, None, t.reason)


def _incident_spans(session: Session, name: str, start: datetime, slots: Slots) -> Iterator[Span]:
    ended = or_(col(Incident.closed_at).is_(None), col(Incident.closed_at) > start)
    loud = (col(Incident.severity) != "info", col(Incident.entity_kind).in_(("gpu", "node")))
    rows: Sequence[Incident] = session.exec(real(name).where(ended, *loud).order_by(col(Incident.id))).all()
    for row in rows:
        gpus = _gpus(slots, row.node, row.entity_id if row.entity_kind == "gpu" else "")
        yield Span(gpus, row.opened_at, row.closed_at, row.headline)


def _exclusion_spans(session: Session, name: str, start: datetime, slots: Slots) -> Iterator[Span]:
    ended = or_(col(Exclusion.lifted_at).is_(None), col(Exclusion.lifted_at) > start)
    mine = (col(Exclusion.cluster) == name, col(Exclusion.origin) != "proposed", col(Exclusion.until) > start)
    for row in session.exec(select(Exclusion).where(*mine, ended).order_by(col(Exclusion.id))).all():
        end = min(row.until, row.lifted_at) if row.lifted_at is not None else row.until
        yield Span(_gpus(slots, row.node), row.created_at, end, f"{row.node} excluded")
