"""Guards against ourselves: the breaker, a fleet that changes as a whole, our own rate, and two persons for much."""

from __future__ import annotations

import math
from collections.abc import Sequence

from backend.decide.limits import Limits, count, known, said, span, taken_by, unless_a_person
from backend.decide.policy import STANDING
from backend.facts import Case, GuardVerdict, PlannedStep, Verb


def breaker(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """Once tripped, nothing is taken out until a person resets it; giving back goes on."""
    if not case.breaker:
        return said("breaker", "holds", "The breaker is closed.", "closed", "closed")
    if not plan:
        return said("breaker", "holds", "The breaker is tripped; giving back goes on.", "tripped", "closed")
    why = f"The breaker is tripped: {case.breaker} A person resets it."
    return said("breaker", "refuses", why, "tripped", "closed")


def allowed_shift(nodes: int, limits: Limits) -> int:
    """How many of so many nodes may break within shift_s before it is us, or the network."""
    return max(limits.shift_min, math.ceil(limits.shift_share * nodes - 1e-9)) - 1


def shifted(struck: int, nodes: int, limits: Limits) -> str:
    """Why the breaker trips, a sentence; "" where it does not."""
    if not nodes or struck <= allowed_shift(nodes, limits):
        return ""
    return (
        f"{count(struck, 'node')} of {nodes:,} broke within {span(limits.shift_s)}. That is what they share, "
        f"the network, or Watchkeeper itself."
    )


def shift(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """Many nodes at once do not break by themselves: the cause is what they share, or we are wrong."""
    guard, allowed = "whole-fleet shift", allowed_shift(len(case.fleet), limits)
    measured = f"{len(case.struck)} of {allowed}"
    why = shifted(len(case.struck), len(case.fleet), limits)
    if why and plan:
        return said(guard, "refuses", why, measured, str(allowed))
    text = f"{count(len(case.struck), 'node')} broke within {span(limits.shift_s)}; {allowed} are believed."
    return said(guard, "holds", text, measured, str(allowed))


def rate(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """How many nodes we took out lately, this plan's own included."""
    taken = set(taken_by(plan))
    since = case.now - limits.rate_s
    lately = {o.node for o in case.past if o.verb is Verb.DRAIN and o.state in STANDING and o.at > since} | taken
    limit = f"{limits.rate_max} in {span(limits.rate_s)}"
    if taken and len(lately) > limits.rate_max:
        text = f"{count(len(lately), 'node')} taken out within {span(limits.rate_s)}; {limits.rate_max} may be."
        return said("rate", unless_a_person(case), text, str(len(lately)), limit)
    text = f"{count(len(lately), 'node')} taken out within {span(limits.rate_s)} with this plan."
    return said("rate", "holds", text, str(len(lately)), limit)


def is_wide(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> str:
    """What makes a plan wide, as a clause; "" for one that is not."""
    taken = taken_by(plan)
    if len(taken) >= limits.wide_nodes:
        return count(len(taken), "node")
    requeued = {step.job for step in plan if step.verb is Verb.REQUEUE}
    gpus = sum(len(job.nodes) * job.gpus_per_node for job in case.jobs if job.job in requeued)
    gpus += sum(node.expected_gpus for node in known(case, taken) if not requeued)
    return f"{gpus:,} GPUs" if gpus >= limits.wide_gpus else ""


def two_persons(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """A wide plan needs a second person; act mode never carries one out."""
    wide, guard = is_wide(case, plan, limits), "two persons"
    limit = f"{limits.wide_nodes} nodes or {limits.wide_gpus:,} GPUs"
    if not wide:
        return said(guard, "holds", "The plan is small enough for one person.", "small", limit)
    if case.mode == "act":
        return said(guard, "refuses", f"It touches {wide}: that is for two persons, not for act mode.", wide, limit)
    if len(set(case.approved_by)) >= 2:
        return said(guard, "holds", f"Approved by {' and '.join(case.approved_by[:2])}.", wide, limit)
    first = next(iter(case.approved_by), "")
    by = f"{first} approved; another person has to as well." if first else "Two have to approve."
    return said(guard, "asks", f"It touches {wide}. {by}", wide, limit)
