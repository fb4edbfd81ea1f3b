"""What would be done about an incident, and who said yes: a decision a revision, then an exclusion and orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta

from sqlmodel import Session

from backend import breaker
from backend.act.base import reason_text
from backend.cases import case_of, costs_of, plan_of, restart_of
from backend.decide.decide import decide
from backend.decide.guards import judge
from backend.decide.storm import is_wide
from backend.facts import DecisionFacts, GuardVerdict, Rung, Verb
from backend.model.actions import Decision, Exclusion, Order
from backend.model.incidents import Incident
from backend.store import actions, incidents
from backend.store.claims import Conflict as Conflict
from backend.store.claims import claim
from backend.telling import announce
from backend.watch import Watch

#: How long to wait before a plan of act mode that a guard refused is judged again.
AGAIN_S = 15.0


class Refused(Exception):
    """A guard refuses: nothing happened. ``guards`` are all verdicts, for the person who pressed."""

    def __init__(self, guards: Sequence[GuardVerdict]) -> None:
        against = [g for g in guards if g.verdict == "refuses"]
        super().__init__("; ".join(g.reason for g in against))
        self.guards = tuple(guards)


# --- propose --------------------------------------------------------------------------------------------------------


def propose(watch: Watch) -> bool:
    """Decide about each live incident that changed since it was last decided. True when there was one."""
    breaker.look(watch)
    with watch.store.read() as session:
        undecided = {(row.id or 0, row.revision): None for row in incidents.undecided(session, watch.cluster)}
    now = watch.clock.now()
    watch.judge_again = {key: at for key, at in watch.judge_again.items() if key in undecided}
    waiting = [key[0] for key in undecided if watch.judge_again.get(key, now) <= now]
    for incident_id in waiting:
        with watch.turn() as session:
            incident = session.get_one(Incident, incident_id)
            if incident.decided_revision < incident.revision:
                propose_one(session, watch, incident)
    if waiting:
        watch.changes.nudge()
    return bool(waiting)


def reconsider(watch: Watch) -> int:
    """At start: what was decided in another mode is decided again in this one. Returns how many incidents that is."""
    found = 0
    with watch.turn() as session:
        for incident in incidents.live(session, watch.cluster):
            standing = actions.latest_decision(session, incident.id or 0)
            if standing is not None and standing.mode != watch.rules.mode:
                incident.revision += 1
                session.add(incident)
                found += 1
    return found


def propose_one(session: Session, watch: Watch, incident: Incident) -> None:
    """One decision for the newest revision; a standing one that says the same is kept. What act mode would do and a
    guard refuses is judged again: a state that was too old, or another action's rest, passes."""
    now = watch.clock.now()
    case = case_of(session, watch, incident)
    facts = decide(case, watch.catalogue.kinds, watch.rules.limits, costs_of(case), restart_of(watch, case))
    standing = actions.latest_decision(session, incident.id or 0)
    incident.decided_revision = incident.revision
    session.add(incident)
    if standing is None or not settled_by(standing, facts):
        if standing is not None and standing.state in ("proposed", "observed", "nothing"):
            standing.state = "superseded"
            session.add(standing)
        if standing is not None and standing.revision == incident.revision:
            incident.revision += 1  # a plan of act mode that was judged again, and came out as another one
            incident.decided_revision = incident.revision
        standing = _store_decision(session, incident, facts, now)
        incidents.tell(session, incident, now, "decision", facts.sentence, decision=standing.id)
    if standing.state == "automatic" and facts.allowed:
        enact(session, watch, incident, standing, origin="act", actor="watchkeeper")
    elif standing.state == "automatic" and facts.acts:
        standing.guards = [asdict(guard) for guard in facts.guards]
        incident.decided_revision = incident.revision - 1
        watch.judge_again[(incident.id or 0, incident.revision)] = now + timedelta(seconds=AGAIN_S)
    if not breaker.said_by(session, watch, incident):
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

    A wide plan waits for a second person. Raises Conflict where the decision no longer waits, Refused where a guard
    says no; then nothing has happened.
    """
    if decision.state != "proposed":
        raise Conflict(f"Decision {decision.id} is {decision.state}; it no longer waits for anybody.")
    incident, limits, plan = session.get_one(Incident, decision.incident_id), watch.rules.limits, plan_of(decision)
    case = case_of(session, watch, incident)
    guards = judge(case, plan, limits)
    if any(g.verdict == "refuses" for g in guards):
        raise Refused(guards)
    now = watch.clock.now()
    if is_wide(case, plan, limits):
        if actor in decision.approvals:
            raise Conflict(f"{actor} approved decision {decision.id} already; another person has to as well.")
        decision.approvals = [*decision.approvals, actor]
        decision.guards = [asdict(g) for g in judge(replace(case, approved_by=tuple(decision.approvals)), plan, limits)]
        session.add(decision)
        if len(decision.approvals) < 2:
            said = f"{actor} approved; a second person has to as well: {decision.sentence}"
            incidents.tell(session, incident, now, "approved_once", said, actor)
            return decision
    change = {"state": "approved", "decided_by": actor, "decided_at": now, "note": note}
    if not claim(session, Decision, decision.id, {"state": "proposed"}, change):
        raise Conflict(f"Somebody else decided about decision {decision.id} a moment ago.")
    enact(session, watch, incident, decision, origin="approved", actor=actor)
    incidents.tell(session, incident, now, "approved", f"{actor} approved: {decision.sentence}", actor)
    return decision


def enact(session: Session, watch: Watch, incident: Incident, decision: Decision, *, origin: str, actor: str) -> None:
    """The plan as rows: one exclusion a node, one order a step; what comes after a drain waits for it."""
    now = watch.clock.now()
    before: int | None = None
    for step in plan_of(decision):
        if step.rung is Rung.EXCLUDE and not incident.drill:
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
            after_id=before if not incident.drill else None,
            created_at=now,
            not_before=now,
        )
        session.add(order)
        session.flush()
        before = order.id if step.verb is Verb.DRAIN else before


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
