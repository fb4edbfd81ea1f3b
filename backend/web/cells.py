"""Small shared pieces of pages: incidents, orders and rack maps as contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from backend.answers.fleet_state import FleetState, Trouble
from backend.answers.pages import Standing
from backend.model.actions import Order
from backend.web.base import Visit
from frontend import chips
from frontend.contexts import Chip, Count, DeedRow, Figure, IncidentRow, Ring, Told, Twin
from frontend.figures.rack_map import Mark, Place
from frontend.words import STATE_WORDS, STATES, age, ago, clock, count, device, first, listed, number, sentence

VERBS = {
    "drain": "Drain {node}",
    "resume": "Return {node}",
    "requeue": "Requeue job {job}",
    "reboot": "Reboot {node}",
    "check": "Check {node}",
    "ticket": "Open a ticket for {node}",
}


def order_text(order: Order) -> str:
    return VERBS.get(order.verb, order.verb).format(node=order.node, job=order.job)


def deed(order: Order, by: str, now: datetime, href: str = "") -> DeedRow:
    """One order as a row: what was asked, what came of it."""
    at = order.ended_at or order.sent_at or order.created_at
    who = "undo of an approval" if order.undoes_id is not None else by
    note = order.error or order.outcome
    return DeedRow(
        order_text(order), chips.ORDER.get(order.state, Chip("info", order.state)), who, clock(at, now), note, href
    )


def incident_row(standing: Standing, found: Visit) -> IncidentRow:
    row = standing.incident
    end = row.closed_at or found.now
    decides = found.right("approver", "decide").allowed
    waits = chips.WAITS if decides else chips.WAITS_ELSE
    live = row.state != "resolved"
    return IncidentRow(
        id=row.id or 0,
        href=found.link(f"/incidents/{row.id}"),
        severity=chips.SEVERITY[row.severity],
        headline=first(row.headline),
        sub=handled(standing, found.now),
        state=waits if standing.waits and live else chips.INCIDENT[row.state],
        node=device(row.entity_name),
        job=row.job or "none",
        open_for=age((end - row.opened_at).total_seconds()),
        since=clock(row.opened_at, found.now),
    )


def handled(standing: Standing, now: datetime) -> str:
    """What is being done about it, in one sentence."""
    row, decision = standing.incident, standing.decision
    if row.state == "resolved":
        return sentence(row.close_note or "Closed")
    owner = f"{row.acknowledged_by} has it. " if row.acknowledged_by else ""
    if row.blind:
        return f"{owner}Blind, so not clear."
    going = [order for order in standing.orders if order.state in ("waiting", "claimed", "sent")]
    if going:
        return f"{owner}{order_text(going[0])}: {chips.ORDER[going[0].state].word}."
    if row.state == "mitigated":
        return f"{owner}Mitigated {ago(row.mitigated_at, now)}; watched until it is clear."
    if decision is None:
        return f"{owner}Not decided yet."
    said = {
        "proposed": "A plan waits for approval.",
        "approved": f"Approved by {decision.decided_by}.",
        "automatic": "Act mode carries it out.",
        "rejected": f"The plan was rejected by {decision.decided_by}.",
        "observed": "Observe mode: nothing is done.",
    }
    return owner + said.get(decision.state, "Watched; no action is called for.")


# --- the rack map ---------------------------------------------------------------------------------------------------


def map_places(fleet: FleetState, rack: str = "") -> tuple[Place, ...]:
    return tuple(Place(n.name, n.rack, n.gpus) for n in fleet.nodes if not rack or n.rack == rack)


def marks(fleet: FleetState) -> tuple[Mark, ...]:
    """One ring an incident and place: the worst, if several of its reasons stand there."""
    found: dict[tuple[int, str, int | None], Mark] = {}
    for t in fleet.troubles:
        if t.incident is not None and t.state != "excluded":
            found.setdefault((t.incident, t.node, t.gpu), Mark(t.node, t.gpu, t.state, str(t.incident)))
    return tuple(found.values())


def rings(fleet: FleetState, found: Visit, rack: str = "", most: int = 20) -> tuple[Ring, ...]:
    """Links under the map, one an incident that is drawn, worst first."""
    by_incident: dict[int, list[Trouble]] = {}
    for t in fleet.troubles:
        if t.incident is not None and t.state != "excluded" and (not rack or t.rack == rack):
            by_incident.setdefault(t.incident, []).append(t)
    return tuple(
        Ring(ts[0].state, f"{number_} {listed([place_name(t) for t in ts], 2)}", found.link(f"/incidents/{number_}"))
        for number_, ts in list(by_incident.items())[:most]
    )


def place_name(t: Trouble) -> str:
    return t.node if t.gpu is None else f"{t.node} GPU\u00a0{t.gpu}"


def counts(fleet: FleetState, found: Visit, current: str = "") -> tuple[Count, ...]:
    order = ("ok", *reversed([state for state in STATES if state != "ok"]))
    return tuple(
        Count(
            state=state,
            word=STATE_WORDS[state],
            count=number(fleet.counts.get(state, 0)),  # type: ignore[call-overload]  # states are a Literal there
            href=found.link("/fleet", state="" if state == current else state),
            current=state == current,
        )
        for state in order
    )


def map_figure(fleet: FleetState, found: Visit, rack: str = "") -> Figure:
    places = map_places(fleet, rack)
    shown = {state: sum(p.states.count(state) for p in places) for state in STATES}
    racks = len({p.rack for p in places})
    total = sum(shown.values())
    said = ", ".join(
        f"{shown[s]:,} {STATE_WORDS[s]}" for s in ("ok", "failed", "suspect", "draining", "excluded", "unknown")
    )
    nothing = Told(
        False, "No GPU is known yet", ("Nodes come by topology, by the scheduler, or with the first telemetry.",)
    )
    return Figure(
        id="map",
        url=found.link("/figures/fleet.json", rack=rack),
        size="",
        label=f"Map of {count(total, 'GPU')} in {count(racks, 'rack')}. {said}.",
        caption="",
        twin=Twin(
            ("Rack", "Nodes", "#GPUs", "State"), map_rows(fleet, rack), found.link("/figures/fleet.csv", rack=rack)
        ),
        absent=None if total else nothing,
        zoom="" if rack else found.link("/fleet"),
    )


def map_rows(fleet: FleetState, rack: str = "") -> tuple[tuple[str | Chip, ...], ...]:
    """The map as a table: GPUs that are not ok by rack and state, worst first, and the rest in one row."""
    groups: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for node in fleet.nodes:
        for state in dict.fromkeys(node.gpus):
            if not rack or node.rack == rack:
                groups.setdefault((state, node.rack), []).append((node.name, node.gpus.count(state)))
    bad = sorted((key for key in groups if key[0] != "ok"), key=lambda key: -STATES.index(key[0]))
    rows: list[tuple[str | Chip, ...]] = [
        (
            r or "none",
            listed([n for n, _ in groups[state, r]], 6),
            number(sum(c for _, c in groups[state, r])),
            chips.DEVICE[state],
        )
        for state, r in bad
    ]
    fine = [(r, groups[state, r]) for state, r in groups if state == "ok"]
    if fine:
        whole = count(sum(len(nodes) for _, nodes in fine), "node")
        rows.append(
            (count(len(fine), "rack"), whole, number(sum(c for _, g in fine for _, c in g)), chips.DEVICE["ok"])
        )
    return tuple(rows)


def deciders_name(by: Mapping[int, str], orders: Sequence[Order], found: Visit) -> tuple[DeedRow, ...]:
    return tuple(
        deed(o, by.get(o.decision_id, "watchkeeper"), found.now, found.link(f"/incidents/{o.incident_id}"))
        for o in orders
    )
