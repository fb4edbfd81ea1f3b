"""The guards: each a small pure check of a case and a plan. All run each time, and all are recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend.decide import room, storm, timing
from backend.decide.limits import Limits as Limits
from backend.decide.limits import count, nodes_of, out_of, said, span, taken_by, unless_a_person
from backend.decide.policy import STANDING, node_of
from backend.facts import Case, GuardVerdict, NodeFacts, PastOrder, PlannedStep


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard: ``check`` gives its verdict on a plan; an empty plan is a resume, or nothing to do."""

    name: str
    check: Callable[[Case, Sequence[PlannedStep], Limits], GuardVerdict]


def guards() -> tuple[Guard, ...]:
    """Every guard, in the order people read them."""
    return (
        Guard("kill switch", kill_switch),
        Guard("breaker", storm.breaker),
        Guard("mode", mode),
        Guard("a person approves", person),
        Guard("two persons", storm.two_persons),
        Guard("protected", timing.protected),
        Guard("foreign owner", foreign_owner),
        Guard("whole-fleet shift", storm.shift),
        Guard("nodes out of the fleet", nodes_out),
        Guard("nodes out of the rack", room.rack),
        Guard("nodes out of the NVLink domain", room.domain),
        Guard("nodes out of the partition", room.partition),
        Guard("one at a time in a rack", room.at_once),
        Guard("capacity", room.capacity),
        Guard("rate", storm.rate),
        Guard("cooldown", cooldown),
        Guard("maintenance", timing.maintenance),
        Guard("work in hand", timing.work_in_hand),
        Guard("fresh", fresh),
        Guard("dark sources", dark_sources),
        Guard("backend", backend_can),
    )


