"""One decision about one incident: the plan, its blast radius, every guard, and a sentence for a tired person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backend.decide.eviction import eviction, groups_of
from backend.decide.guards import Limits, judge
from backend.decide.limits import count
from backend.decide.policy import acted_before, cause_of, node_of, propose
from backend.decide.recovery import Costs, Restart, choices
from backend.decide.rules import rule_for, ruled, shadows_for
from backend.facts import Blast, Case, DecisionFacts, PlannedStep, Rung, Verb
from detectors.catalogue import Kind

#: Kinds whose suspects are ranks of one job: what they share decides whom to take out.
SHARED = ("job_hang", "job_slow", "nan_loss", "silent_data_corruption")


def decide(
    case: Case, kinds: Mapping[str, Kind], limits: Limits, costs: Costs | None = None, onset: Restart | None = None
) -> DecisionFacts:
    """What to do about ``case.incident``. Pure: the same case gives the same decision. Nothing binds by itself.

    costs: of the incident's job, where they are known; then the advice says what each way to go on would cost.
    onset: from where that job goes on, where its saves are known.
    """
    rule = rule_for(case, limits.rules, acted_before(case))
    recommended, plan, advice = propose(case, ruled(kinds, case, rule), limits.exclude_s)
    return DecisionFacts(
        sentence=sentence_of(case, recommended, plan),
        recommended=recommended,
        plan=plan,
        advice=(*advice, *whom(case), *ways(case, costs, onset), *in_shadow(case, kinds, limits)),
        blast=blast_of(case, plan),
        guards=judge(case, plan, limits),
        mode=case.mode,
        dark=tuple(sorted({*case.dark, *case.incident.dark})),
    )


def in_shadow(case: Case, kinds: Mapping[str, Kind], limits: Limits) -> tuple[str, ...]:
    """What each rule in shadow would have made of it."""
    said = []
    for rule in shadows_for(case, limits.rules, acted_before(case)):
        recommended, plan, _ = propose(case, ruled(kinds, case, rule), limits.exclude_s)
        said.append(f"Rule {rule.name}, in shadow, would have said: {sentence_of(case, recommended, plan)}")
    return tuple(said)


def whom(case: Case) -> tuple[str, ...]:
    """What taking out all that the suspects share would cost, and the way around it."""
    job = next((job for job in case.jobs if job.job == case.incident.job), None)
    if job is None or case.incident.kind not in SHARED:
        return ()
    named = {cause.node for cause in case.incident.hypotheses if cause.kind == case.incident.kind and cause.node}
    found = eviction(sorted(named), groups_of(job))
    return (found.text,) if found is not None and found.healthy else ()


def ways(case: Case, costs: Costs | None, onset: Restart | None = None) -> tuple[str, ...]:
    """From which step the job goes on, every way to do so with what it costs, the cheapest first, and the spares."""
    job = case.incident.job
    if not job:
        return ()
    begins = (f"Job {job}: {onset.text}",) if onset is not None else ()
    if costs is None:
        return begins
    first, *others = choices(costs)
    spares = f"{count(costs.spares, 'spare node')} of its kind {'is' if costs.spares == 1 else 'are'} free"
    needs = f"; it loses {costs.lost}." if costs.lost else "."
    return (*begins, f"Job {job}: {first.text}", *(f"Else: {other.text}" for other in others), f"{spares}{needs}")


def sentence_of(case: Case, recommended: Rung, plan: Sequence[PlannedStep]) -> str:
    """Subject first, what to do, what it spares; at most two clauses."""
    if not plan:
        return _nothing(case, recommended)
    drained = [step for step in plan if step.verb is Verb.DRAIN]
    requeued = [step.job for step in plan if step.verb is Verb.REQUEUE]
    if drained:
        node = drained[0].node
        if requeued:
            return f"Drain {node} and requeue {_jobs(requeued)} without it."
        running = sorted(job.job for job in case.jobs if node in job.nodes)
        return f"Drain {node}; {_jobs(running)} may end by itself." if running else f"Drain {node}; no job runs there."
    if requeued:
        node = next((step.node for step in plan if step.node), "")
        return f"Requeue {_jobs(requeued)} without {node}." if node else f"Requeue {_jobs(requeued)}."
    return f"Keep new work away from {plan[0].node}."


def _nothing(case: Case, recommended: Rung) -> str:
    """What to say where the plan is empty."""
    incident, node = case.incident, node_of(case, case.incident.node)
    ours = node is not None and "DRAIN" in node.flags and node.reason_owner == "watchkeeper"
    if incident.node and (incident.node in case.excluded or ours):
        return f"{incident.node} is kept out of new work already. Nothing more to do on the cluster."
    if recommended is Rung.RESTART_JOB:
        who = f"job {incident.job}" if incident.job else "the job"
        return f"Leave the node in service: this stopped {who} only."
    if recommended is Rung.RECORD:
        return "Recorded. Nothing to do."
    cause = cause_of(case)
    if cause is not None and cause.authority == "rule":
        return f"Look at {incident.entity}: one kind of sign alone is too weak to act on."
    if recommended is Rung.NOTIFY:
        return f"Tell who owns {incident.entity}. Nothing to do on the cluster."
    return f"Look at {incident.entity}: nothing that Watchkeeper can do on the cluster helps here."


def blast_of(case: Case, plan: Sequence[PlannedStep]) -> Blast:
    """What the plan touches. ``other_jobs``: on a node that leaves service, and not requeued. ``gpus``: of the nodes
    taken out and of every node of a requeued job."""
    taken = {step.node for step in plan if step.node and (step.verb is Verb.DRAIN or step.rung is Rung.EXCLUDE)}
    jobs = {step.job for step in plan if step.verb is Verb.REQUEUE}
    others = {job.job for job in case.jobs if job.job not in jobs and taken & set(job.nodes)}
    gpus: dict[str, int] = {}
    for name in taken:
        node = node_of(case, name)
        gpus[name] = max(node.expected_gpus, len(node.gpus)) if node is not None else 0
    for attempt in case.jobs:
        if attempt.job in jobs:
            for name in attempt.nodes:
                gpus[name] = max(gpus.get(name, 0), attempt.gpus_per_node)
    return Blast(tuple(sorted(taken)), tuple(sorted(jobs)), tuple(sorted(others)), sum(gpus.values()))


def _jobs(jobs: Sequence[str]) -> str:
    """``job 7``, ``jobs 7 and 8``, ``jobs 7, 8 and 9``."""
    if len(jobs) == 1:
        return f"job {jobs[0]}"
    return f"jobs {', '.join(jobs[:-1])} and {jobs[-1]}"
