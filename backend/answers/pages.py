"""What each page asks of the store: plain answers, built in one reading session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import Session, col, func, select

from backend.answers.fleet_state import FleetState, Sight, fleet_state
from backend.answers.healthy_day import Step, healthy_day
from backend.answers.pulse import Pulses, pulses
from backend.facts import AttemptFacts
from backend.model.actions import Decision, Order
from backend.model.cluster import Device, Node
from backend.model.events import Finding
from backend.model.incidents import Incident
from backend.store import actions, cluster, incidents, stands

#: Rows of one page of the list of incidents.
PAGE = 50
DAY = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Standing:
    """An incident with the decision that stands about it, its orders, and its findings that are no victims."""

    incident: Incident
    decision: Decision | None
    orders: Sequence[Order] = ()
    findings: Sequence[Finding] = ()

    @property
    def waits(self) -> bool:
        return self.decision is not None and self.decision.state == "proposed"


@dataclass(frozen=True, slots=True)
class Rail:
    """What stands beside every page: open incidents, proposals that wait, the pulse, the size of the fleet."""

    open: int
    waiting: int
    pulses: Pulses
    nodes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class NowAnswer:
    fleet: FleetState
    day: tuple[Step, ...]
    standing: tuple[Standing, ...]
    last_closed: datetime | None
    running: tuple[AttemptFacts, ...]
    orders: tuple[Order, ...]
    deciders: dict[int, str]


def rail(session: Session, name: str, now: datetime) -> Rail:
    expected = select(func.count(), func.coalesce(func.sum(Node.expected_gpus), 0)).select_from(Node)
    nodes, size = session.exec(expected.where(col(Node.cluster) == name, col(Node.retired_at).is_(None))).one()
    gpus = (
        select(func.count())
        .select_from(Device)
        .where(col(Device.cluster) == name, col(Device.kind) == "gpu", col(Device.retired_at).is_(None))
    )
    return Rail(
        open=incidents.count_live(session, name),
        waiting=len(actions.proposed(session, name)),
        pulses=pulses(session, name, now),
        nodes=nodes,
        gpus=max(int(size), session.exec(gpus).one()),
    )


def now_answer(session: Session, name: str, now: datetime, sight: Sight) -> NowAnswer:
    fleet = fleet_state(session, name, now, sight)
    done = [row for row in actions.orders(session, name, (), 40) if row.created_at >= now - DAY]
    return NowAnswer(
        fleet=fleet,
        day=healthy_day(session, name, now, fleet),
        standing=standing(session, incidents.live(session, name)),
        last_closed=last_closed(session, name),
        running=tuple(cluster.running(session, name)),
        orders=tuple(done),
        deciders=deciders(session, done),
    )


def standing(session: Session, rows: Sequence[Incident]) -> tuple[Standing, ...]:
    """Loudest first; of the same severity what waits for a person comes first, then the oldest."""
    severity = ("critical", "high", "warning", "info")
    decided, ordered = stands.told_decisions(session, rows), stands.orders_of(session, rows)
    causes = stands.causes_of(session, rows)
    found = [
        Standing(row, decided.get(row.id or 0), ordered.get(row.id or 0, ()), causes.get(row.id or 0, ()))
        for row in rows
    ]
    return tuple(sorted(found, key=lambda s: (severity.index(s.incident.severity), not s.waits, s.incident.opened_at)))


def deciders(session: Session, orders: Sequence[Order]) -> dict[int, str]:
    """Who decided: name by decision id; Watchkeeper itself where nobody did."""
    ids = sorted({row.decision_id for row in orders})
    rows = session.exec(select(Decision).where(col(Decision.id).in_(ids))).all() if ids else []
    return {row.id or 0: row.decided_by or "watchkeeper" for row in rows}


def last_closed(session: Session, name: str) -> datetime | None:
    query = select(Incident.closed_at).where(col(Incident.cluster) == name, col(Incident.closed_at).is_not(None))
    return session.exec(query.order_by(col(Incident.closed_at).desc()).limit(1)).first()


def listed(session: Session, name: str, show: str, before: int | None) -> tuple[Standing, ...]:
    """One page of incidents. show: open, waiting, resolved or all."""
    if show in ("open", "waiting"):
        rows = standing(session, incidents.live(session, name))
        return tuple(row for row in rows if show == "open" or row.waits)
    states = ("resolved",) if show == "resolved" else ()
    page = incidents.page(session, name, states, PAGE, before)
    decided = stands.told_decisions(session, page)
    return tuple(Standing(row, decided.get(row.id or 0)) for row in page)
