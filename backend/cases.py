"""Everything one decision may depend on, read from the store at this moment: the Case that the guards judge."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from statistics import median

from sqlmodel import Session

from backend.clock import unix
from backend.decide.recovery import SPOILS, Costs, Restart, restart
from backend.facts import (
    AttemptFacts,
    Case,
    CheckpointFacts,
    IncidentFacts,
    NodeFacts,
    PastOrder,
    PlannedStep,
    Rung,
    Verb,
)
from backend.incidents import lifecycle
from backend.model.actions import Decision, Order
from backend.model.incidents import Incident
from backend.store import actions, incidents, outages, system
from backend.store import cluster as cluster_rows
from backend.watch import Watch

#: How far back cooldown and the ladder's memory look.
MEMORY = timedelta(hours=24)
#: How far back saves of a job are looked for, s.
SAVES_S = 172_800.0


def case_of(
    session: Session,
    watch: Watch,
    incident: Incident,
    *,
    node: NodeFacts | None = None,
    but_decision: int | None = None,
) -> Case:
    """``node`` replaces the stored state by one just read; ``but_decision`` leaves its own orders out of the past."""
    found = case_about(session, watch, lifecycle.facts_of(incident), node=node, but_decision=but_decision)
    standing = actions.latest_decision(session, incident.id or 0)
    return replace(found, approved_by=tuple(standing.approvals)) if standing is not None else found


def case_about(
    session: Session,
    watch: Watch,
    incident: IncidentFacts,
    *,
    node: NodeFacts | None = None,
    but_decision: int | None = None,
) -> Case:
    """The case of an incident that may never have been: what a policy is tried on."""
    now, limits = watch.clock.now(), watch.rules.limits
    fleet = cluster_rows.node_facts(session, watch.cluster, gpus_of=incident.node)
    if node is not None:
        fleet = [node if known.name == node.name else known for known in fleet]
    at = next((known for known in fleet if known.name == incident.node), None)
    past = actions.orders_since(session, watch.cluster, now - MEMORY)
    running = cluster_rows.running(session, watch.cluster)
    since = now - timedelta(seconds=limits.shift_s)
    soon = now + timedelta(seconds=limits.maintenance_s)
    mine = jobs_on(running, incident.node)
    return Case(
        now=unix(now),
        mode=watch.rules.mode,
        incident=incident,
        node=at,
        fleet=tuple(fleet),
        jobs=mine,
        running=tuple(running),
        waiting=tuple(cluster_rows.waiting(session, watch.cluster)),
        saves=rhythms(saved_by(watch, {job.job for job in mine} | {incident.job} - {""})),
        maintenances=tuple(outages.maintenances(session, watch.cluster, now, soon)),
        struck=incidents.struck(session, watch.cluster, since),
        breaker=system.breaker(session, watch.cluster),
        past=tuple(past_of(o) for o in past if o.decision_id != but_decision),
        can=watch.backend.can if watch.backend is not None else frozenset(),
        kill_switch=system.kill_switch(session, watch.cluster),
        excluded=frozenset(row.node for row in actions.live_exclusions(session, watch.cluster, now)),
        dark=watch.dark,
    )


def saved_by(watch: Watch, jobs: Collection[str]) -> dict[str, list[CheckpointFacts]]:
    """The finished saves of these jobs within SAVES_S, oldest first; none where nothing tells of them."""
    if watch.trained is None or not jobs:
        return {}
    now = unix(watch.clock.now())
    found: dict[str, list[CheckpointFacts]] = {}
    for row in watch.trained.saves(jobs, now - SAVES_S, now):
        if row.kind == "save":
            found.setdefault(row.job if row.job in jobs else row.run, []).append(row)
    return found


def rhythms(saves: Mapping[str, Sequence[CheckpointFacts]]) -> dict[str, tuple[float, float]]:
    """job -> (when its last save finished, how far its saves are apart, 0 = one alone): the median of the last ten
    gaps, so that a stop between two attempts does not count."""
    found = {}
    for job, rows in saves.items():
        times = sorted({row.at for row in rows})
        gaps = [later - earlier for earlier, later in pairwise(times[-11:])]
        found[job] = (times[-1], median(gaps) if gaps else 0.0)
    return found


def restart_of(watch: Watch, case: Case) -> Restart | None:
    """From which step the incident's job goes on; None where nothing tells of its saves."""
    job, at = case.incident.job, case.incident.opened_at
    rows = saved_by(watch, {job} - {""}).get(job, [])
    if not rows or watch.trained is None:
        return None
    onset = watch.trained.step_at(job, at) if case.incident.kind in SPOILS else None
    return restart(case.incident.kind, [row.step for row in rows], onset)


def jobs_on(running: Sequence[AttemptFacts], node: str) -> tuple[AttemptFacts, ...]:
    return tuple(attempt for attempt in running if node and node in attempt.nodes)


def past_of(order: Order) -> PastOrder:
    at = order.sent_at or order.created_at
    return PastOrder(Verb(order.verb), order.node, order.kind, unix(at), order.state)


def plan_of(decision: Decision) -> tuple[PlannedStep, ...]:
    """The stored plan of a decision."""
    return tuple(
        PlannedStep(Rung(s["rung"]), Verb(s["verb"]) if s["verb"] else None, s["node"], s["job"], s["text"])
        for s in decision.plan
    )


def costs_of(case: Case) -> Costs | None:
    """What the ways on for the incident's job rest on; None where no job, or no size of it, is known."""
    job = next((job for job in case.jobs if job.job == case.incident.job), None)
    if job is None or not job.nodes or not job.gpus_per_node:
        return None
    last, _ = case.saves.get(job.job, (job.start or case.now, 0.0))
    out = {node.name for node in case.fleet if node.out} | case.excluded
    free = (n for n in case.fleet if n.state == "idle" and not n.jobs and n.name not in out)
    spares = sum(not job.partition or not n.partitions or job.partition in n.partitions for n in free)
    known = job.job in case.saves
    return Costs(
        nodes=len(job.nodes),
        gpus_per_node=job.gpus_per_node,
        lost=1 if case.incident.node in job.nodes else 0,
        spares=spares,
        unsaved_s=max(0.0, case.now - last) if known else 0.0,
    )
