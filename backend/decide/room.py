"""Guards of room: how much of a rack, an NVLink domain, a partition is out, and what jobs still need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from backend.decide.limits import Limits, count, known, out_of, said, taken_by, unless_a_person
from backend.facts import Case, GuardVerdict, NodeFacts, PlannedStep, Verb
from detectors.model import Severity


def rack(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    return _share(case, plan, limits, "rack", lambda node: (node.rack,), limits.max_out_share_rack)


def domain(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    return _share(case, plan, limits, "NVLink domain", lambda node: (node.clique,), limits.max_out_share_domain)


def partition(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    return _share(case, plan, limits, "partition", lambda node: node.partitions, limits.max_out_share_partition)


def _share(
    case: Case,
    plan: Sequence[PlannedStep],
    limits: Limits,
    what: str,
    groups_of: Callable[[NodeFacts], Sequence[str]],
    share: float,
) -> GuardVerdict:
    """Each group that a taken node belongs to keeps its allowance; the fullest is told. Of a group that is not known
    nothing can be said: the fleet's own guard counts those nodes."""
    guard, taken = f"nodes out of the {what}", taken_by(plan)
    groups = {name for node in known(case, taken) for name in groups_of(node) if name}
    if not groups:
        text = f"No node of a known {what} is taken out." if taken else "No node is taken out."
        return said(guard, "holds", text, "none")
    out = out_of(case) | set(taken)
    worst = max((_filled(case, name, groups_of, out, limits, share) for name in sorted(groups)), key=_fullness)
    name, gone, allowed, size = worst
    text = f"{count(gone, 'node')} of {size} in {what} {name} would be out with this plan; {allowed} may be."
    return said(guard, "refuses" if gone > allowed else "holds", text, f"{gone} of {allowed}", str(allowed))


def _filled(
    case: Case,
    name: str,
    groups_of: Callable[[NodeFacts], Sequence[str]],
    out: set[str],
    limits: Limits,
    share: float,
) -> tuple[str, int, int, int]:
    members = {node.name for node in case.fleet if name in groups_of(node)}
    allowed = max(limits.max_out_min, math.floor(share * len(members) + 1e-9))
    return name, len(members & out), allowed, len(members)


def _fullness(filled: tuple[str, int, int, int]) -> tuple[float, int]:
    _, gone, allowed, size = filled
    return gone / max(allowed, 0.5), -size


def at_once(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """One node of a rack at a time: two that fail together share a switch, a pump or a power feed more often than not,
    and what is common is mended first."""
    guard, taken = "one at a time in a rack", set(taken_by(plan))
    racks = {node.rack for node in known(case, sorted(taken)) if node.rack}
    ours = {node.name for node in case.fleet if "DRAIN" in node.flags and node.reason_owner == "watchkeeper"}
    ours |= case.excluded | taken
    fullest = max(
        ((name, sum(node.name in ours for node in case.fleet if node.rack == name)) for name in sorted(racks)),
        key=lambda pair: pair[1],
        default=("", 0),
    )
    name, gone = fullest
    limit = str(limits.rack_at_once)
    if gone > limits.rack_at_once:
        text = f"{count(gone, 'node')} of rack {name} would be out by us at once: look at what they share first."
        return said(guard, unless_a_person(case), text, str(gone), limit)
    return said(guard, "holds", "No other node of its rack is out by us.", str(gone), limit)


def capacity(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """A job that is requeued needs a spare node for each that it loses, and the largest job that runs or waits still
    fits into its partition. A critical fault is not left in service for that: it stops its job anyway."""
    lacking = next(_lacking(case, plan), None)
    if lacking is not None:
        broken = case.mode == "act" and case.incident.severity >= Severity.CRITICAL
        return said("capacity", "holds" if broken else unless_a_person(case), *lacking)
    return said("capacity", "holds", "Running and waiting jobs keep the nodes that they need.", "enough")


def _lacking(case: Case, plan: Sequence[PlannedStep]) -> Iterator[tuple[str, str, str]]:
    taken = set(taken_by(plan)) - out_of(case)
    if not taken:
        return
    gone = taken | out_of(case)
    requeued = {step.job for step in plan if step.verb is Verb.REQUEUE}
    free = {node.name for node in case.fleet if node.name not in gone and not node.jobs and node.state == "idle"}
    for job in case.jobs:
        lost = len(set(job.nodes) & taken)
        spare = len({name for name in free if _in(case, name, job.partition)})
        if job.job in requeued and lost > spare:
            text = (
                f"Job {job.job} loses {count(lost, 'node')} and {spare or 'none'} of its kind is free: it would wait."
            )
            yield text, count(spare, "spare node"), count(lost, "spare node")
    touched = {place for node in known(case, sorted(taken)) for place in node.partitions}
    wanted = [(job.job, job.partition, len(job.nodes)) for job in case.running] + list(case.waiting)
    for name, place, need in sorted(wanted, key=lambda one: (-one[2], one[0])):
        if place in touched:
            members = {node.name for node in case.fleet if place in node.partitions}
            left = len(members - gone)
            if need > left and need <= len(members):
                text = f"Job {name} asks for {count(need, 'node')} of {place}; {left} would be left in service."
                yield text, str(left), str(need)


def _in(case: Case, name: str, partition: str) -> bool:
    found = known(case, [name])
    return not partition or not found or not found[0].partitions or partition in found[0].partitions
