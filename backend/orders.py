"""Orders, each at most once: claimed, judged on what was just read, sent, read back; a witness settles a crash."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import Session

from backend.act.base import ActionError, ClusterBackend
from backend.cases import case_of, plan_of
from backend.decide.guards import judge
from backend.facts import GuardVerdict, NodeFacts, OrderFacts, Outcome, Verb
from backend.incidents import lifecycle
from backend.model.actions import Decision, Order
from backend.model.incidents import Incident
from backend.store import actions, incidents
from backend.store.claims import claim
from backend.telling import announce
from backend.watch import Watch

#: How long to wait before an order that the cluster did not answer is tried again, and how often.
RETRY_S = 15.0
#: How long to wait before a node that has to be empty is looked at again.
EMPTY_S = 60.0
#: How the order of a drill ends, once every guard held.
DRILLED = "A drill: every guard held, and nothing was sent."


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


def check(watch: Watch) -> bool:
    """Claim one check of a node and run it: minutes long, so that it stands in a loop of its own."""
    if watch.backend is None or Verb.CHECK not in watch.backend.can:
        return False
    claimed = _claim_next(watch, checks=True)
    if claimed is not None:
        carry_out(watch, watch.backend, claimed)
    return claimed is not None


def _claim_next(watch: Watch, *, checks: bool = False) -> Order | None:
    now = watch.clock.now()
    lease_s = watch.rules.lease_s + (watch.rules.check_s if checks else 0.0)
    with watch.turn() as session:
        for order in actions.due_orders(session, watch.cluster, now, checks=checks):
            before = session.get(Order, order.after_id) if order.after_id else None
            if before is not None and before.state in actions.FAILED:
                _end(session, order, "cancelled", now, f"Order {before.id} before it ended as {before.state}.")
            elif actions.claim_order(session, order, watch.who, now, lease_s):
                session.refresh(order)
                return order
    return None


def judge_order(session: Session, watch: Watch, order: Order, node: NodeFacts | None) -> tuple[GuardVerdict, ...]:
    """The guards inside the claim, on what was just read from the cluster."""
    incident = session.get_one(Incident, order.incident_id)
    case = case_of(session, watch, incident, node=node, but_decision=order.decision_id)
    decision = session.get_one(Decision, order.decision_id)
    steps = [s for s in plan_of(decision) if s.verb is not None and s.verb.value == order.verb]
    guards = tuple(g for g in judge(case, tuple(steps), watch.rules.limits) if g.guard != "a person approves")
    return (*guards, clear_again(session, watch, incident, order)) if order.verb == Verb.RESUME else guards


def clear_again(session: Session, watch: Watch, incident: Incident, order: Order) -> GuardVerdict:
    """The guard of a resume: what it waited for still holds. Where a person said that it is mended, that counts."""
    heir = lifecycle.heir_of(session, incident)
    seconds = f"{incident.clear_s:.0f} s", f"{watch.rules.hold_s:.0f} s"
    if heir is not None:
        return GuardVerdict("seen and clear", "refuses", f"Incident {heir.id} keeps {order.node} out.", *seconds)
    if ":undo:" in order.key:
        return GuardVerdict("seen and clear", "holds", "A person undid the drain.", *seconds)
    if incident.resolving_by:
        return GuardVerdict("seen and clear", "holds", "A person said that it is mended.", *seconds)
    if not lifecycle.seen_clear(incident, watch.rules.hold_s):
        why = "nobody can see it now" if incident.blind else "its fault shows again"
        return GuardVerdict("seen and clear", "refuses", f"{order.node} stays out: {why}.", *seconds)
    return GuardVerdict("seen and clear", "holds", "Nothing new was seen of it.", *seconds)


def carry_out(watch: Watch, backend: ClusterBackend, order: Order) -> None:
    """read -> guards -> sent or refused (commit) -> call -> read back -> outcome (commit): contracts.md."""
    try:
        node = backend.read(order.node) if order.node else None
        witness = backend.witness(facts_of(order))
    except ActionError as error:
        _give_back(watch, order, "claimed", error)  # nothing was called yet
        return
    if order.verb == Verb.REBOOT and node is not None and not _may_reboot(watch, order, node):
        return
    with watch.turn() as session:
        guards = judge_order(session, watch, order, node)
        now = watch.clock.now()
        refused = [g.reason for g in guards if g.verdict == "refuses"]
        change: dict[str, Any] = {"guards": [asdict(g) for g in guards], "witness": witness}
        change |= {"state": "refused", "ended_at": now, "error": "; ".join(refused)} if refused else {}
        drill = not refused and bool(session.get_one(Incident, order.incident_id).drill)
        change |= {} if refused else {"state": "sent", "sent_at": now}
        change |= {"state": "cancelled", "sent_at": None, "ended_at": now, "outcome": DRILLED} if drill else {}
        mine = claim(session, Order, order.id, {"state": "claimed", "claimed_by": watch.who}, change)
        if mine and refused:
            _tell_end(session, watch, order, "refused", "; ".join(refused))
        if mine and drill:
            _tell_end(session, watch, order, "cancelled", f"{order.verb} of {order.node or order.job}: {DRILLED}")
    if not mine or refused or drill:
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


def _may_reboot(watch: Watch, order: Order, node: NodeFacts) -> bool:
    """Only a node that stands drained and where nothing runs; until then the order waits, however long that is."""
    if "DRAIN" not in node.flags:
        error = ActionError(f"{node.name} is not drained any more: a reboot would hit new work", permanent=True)
        _give_back(watch, order, "claimed", error)
        return False
    if not node.jobs and node.drained:
        return True
    change = {
        "state": "waiting",
        "claimed_by": "",
        "lease_until": None,
        "attempts": order.attempts - 1,
        "not_before": watch.clock.now() + timedelta(seconds=EMPTY_S),
        "error": f"Waits until {node.name} is empty.",
    }
    with watch.turn() as session:
        claim(session, Order, order.id, {"state": "claimed", "claimed_by": order.claimed_by}, change)
    watch.changes.nudge()
    return False


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
    with watch.turn() as session:
        change = {"state": "done", "ended_at": now, "outcome": outcome.text, "error": ""}
        if claim(session, Order, order.id, {"state": "sent"}, change):
            _tell_end(session, watch, order, "done", outcome.text)
            if order.verb == Verb.RESUME and "dry_run" not in outcome.attrs:
                lift_undone(session, order, now)
            if order.verb not in (Verb.RESUME, Verb.CHECK) and "dry_run" not in outcome.attrs:
                _mitigated(session, watch, order.incident_id, now)
    watch.changes.nudge()


def lift_undone(session: Session, order: Order, now: datetime) -> None:
    """A resume is done: where a person undid a drain by it, what kept work from the node is lifted in their name."""
    told = incidents.timeline(session, order.incident_id)
    by = next((row for row in reversed(told) if row.what == "undone" and row.attrs.get("order") == order.id), None)
    if by is None:
        return
    for row in actions.exclusions_of(session, order.incident_id):
        if row.node == order.node:
            row.lifted_at, row.lifted_by = now, by.actor
            row.lift_reason = str(by.attrs.get("reason") or "the drain was undone")
            session.add(row)


def _mitigated(session: Session, watch: Watch, incident_id: int, now: datetime) -> None:
    incident = session.get_one(Incident, incident_id)
    done = all(o.state == "done" for o in actions.orders_of(session, incident_id))
    if done and incident.state in ("open", "acknowledged"):
        incident.state, incident.mitigated_at, incident.changed_at = "mitigated", now, now
        session.add(incident)
        incidents.tell(session, incident, now, "mitigated", "The node is out of work; its jobs go on without it.")
        announce(session, watch, incident, actions.latest_decision(session, incident_id), "changed")


def _not_done(watch: Watch, order: Order, error: ActionError) -> None:
    """The call failed. Not answered: the witness settles it after the lease, never a blind re-send."""
    if error.permanent:
        _give_back(watch, order, "sent", error)
        return
    with watch.turn() as session:
        claim(session, Order, order.id, {"state": "sent", "claimed_by": watch.who}, {"error": str(error)})
    watch.changes.nudge()


def _give_back(watch: Watch, order: Order, state: str, error: ActionError, wait_s: float = RETRY_S) -> None:
    """It did not happen: wait and claim again, or give up where trying again is useless or was tried often enough."""
    now = watch.clock.now()
    final = error.permanent or order.attempts >= actions.MOST_ATTEMPTS
    with watch.turn() as session:
        change: dict[str, Any] = {"error": str(error), "lease_until": None, "claimed_by": ""}
        change |= {"state": "failed", "ended_at": now} if final else {"state": "waiting"}
        change |= {} if final else {"not_before": now + timedelta(seconds=wait_s)}
        mine = claim(session, Order, order.id, {"state": state, "claimed_by": order.claimed_by}, change)
        if mine and final:
            _tell_end(session, watch, order, "failed", str(error))
    watch.changes.nudge()


def recover(watch: Watch, backend: ClusterBackend) -> bool:
    """Orders whose process died: never sent ones wait again, sent ones are settled by their witness."""
    now = watch.clock.now()
    with watch.store.read() as session:
        lost = actions.lost_orders(session, watch.cluster, now)
    for order in lost:
        if order.state == "claimed":
            _give_back(watch, order, "claimed", ActionError("the process that claimed it did not go on"), 0.0)
        else:
            _settle(watch, backend, order)
    return bool(lost)


def _settle(watch: Watch, backend: ClusterBackend, order: Order) -> None:
    now = watch.clock.now()
    lease = {"lease_until": now + timedelta(seconds=watch.rules.lease_s), "claimed_by": watch.who}
    with watch.turn() as session:
        if not claim(session, Order, order.id, {"state": "sent", "claimed_by": order.claimed_by}, lease):
            return
        order = session.get_one(Order, order.id)
    try:
        outcome = backend.settle(facts_of(order))
    except ActionError as error:
        if error.permanent:
            _uncertain(watch, order, str(error))
        return
    if outcome is not None:
        finish(watch, order, outcome)
        return
    _give_back(watch, order, "sent", ActionError(order.error or "the call did not reach the cluster"), 0.0)


def _uncertain(watch: Watch, order: Order, why: str) -> None:
    with watch.turn() as session:
        now = watch.clock.now()
        if claim(session, Order, order.id, {"state": "sent"}, {"state": "uncertain", "ended_at": now, "error": why}):
            _tell_end(session, watch, order, "uncertain", why)
    watch.changes.nudge()


def _end(session: Session, order: Order, state: str, now: datetime, why: str) -> None:
    claim(session, Order, order.id, {"state": "waiting"}, {"state": state, "ended_at": now, "error": why})


def _tell_end(session: Session, watch: Watch, order: Order, state: str, text: str) -> None:
    incident = session.get_one(Incident, order.incident_id)
    incidents.tell(session, incident, watch.clock.now(), f"order_{state}", text, order=order.id, verb=order.verb)
