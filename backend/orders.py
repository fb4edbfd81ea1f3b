"""From an incident to the cluster and back: propose, approve, judge at each border, carry out once, undo, close."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import Session

from backend.act.base import ActionError, ClusterBackend, reason_text
from backend.cases import case_of, plan_of
from backend.decide.decide import decide
from backend.decide.guards import judge
from backend.facts import DecisionFacts, GuardVerdict, NodeFacts, OrderFacts, Outcome, Rung, Verb
from backend.incidents import lifecycle
from backend.model.actions import Decision, Exclusion, Order
from backend.model.incidents import Incident
from backend.store import actions, incidents
from backend.store.claims import claim
from backend.telling import announce
from backend.watch import Watch

#: How long to wait before an order that the cluster did not answer is tried again, and how often.
RETRY_S = 15.0
MOST_ATTEMPTS = 8
#: How long to wait before a refused resume is ordered again.
UNDO_AGAIN_S = 60.0


class Refused(Exception):
    """A guard refuses: nothing happened. ``guards`` are all verdicts, for the person who pressed."""

    def __init__(self, guards: Sequence[GuardVerdict]) -> None:
        against = [g for g in guards if g.verdict == "refuses"]
        super().__init__("; ".join(g.reason for g in against))
        self.guards = tuple(guards)


class Conflict(Exception):
    """The row is not in the state that the request needs: somebody was faster, or the page was old."""


# --- propose --------------------------------------------------------------------------------------------------------


def propose(watch: Watch) -> bool:
    """Decide about each live incident that changed since it was last decided. True when there was one."""
    with watch.store.read() as session:
        waiting = [row.id for row in incidents.undecided(session, watch.cluster)]
    for incident_id in waiting:
        with watch.store.write() as session:
            incident = session.get_one(Incident, incident_id)
            if incident.decided_revision < incident.revision:
                propose_one(session, watch, incident)
    if waiting:
        watch.changes.nudge()
    return bool(waiting)


def propose_one(session: Session, watch: Watch, incident: Incident) -> None:
    """One decision for the newest revision; a standing one that says the same is kept."""
    now = watch.clock.now()
    facts = decide(case_of(session, watch, incident), watch.catalogue.kinds, watch.rules.limits)
    standing = actions.latest_decision(session, incident.id or 0)
    incident.decided_revision = incident.revision
    session.add(incident)
    if standing is None or not settled_by(standing, facts):
        if standing is not None and standing.state in ("proposed", "observed", "nothing"):
            standing.state = "superseded"
            session.add(standing)
        standing = _store_decision(session, incident, facts, now)
        incidents.tell(session, incident, now, "decision", facts.sentence, decision=standing.id)
    if standing.state == "automatic" and facts.allowed:
        enact(session, watch, incident, standing, origin="act", actor="watchkeeper")
    announce(session, watch, incident, standing, "opened")


def settled_by(standing: Decision, facts: DecisionFacts) -> bool:
    """Does the standing decision already say this, or has somebody decided on this very plan?"""
    if standing.state == "superseded":
        return False
    return standing.plan == [asdict(step) for step in facts.plan] and standing.mode == facts.mode


def _store_decision(session: Session, incident: Incident, facts: DecisionFacts, now: datetime) -> Decision:
    state = {"observe": "observed", "propose": "proposed", "act": "automatic"}[facts.mode]
    row = Decision(
        cluster=incident.cluster,
        incident_id=incident.id or 0,
        revision=incident.revision,
        at=now,
        mode=facts.mode,
        state=state if facts.acts else "nothing",
        sentence=facts.sentence,
        recommended=facts.recommended.value,
        plan=[asdict(step) for step in facts.plan],
        advice=list(facts.advice),
        blast=asdict(facts.blast),
        guards=[asdict(guard) for guard in facts.guards],
        dark=list(facts.dark),
    )
    session.add(row)
    session.flush()
    return row


# --- approve --------------------------------------------------------------------------------------------------------


def approve(session: Session, watch: Watch, decision: Decision, actor: str, note: str) -> Decision:
    """The click: guards run again on what is known now, then the plan becomes an exclusion and orders.

    Raises Conflict where the decision no longer waits, Refused where a guard says no; then nothing has happened.
    """
    if decision.state != "proposed":
        raise Conflict(f"Decision {decision.id} is {decision.state}; it no longer waits for anybody.")
    incident = session.get_one(Incident, decision.incident_id)
    case = case_of(session, watch, incident)
    guards = judge(case, plan_of(decision), watch.rules.limits)
    if any(g.verdict == "refuses" for g in guards):
        raise Refused(guards)
    now = watch.clock.now()
    change = {"state": "approved", "decided_by": actor, "decided_at": now, "note": note}
    if not claim(session, Decision, decision.id, {"state": "proposed"}, change):
        raise Conflict(f"Somebody else decided about decision {decision.id} a moment ago.")
    enact(session, watch, incident, decision, origin="approved", actor=actor)
    incidents.tell(session, incident, now, "approved", f"{actor} approved: {decision.sentence}", actor)
    return decision


def enact(session: Session, watch: Watch, incident: Incident, decision: Decision, *, origin: str, actor: str) -> None:
    """The plan as rows: one exclusion a node, one order a step, each waiting for the one before it."""
    now = watch.clock.now()
    before: int | None = None
    for step in plan_of(decision):
        if step.rung is Rung.EXCLUDE:
            _exclude(session, watch, incident, step.node, origin, actor, now)
        if step.verb is None:
            continue
        key = f"d{decision.id}:{step.verb.value}:{step.job or step.node}"
        if actions.order_by_key(session, watch.cluster, key) is not None:
            continue
        order = Order(
            cluster=watch.cluster,
            key=key,
            decision_id=decision.id or 0,
            incident_id=incident.id or 0,
            verb=step.verb.value,
            node=step.node,
            job=step.job,
            kind=incident.kind,
            reason=reason_text(incident.kind, gpu_index(incident.entity_name), incident.id or 0),
            exclude=[step.node] if step.verb is Verb.REQUEUE and step.node else [],
            after_id=before,
            created_at=now,
            not_before=now,
        )
        session.add(order)
        session.flush()
        before = order.id


def _exclude(
    session: Session, watch: Watch, incident: Incident, node: str, origin: str, actor: str, now: datetime
) -> None:
    if any(row.node == node for row in actions.exclusions_of(session, incident.id or 0)):
        return
    session.add(
        Exclusion(
            cluster=watch.cluster,
            node=node,
            owner=actor,
            origin=origin,
            reason=incident.headline,
            kind=incident.kind,
            incident_id=incident.id,
            created_at=now,
            until=now + timedelta(seconds=watch.rules.limits.exclude_s),
        )
    )


def gpu_index(entity_name: str) -> str:
    """``3`` of ``gpu-0412/gpu3``; empty where the entity is no GPU."""
    place = entity_name.rpartition("/gpu")
    return place[2] if place[1] and place[2].isdigit() else ""


# --- carry out ------------------------------------------------------------------------------------------------------


def act(watch: Watch) -> bool:
    """Claim one order and carry it out. True when there may be more."""
    if watch.backend is None:
        return False
    recovered = recover(watch, watch.backend)
    claimed = _claim_next(watch)
    if claimed is not None:
        watch.reached("claim committed")
        carry_out(watch, watch.backend, claimed)
    return recovered or claimed is not None


def _claim_next(watch: Watch) -> Order | None:
    now = watch.clock.now()
    with watch.store.write() as session:
        for order in actions.due_orders(session, watch.cluster, now):
            before = session.get(Order, order.after_id) if order.after_id else None
            if before is not None and before.state in actions.FAILED:
                _end(session, order, "cancelled", now, f"Order {before.id} before it ended as {before.state}.")
            elif before is not None and before.state != "done":
                continue
            elif actions.claim_order(session, order, watch.who, now, watch.rules.lease_s):
                session.refresh(order)
                return order
    return None


def judge_order(session: Session, watch: Watch, order: Order, node: NodeFacts | None) -> tuple[GuardVerdict, ...]:
    """The guards inside the claim, on what was just read from the cluster."""
    incident = session.get_one(Incident, order.incident_id)
    case = case_of(session, watch, incident, node=node, but_decision=order.decision_id)
    decision = session.get_one(Decision, order.decision_id)
    steps = [s for s in plan_of(decision) if s.verb is not None and s.verb.value == order.verb]
    if order.verb == Verb.RESUME:
        steps = []
    guards = judge(case, tuple(steps), watch.rules.limits)
    return tuple(g for g in guards if g.guard != "a person approves")


def carry_out(watch: Watch, backend: ClusterBackend, order: Order) -> None:
    """read -> guards -> sent or refused (commit) -> call -> read back -> outcome (commit): contracts.md."""
    try:
        node = backend.read(order.node) if order.node else None
        witness = backend.witness(facts_of(order))
    except ActionError as error:
        _not_sent(watch, order, error)
        return
    with watch.store.write() as session:
        guards = judge_order(session, watch, order, node)
        now = watch.clock.now()
        refused = [g.reason for g in guards if g.verdict == "refuses"]
        change: dict[str, Any] = {"guards": [asdict(g) for g in guards], "witness": witness}
        change |= {"state": "refused", "ended_at": now, "error": "; ".join(refused)} if refused else {}
        change |= {} if refused else {"state": "sent", "sent_at": now}
        mine = claim(session, Order, order.id, {"state": "claimed", "claimed_by": watch.who}, change)
        if mine and refused:
            _tell_end(session, watch, order, "refused", "; ".join(refused))
    if not mine or refused:
        watch.changes.nudge()
        return
    try:
        outcome = backend.perform(replace(facts_of(order), witness=witness))
    except ActionError as error:
        _not_done(watch, order, error)
        return
    watch.reached(f"{order.verb} sent")
    finish(watch, order, outcome)
    watch.reached("outcome committed")


def facts_of(order: Order) -> OrderFacts:
    return OrderFacts(
        id=order.id or 0,
        cluster=order.cluster,
        verb=Verb(order.verb),
        node=order.node,
        job=order.job,
        kind=order.kind,
        incident=order.incident_id,
        reason=order.reason,
        exclude=tuple(order.exclude),
        witness={key: str(value) for key, value in order.witness.items()},
    )


def finish(watch: Watch, order: Order, outcome: Outcome) -> None:
    """Commit what the cluster did."""
    now = watch.clock.now()
    with watch.store.write() as session:
        change = {"state": "done", "ended_at": now, "outcome": outcome.text, "error": ""}
        if claim(session, Order, order.id, {"state": "sent"}, change):
            _tell_end(session, watch, order, "done", outcome.text)
            _mitigated(session, watch, order.incident_id, now)
    watch.changes.nudge()


def _mitigated(session: Session, watch: Watch, incident_id: int, now: datetime) -> None:
    incident = session.get_one(Incident, incident_id)
    done = all(o.state == "done" for o in actions.orders_of(session, incident_id))
    if done and incident.state in ("open", "acknowledged"):
        incident.state, incident.mitigated_at, incident.changed_at = "mitigated", now, now
        session.add(incident)
        incidents.tell(session, incident, now, "mitigated", "The node is out of work and its job runs elsewhere.")
        announce(session, watch, incident, actions.latest_decision(session, incident_id), "changed")


def _not_sent(watch: Watch, order: Order, error: ActionError) -> None:
    """Nothing was called yet: wait and claim again, or give up where trying again is useless."""
    _give_back(watch, order, "claimed", error)


def _not_done(watch: Watch, order: Order, error: ActionError) -> None:
    """The call failed. Not answered: the witness settles it after the lease, never a blind re-send."""
    if error.permanent:
        _give_back(watch, order, "sent", error)
        return
    with watch.store.write() as session:
        claim(session, Order, order.id, {"state": "sent"}, {"error": str(error)})
    watch.changes.nudge()


def _give_back(watch: Watch, order: Order, state: str, error: ActionError) -> None:
    now = watch.clock.now()
    final = error.permanent or order.attempts >= MOST_ATTEMPTS
    with watch.store.write() as session:
        change: dict[str, Any] = {"error": str(error), "lease_until": None, "claimed_by": ""}
        change |= {"state": "failed", "ended_at": now} if final else {"state": "waiting"}
        change |= {} if final else {"not_before": now + timedelta(seconds=RETRY_S)}
        if claim(session, Order, order.id, {"state": state}, change) and final:
            _tell_end(session, watch, order, "failed", str(error))
    watch.changes.nudge()


def recover(watch: Watch, backend: ClusterBackend) -> bool:
    """Orders whose process died: never sent ones wait again, sent ones are settled by their witness."""
    now = watch.clock.now()
    with watch.store.read() as session:
        lost = actions.lost_orders(session, watch.cluster, now)
    for order in lost:
        if order.state == "claimed":
            with watch.store.write() as session:
                expect = {"state": "claimed", "claimed_by": order.claimed_by}
                claim(session, Order, order.id, expect, {"state": "waiting", "claimed_by": "", "lease_until": None})
        else:
            _settle(watch, backend, order)
    return bool(lost)


def _settle(watch: Watch, backend: ClusterBackend, order: Order) -> None:
    now = watch.clock.now()
    lease = {"lease_until": now + timedelta(seconds=watch.rules.lease_s), "claimed_by": watch.who}
    with watch.store.write() as session:
        if not claim(session, Order, order.id, {"state": "sent", "claimed_by": order.claimed_by}, lease):
            return
    try:
        outcome = backend.settle(facts_of(order))
    except ActionError as error:
        if error.permanent:
            _uncertain(watch, order, str(error))
        return
    if outcome is not None:
        finish(watch, order, outcome)
        return
    with watch.store.write() as session:
        change = {"state": "waiting", "claimed_by": "", "lease_until": None, "not_before": now}
        claim(session, Order, order.id, {"state": "sent"}, change)


def _uncertain(watch: Watch, order: Order, why: str) -> None:
    with watch.store.write() as session:
        now = watch.clock.now()
        if claim(session, Order, order.id, {"state": "sent"}, {"state": "uncertain", "ended_at": now, "error": why}):
            _tell_end(session, watch, order, "uncertain", why)
    watch.changes.nudge()


def _end(session: Session, order: Order, state: str, now: datetime, why: str) -> None:
    claim(session, Order, order.id, {"state": "waiting"}, {"state": state, "ended_at": now, "error": why})


def _tell_end(session: Session, watch: Watch, order: Order, state: str, text: str) -> None:
    incident = session.get_one(Incident, order.incident_id)
    incidents.tell(session, incident, watch.clock.now(), f"order_{state}", text, order=order.id, verb=order.verb)


# --- return and close -----------------------------------------------------------------------------------------------


def settle_returns(watch: Watch) -> bool:
    """Incidents seen and clear for hold_s: give their nodes back, then close them. True when one moved."""
    with watch.store.read() as session:
        rows = incidents.live(session, watch.cluster)
        ready = [row.id for row in rows if not row.blind and row.clear_s >= watch.rules.hold_s]
    moved = False
    for incident_id in ready:
        with watch.store.write() as session:
            moved |= give_back(session, watch, session.get_one(Incident, incident_id))
    if moved:
        watch.changes.nudge()
    return moved


def give_back(session: Session, watch: Watch, incident: Incident, actor: str = "") -> bool:
    """Resume what we drained for this incident; once all is back, lift its exclusions and close it."""
    orders = actions.orders_of(session, incident.id or 0)
    now = watch.clock.now()
    if any(o.state in actions.PENDING for o in orders):
        return False
    drains = [o for o in orders if o.verb == Verb.DRAIN and o.state == "done" and not undone(o, orders)]
    missing = [drain for drain in drains if not held_by_another(session, drain)]
    due = [drain for drain in missing if may_try_again(drain, orders, now)]
    for drain in due:
        newest = actions.standing_drains(session, watch.cluster, drain.node)[-1:] or [drain]
        session.add(undo_of(drain, newest[0].reason, len(orders), now))
    if missing:
        return bool(due)
    if any(o.undoes_id is None and o.state == "uncertain" for o in orders) and not actor:
        return False  # whether the node is drained nobody knows: a person closes it
    close(session, watch, incident, actor)
    return True


def undone(drain: Order, orders: Sequence[Order]) -> bool:
    """Given back, or the cluster said for good that it is not ours to give: somebody else holds the node now."""
    undos = [o for o in orders if o.undoes_id == drain.id]
    return any(o.state == "done" or (o.state == "failed" and o.attempts < MOST_ATTEMPTS) for o in undos)


def may_try_again(drain: Order, orders: Sequence[Order], now: datetime) -> bool:
    """A resume that a guard refused, or that the cluster never answered, is tried again, but not at every turn."""
    ends = [o.ended_at or o.created_at for o in orders if o.undoes_id == drain.id]
    return not ends or (now - max(ends)).total_seconds() >= UNDO_AGAIN_S


def held_by_another(session: Session, drain: Order) -> bool:
    """Another live incident drained the same node: whoever closes last gives it back."""
    others = actions.standing_drains(session, drain.cluster, drain.node)
    asking = {o.incident_id for o in others} - {drain.incident_id}
    return any(session.get_one(Incident, number).state != "resolved" for number in asking)


def undo_of(drain: Order, reason: str, number: int, now: datetime) -> Order:
    """The order that gives a drained node back; approving the drain approved it. ``reason`` is what stands at the node
    now: the newest of our drains wrote it."""
    return Order(
        cluster=drain.cluster,
        key=f"o{drain.id}:resume:{number}",
        decision_id=drain.decision_id,
        incident_id=drain.incident_id,
        verb=Verb.RESUME.value,
        node=drain.node,
        kind=drain.kind,
        reason=reason,
        undoes_id=drain.id,
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
    text = f"{actor} resolved it." if actor else "Seen and clear long enough; what was taken out is back."
    lifecycle.close(session, incident, now, text, actor)
    announce(session, watch, incident, decision, "closed")
