"""The way back: nodes that were seen and clear long enough are given back, then their incidents close."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Session

from backend import breaker
from backend.facts import Verb
from backend.incidents import lifecycle
from backend.model.actions import Order
from backend.model.cluster import Node
from backend.model.incidents import Incident
from backend.store import actions, incidents, system
from backend.store import checks as results
from backend.store.claims import Conflict
from backend.telling import announce
from backend.watch import Watch

#: How long to wait before a refused resume is ordered again.
UNDO_AGAIN_S = 60.0
#: How long to wait before a node whose check failed is checked again; a person's word that it is mended needs no check.
CHECK_AGAIN_S = 3600.0
#: In the key of a resume that a person ordered before the incident was clear.
UNDO = "undo"


def settle_returns(watch: Watch) -> bool:
    """Incidents seen and clear for hold_s: give their nodes back, then close them. True when one moved."""
    with watch.store.read() as session:
        cleared = incidents.cleared(session, watch.cluster, watch.rules.hold_s)
        ready = [row.id for row in cleared if row.kind != breaker.KIND or row.resolving_by]
    moved = False
    for incident_id in ready:
        with watch.turn() as session:
            incident = session.get_one(Incident, incident_id)
            if still_fails(session, watch, incident):
                continue
            if lifecycle.seen_clear(incident, watch.rules.hold_s):
                moved |= give_back(session, watch, incident, incident.resolving_by)
    if moved:
        watch.changes.nudge()
    return moved


def still_fails(session: Session, watch: Watch, incident: Incident) -> bool:
    """A check that failed holds its incident until it passes or a person says that it is mended, however busy the
    sweep is with other nodes. The time that it must be clear begins anew."""
    known = {check.name for check in watch.checks}
    failing = results.failing(session, watch.cluster) if known and not incident.resolving_by else ()
    if not any(row.incident_id == incident.id and row.name in known for row in failing):
        return False
    incident.clear_s = 0.0
    session.add(incident)
    return True


def give_back(session: Session, watch: Watch, incident: Incident, actor: str = "") -> bool:
    """Resume what stands drained for this incident; once all is back, lift its exclusions and close it.

    A node that another loud incident still touches stays out: that one inherits it and gives it back. True when
    something moved.
    """
    orders = actions.orders_of(session, incident.id or 0)
    if any(o.state in actions.PENDING for o in orders):
        return False
    if incident.drill:  # it took nothing out, so it gives nothing back
        close(session, watch, incident, actor)
        return True
    heir = lifecycle.heir_of(session, incident)
    if heir is not None:
        hand_over(session, incident, heir, watch.clock.now())
        close(session, watch, incident, actor)
        return True
    nodes = {incident.node, *(o.node for o in orders)} - {""}
    standing = [d for node in sorted(nodes) for d in actions.standing_drains(session, watch.cluster, node)[-1:]]
    missing = [d for d in standing if not kept_by_cluster(session, d) and not has_left(session, d)]
    if missing:
        return any([resume(session, watch, incident, drain) for drain in missing])
    if any(o.undoes_id is None and o.state == "uncertain" for o in orders) and not actor:
        return False  # whether the node is drained nobody knows: a person closes it
    close(session, watch, incident, actor)
    return True


def hand_over(session: Session, incident: Incident, heir: Incident, now: datetime) -> None:
    """What keeps the node out belongs to the heir from now on."""
    for row in actions.exclusions_of(session, incident.id or 0):
        row.incident_id = heir.id
        session.add(row)
    incidents.tell(session, incident, now, "handed_over", f"{incident.node} stays out for incident {heir.id}.")
    incidents.tell(session, heir, now, "inherited", f"{incident.node} stays out for this since incident {incident.id}.")


def kept_by_cluster(session: Session, drain: Order) -> bool:
    """The cluster said for good that the node is not ours to give back: somebody else holds it now."""
    undos = actions.undos_of(session, drain)
    return any(o.state == "failed" and o.attempts < actions.MOST_ATTEMPTS for o in undos)


def has_left(session: Session, drain: Order) -> bool:
    """The node is not in the fleet any more: there is nothing to give back."""
    node = session.get(Node, (drain.cluster, drain.node))
    return node is not None and node.retired_at is not None


def resume(session: Session, watch: Watch, incident: Incident, drain: Order) -> bool:
    """Order a drained node back, after its check where there is one; approving the drain approved both. A resume that a
    guard refused, or that the cluster never answered, is ordered again, but not at every turn, and not while nothing at
    all may be sent."""
    now, undos = watch.clock.now(), actions.undos_of(session, drain)
    if undos and (watch.rules.mode == "observe" or system.kill_switch(session, watch.cluster)):
        return False
    ends = [o.ended_at or o.created_at for o in undos]
    if ends and (now - max(ends)).total_seconds() < UNDO_AGAIN_S:
        return False
    checked: int | None = None
    if not incident.resolving_by and watch.backend is not None and Verb.CHECK in watch.backend.can:
        checks = actions.checks_of(session, drain)
        failed = next((o.ended_at for o in reversed(checks) if o.state == "failed" and o.ended_at), None)
        if failed is not None and (now - failed).total_seconds() < CHECK_AGAIN_S:
            return False
        check = _order(drain, incident, Verb.CHECK, f"o{drain.id}:check:{len(checks)}", now)
        session.add(check)
        session.flush()
        checked = check.id
    order = _order(drain, incident, Verb.RESUME, f"o{drain.id}:resume:{len(undos)}", now)
    order.undoes_id, order.after_id = drain.id, checked
    session.add(order)
    return True


def take_back(session: Session, watch: Watch, drain: Order, by: str, reason: str) -> Order:
    """A person undoes a drain before its incident is clear: the node is ordered back, and once it is, what kept work
    from it for this incident is lifted. Raises Conflict where that drain no longer stands, is on its way back already,
    or nothing may be sent to the cluster."""
    now = watch.clock.now()
    if watch.rules.mode == "observe":
        raise Conflict(f"In observe mode nothing is sent to the cluster: resume {drain.node} there yourself.")
    if system.kill_switch(session, watch.cluster):
        raise Conflict(f"The kill switch is on: release it first, or resume {drain.node} yourself.")
    standing = actions.standing_drains(session, watch.cluster, drain.node)
    if drain.verb != Verb.DRAIN or drain.id not in [row.id for row in standing]:
        raise Conflict(f"Order {drain.id} keeps no node out now; there is nothing to undo.")
    undos = actions.undos_of(session, standing[-1])
    if any(row.state in actions.PENDING for row in undos):
        raise Conflict(f"{drain.node} is on its way back already.")
    incident = session.get_one(Incident, drain.incident_id)
    heir = lifecycle.heir_of(session, incident)
    if heir is not None:
        raise Conflict(f"Incident {heir.id} keeps {drain.node} out as well; close that one first.")
    order = _order(standing[-1], incident, Verb.RESUME, f"o{standing[-1].id}:{UNDO}:{len(undos)}", now)
    order.undoes_id = standing[-1].id
    session.add(order)
    said = f"{by} undid the drain of {drain.node}." + (f" {reason}" if reason else "")
    session.flush()
    incidents.tell(session, incident, now, "undone", said, by, order=order.id, reason=reason)
    return order


def _order(drain: Order, incident: Incident, verb: Verb, key: str, now: datetime) -> Order:
    """An order that follows from a drain: approving that one approved it."""
    return Order(
        cluster=drain.cluster,
        key=key,
        decision_id=drain.decision_id,
        incident_id=incident.id or 0,
        verb=verb.value,
        node=drain.node,
        kind=drain.kind,
        reason=drain.reason,
        created_at=now,
        not_before=now,
    )


def close(session: Session, watch: Watch, incident: Incident, actor: str = "") -> None:
    """Lift what the incident excluded, withdraw what it still proposes, resolve it and say so once."""
    now = watch.clock.now()
    for row in actions.exclusions_of(session, incident.id or 0):
        row.lifted_at, row.lifted_by, row.lift_reason = now, actor or "watchkeeper", "the incident closed"
        session.add(row)
    decision = actions.latest_decision(session, incident.id or 0)
    if decision is not None and decision.state in ("proposed", "observed"):
        decision.state = "superseded"
        session.add(decision)
    back = " What was taken out is back." if actions.orders_of(session, incident.id or 0) else ""
    left = session.get(Node, (incident.cluster, incident.node)) if incident.node else None
    if left is not None and left.retired_at is not None:
        back = f" {incident.node} left the fleet."
    text = f"{actor} resolved it." if actor else f"Seen and clear long enough.{back}"
    lifecycle.close(session, incident, now, text, actor)
    announce(session, watch, incident, decision, "closed")
