"""Guards of what is going on: protected nodes and jobs, announced maintenance, work that is nearly done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backend.decide.limits import Limits, nodes_of, said, span, taken_by, unless_a_person
from backend.decide.rules import fits
from backend.facts import AttemptFacts, Case, GuardVerdict, PlannedStep, Verb


def protected(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """What the site named as not to be touched: nodes by name, jobs by number, name, run, user or account."""
    for name in nodes_of(plan):
        if fits(name, limits.protect_nodes):
            return said("protected", "refuses", f"{name} is protected by the policy.", name, "none")
    for job in _stopped(case, plan):
        words = (job.job, job.name, job.run, job.user, job.account)
        if any(word and fits(word, limits.protect_jobs) for word in words):
            return said("protected", "refuses", f"Job {job.job} is protected by the policy.", f"job {job.job}", "none")
    return said("protected", "holds", "Nothing that the policy protects.", "none", "none")


def maintenance(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """Inside an announced window, and shortly before it, the node belongs to those who announced it."""
    taken = set(taken_by(plan))
    for window in case.maintenances:
        soon = window.start - limits.maintenance_s <= case.now and (window.end is None or case.now < window.end)
        common = sorted(taken & set(window.nodes))
        if soon and common:
            name = window.text or window.name
            when = "has begun" if window.start <= case.now else f"begins in {span(window.start - case.now)}"
            text = f"Maintenance {name} of {common[0]} {when}: whoever announced it has the node."
            return said("maintenance", unless_a_person(case), text, name, "none")
    return said("maintenance", "holds", "No maintenance is announced for it.", "none", "none")


def work_in_hand(case: Case, plan: Sequence[PlannedStep], limits: Limits) -> GuardVerdict:
    """Stopping a job that must end soon, or that is about to save, costs more than waiting does. A job that makes no
    progress (a hang, a lost GPU) is not waited for: what it would save is lost anyway."""
    guard, limit = "work in hand", f"{span(limits.nearly_done_s)}, {span(limits.save_soon_s)}"
    if case.incident.kind in ("job_hang", "gpu_bus_loss", "node_unreachable"):
        return said(guard, "holds", "The work on it does not go on by itself.", "stands still", limit)
    for job in _stopped(case, plan):
        if job.limit_s is not None and job.start is not None:
            left = job.start + job.limit_s - case.now
            if 0 <= left <= limits.nearly_done_s:
                text = f"Job {job.job} ends within {span(left)} at its time limit; wait for it."
                return said(guard, unless_a_person(case), text, span(left), limit)
        last, apart = case.saves.get(job.job, (0.0, 0.0))
        due = last + apart - case.now
        if apart > 0 and 0 <= due <= limits.save_soon_s:
            text = f"The next checkpoint of job {job.job} is due in {span(due)}; wait for it."
            return said(guard, unless_a_person(case), text, span(due), limit)
    return said(guard, "holds", "No job is about to end or to save.", "none", limit)


def _stopped(case: Case, plan: Sequence[PlannedStep]) -> Iterator[AttemptFacts]:
    """Jobs that the plan stops."""
    stopped = {step.job for step in plan if step.verb is Verb.REQUEUE}
    rebooted = {step.node for step in plan if step.verb is Verb.REBOOT}
    seen: set[str] = set()
    for job in (*case.jobs, *case.running):
        if job.job not in seen and (job.job in stopped or rebooted & set(job.nodes)):
            seen.add(job.job)
            yield job