def judge(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> tuple[GuardVerdict, ...]:
    """All verdicts, also those that hold."""
    return tuple(guard.check(case, plan, limits) for guard in guards())


def kill_switch(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    if case.kill_switch:
        return said("kill switch", "refuses", "The kill switch is on: nothing is written to the cluster.", "on", "off")
    return said("kill switch", "holds", "The kill switch is off.", "off", "off")


def mode(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    if case.mode == "observe":
        return said("mode", "refuses", "Observe mode looks and tells; it binds nobody.", "observe", "propose or act")
    return said("mode", "holds", f"The mode is {case.mode}.", case.mode, "propose or act")


def person(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    name = "a person approves"
    if case.mode == "act":
        return said(name, "holds", "Act mode carries out what its guards allow.", "act mode")
    return said(name, "asks", "Nothing happens before a person approves it.", "yours")


def foreign_owner(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """Never over another's cordon: a node that somebody else drained, failed or took down is theirs."""
    for name in nodes_of(plan):
        node = node_of(case, name)
        if node is not None and _foreign(node):
            owner = node.reason_owner or "someone"
            why = f"{name} is out by {owner}: {node.reason or 'no reason given'}. It stays theirs."
            return said("foreign owner", "refuses", why, owner, "none")
    return said("foreign owner", "holds", "Nobody else took the node out.", "none", "none")


def _foreign(node: NodeFacts) -> bool:
    """A scheduler's own word on a dead node ("Not responding") is a state, no decision: a drain of ours may join."""
    if node.reason_owner == "watchkeeper":
        return False
    automatic = node.reason.lower().startswith(("not responding", "not ready", "node unexpectedly rebooted"))
    decided = node.state in ("down", "error") and bool(node.reason) and not automatic
    return bool(node.flags & {"DRAIN", "FAIL"}) or decided


def nodes_out(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """The breaker: how many nodes would be out of work at once, this plan's own included."""
    name, taken = "nodes out of the fleet", set(taken_by(plan))
    if not case.fleet:
        if not taken:
            return said(name, "holds", "No node is taken out.", "0 of 0", "0")
        return said(name, "refuses", "How large the fleet is, nobody has told yet.", "unknown", "unknown")
    allowed = max(limits.max_out_min, math.floor(limits.max_out_share * len(case.fleet) + 1e-9))
    out = out_of(case) | taken
    measured = f"{len(out)} of {allowed}"
    if taken and len(out) > allowed:
        why = f"{count(len(out), 'node')} of {len(case.fleet)} would be out, this one included; {allowed} may be."
        return said(name, "refuses", why, measured, str(allowed))
    why = f"{count(len(out), 'node')} of {len(case.fleet)} out with this plan; {allowed} may be."
    return said(name, "holds", why, measured, str(allowed))


def cooldown(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """No second action on a node within cooldown_s. The steps of one incident are one action, the same step again is
    a second one: it would undo what somebody did since."""
    allowed = f"{span(limits.cooldown_s)} apart"
    wanted = {(step.node, step.verb) for step in plan}
    nodes = set(nodes_of(plan))
    recent = [
        order
        for order in case.past
        if order.node in nodes and order.state in STANDING and order.at > case.now - limits.cooldown_s
        if (order.node, order.verb) in wanted or not _same_action(case, order)
    ]
    if not recent:
        return said("cooldown", "holds", f"No action on it in the last {span(limits.cooldown_s)}.", "none", allowed)
    last = max(recent, key=lambda order: (order.at, order.node))
    ago = span(max(0.0, case.now - last.at))
    why = f"{last.node}: {last.verb} {ago} ago for {last.kind}; actions stand {allowed}."
    return said("cooldown", "refuses", why, f"{ago} ago", allowed)


def _same_action(case: Case, order: PastOrder) -> bool:
    return order.kind == case.incident.kind and order.at >= case.incident.opened_at


def fresh(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """Only what was read lately may be acted on; unknown is never healthy."""
    allowed, oldest = f"under {span(limits.fresh_s)}", 0.0
    for name in nodes_of(plan):
        node = node_of(case, name)
        if node is None or node.state == "unknown":
            return said("fresh", "refuses", f"The state of {name} is unknown.", "unknown", allowed)
        age = abs(case.now - node.read_at)
        if age > limits.fresh_s:
            why = f"The state of {name} was read {span(age)} {'ago' if node.read_at < case.now else 'in the future'}."
            return said("fresh", "refuses", why, span(age), allowed)
        oldest = max(oldest, age)
    return said("fresh", "holds", "What the plan rests on was read lately.", span(oldest), allowed)


def dark_sources(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """A silent source is always named; where the evidence itself came from it, a person decides."""
    dark = sorted({*case.dark, *case.incident.dark})
    if not dark:
        return said("dark sources", "holds", "Every source reports.", "none", "none")
    names = ", ".join(dark)
    own = [name for name in dark if _gave_evidence(case, name)]
    if not own or not plan:
        return said("dark sources", "holds", f"Silent: {names}. The evidence does not rest on it.", names, "none")
    why = f"Silent: {names}. The evidence came from {', '.join(own)}: whether it still stands, nobody sees."
    return said("dark sources", unless_a_person(case), why, names, "none")


def _gave_evidence(case: Case, source: str) -> bool:
    """A kernel's code came as a log line; all else that THREAD detects was seen in telemetry."""
    cause = next(iter(case.incident.hypotheses), None)
    logs = any(word in source for word in ("log", "loki", "journal", "kernel"))
    by_code = cause is not None and cause.authority == "code"
    return logs if by_code else source.startswith(("prometheus", "remote"))


def backend_can(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    wanted = list(dict.fromkeys(step.verb for step in plan if step.verb is not None))
    lacking = [verb for verb in wanted if verb not in case.can]
    can = ", ".join(sorted(case.can)) or "nothing"
    if lacking:
        why = f"The cluster's backend cannot {' or '.join(lacking)}; it can do {can}."
        return said("backend", "refuses", why, can, ", ".join(wanted))
    return said("backend", "holds", "The backend can do each step.", can, ", ".join(wanted) or "nothing")
