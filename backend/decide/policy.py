"""From a fault kind to a plan: which rung of its ladder, which steps carry it out, what is left as advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from backend.facts import AttemptFacts, Case, HypothesisFacts, NodeFacts, PlannedStep, Rung, Verb
from detectors.catalogue import Kind
from detectors.model import Severity

#: The highest rung each authority may reach (the rule of kinds.md). An authority that is not here may only tell.
REACH: Mapping[str, Rung] = {
    "code": Rung.REPLACE,
    "state": Rung.REPLACE,
    "vote": Rung.REPLACE,
    "trend": Rung.DRAIN_AFTER_JOB,
    "rate": Rung.DRAIN_AFTER_JOB,
    "rule": Rung.NOTIFY,
    "band": Rung.NOTIFY,
}
#: How long an action is remembered when the same kind comes back on the same node, s.
MEMORY_S = 86_400.0
DRAINS = (Rung.DRAIN_AFTER_JOB, Rung.DRAIN_NOW)
#: First rungs that leave the cluster as it is.
TELLS = (Rung.RECORD, Rung.NOTIFY, Rung.RESTART_JOB)
#: States of an order that ran or may still run.
STANDING = frozenset({"waiting", "claimed", "sent", "done", "uncertain"})
_ORDER = tuple(Rung)


def propose(
    case: Case, kinds: Mapping[str, Kind], exclude_s: float = 604_800.0
) -> tuple[Rung, tuple[PlannedStep, ...], list[str]]:
    """(recommended rung, steps, advice). Steps that were already carried out for this incident are left out."""
    kind = kinds.get(case.incident.kind)
    rungs = ladder_of(case, kind)
    recommended = recommend(rungs, case.incident.severity)
    steps = remaining(case, steps_of(case, kind, rungs, exclude_s))
    return recommended, steps, advice_of(case, kind, rungs)


def ladder_of(case: Case, kind: Kind | None) -> tuple[Rung, ...]:
    """The rungs still ahead, within reach of the cause's authority: each time the same fault came back after an
    action, the lowest is taken away, the last one stays."""
    if kind is not None and kind.exclude in ("not_94_first", "if_fatal") and not may_exclude(case, kind):
        return (milder_than(case, kind),)
    reach = reach_of(case, kind)
    known = [_within(Rung(word), reach) for word in (kind.ladder if kind else ()) if word in _ORDER]
    unique = list(dict.fromkeys(rung for rung in known if _ORDER.index(rung) <= _ORDER.index(reach)))
    gone = acted_before(case)
    if gone and len(unique) > 1 and unique[0] is Rung.EXCLUDE and unique[1] in DRAINS:
        gone += 1  # exclude and drain were one action
    return tuple(unique[min(gone, len(unique) - 1) :]) if unique else ()


def milder_than(case: Case, kind: Kind) -> Rung:
    """What stands in for the ladder while its condition does not hold: a contained memory error hit one job only."""
    if kind.exclude == "not_94_first":
        return Rung.RESTART_JOB
    return Rung.RECORD if case.incident.severity is Severity.INFO else Rung.NOTIFY


def _within(rung: Rung, reach: Rung) -> Rung:
    return Rung.DRAIN_AFTER_JOB if rung is Rung.DRAIN_NOW and reach is Rung.DRAIN_AFTER_JOB else rung


def reach_of(case: Case, kind: Kind | None) -> Rung:
    """Highest rung for this cause: its authority must be one that the kind is believed by."""
    cause = cause_of(case)
    if cause is None or kind is None or cause.authority not in kind.authorities:
        return Rung.NOTIFY
    return REACH.get(cause.authority, Rung.NOTIFY)


def cause_of(case: Case) -> HypothesisFacts | None:
    """The best hypothesis, where it is about what the incident is about."""
    first = next(iter(case.incident.hypotheses), None)
    return first if first is not None and first.kind == case.incident.kind else None


def acted_before(case: Case) -> int:
    """How often a node was drained for this kind within MEMORY_S, before this incident opened."""
    node, opened = case.incident.node, case.incident.opened_at
    return sum(
        1
        for order in case.past
        if node and order.node == node and order.kind == case.incident.kind
        if order.verb is Verb.DRAIN and order.state in ("done", "uncertain")
        if case.now - MEMORY_S <= order.at < opened
    )


def recommend(rungs: Sequence[Rung], severity: Severity) -> Rung:
    """The first rung; where that is only the keeping out that comes with a drain, the drain."""
    if not rungs:
        return Rung.RECORD if severity is Severity.INFO else Rung.NOTIFY
    return rungs[1] if len(rungs) > 1 and rungs[0] is Rung.EXCLUDE and rungs[1] in DRAINS else rungs[0]


def steps_of(case: Case, kind: Kind | None, rungs: Sequence[Rung], exclude_s: float) -> tuple[PlannedStep, ...]:
    """Exclude, drain, requeue, in this order, as far as the kind allows them."""
    if kind is None or not rungs or rungs[0] in TELLS:
        return ()
    node = case.incident.node
    full = [Rung(word) for word in kind.ladder if word in _ORDER]
    contain = [_within(r, reach_of(case, kind)) for r in full if r in (Rung.EXCLUDE, *DRAINS)]
    steps: list[PlannedStep] = []
    if node and may_exclude(case, kind):
        days = f"{exclude_s / 86_400:.3g}"
        text = f"Exclude {node} for {days} {'day' if days == '1' else 'days'}."
        steps.append(PlannedStep(Rung.EXCLUDE, None, node, "", text))
        drain = next((rung for rung in contain if rung in DRAINS), None)
        if drain is not None:
            steps.append(PlannedStep(drain, Verb.DRAIN, node, "", _drain_text(node, drain, case.jobs)))
        if drain is Rung.DRAIN_NOW:
            steps += [_requeue(node, job.job) for job in _holding(case, node)]
    if Rung.REQUEUE in full and case.incident.job:
        steps.append(_requeue(node if steps else "", case.incident.job))
    return tuple(dict.fromkeys([*steps, *_beyond(case, rungs[0], steps)]))


def _beyond(case: Case, rung: Rung, steps: Sequence[PlannedStep]) -> list[PlannedStep]:
    """What history moved the rung up to, where something here can do it and the node is being taken out anyway."""
    node = case.incident.node
    if not any(step.verb is Verb.DRAIN for step in steps):
        return []
    if rung is Rung.REBOOT and Verb.REBOOT in case.can:
        return [PlannedStep(rung, Verb.REBOOT, node, "", f"Reboot {node} once it is empty.")]
    if rung in (Rung.TICKET, Rung.REPLACE) and Verb.TICKET in case.can:
        return [PlannedStep(rung, Verb.TICKET, node, "", f"Open a ticket for {node}.")]
    return []


def may_exclude(case: Case, kind: Kind) -> bool:
    """The exclude column of kinds.csv; a condition that cannot be seen to hold does not hold."""
    critical = case.incident.severity >= Severity.CRITICAL
    cause = cause_of(case)
    conditions: Mapping[str, Callable[[], bool]] = {
        "always": lambda: True,
        # Tables give a first Xid 94 and a Nonfatal line less than critical, their repetition and Fatal critical.
        "not_94_first": lambda: critical,
        "if_fatal": lambda: critical and cause is not None and "nonfatal" not in cause.reason.lower(),
        "if_node_local": lambda: case.incident.entity_kind == "node",
        "suspect_by_evidence": lambda: cause is not None and cause.entity_kind in ("node", "gpu", "nic"),
    }
    return conditions.get(kind.exclude, lambda: False)()


def remaining(case: Case, steps: Sequence[PlannedStep]) -> tuple[PlannedStep, ...]:
    """Without what is done, or on its way, for this incident."""
    return tuple(step for step in steps if not _done(case, step))


def _done(case: Case, step: PlannedStep) -> bool:
    if step.verb is None:
        return step.rung is Rung.EXCLUDE and step.node in case.excluded
    pending = [o for o in case.past if o.node == step.node and o.verb is step.verb and o.state in STANDING]
    pending = [o for o in pending if o.kind == case.incident.kind and o.at >= case.incident.opened_at]
    if step.verb is Verb.DRAIN:
        node = node_of(case, step.node)
        ours = node is not None and "DRAIN" in node.flags and node.reason_owner == "watchkeeper"
        seen = node is not None and any(o.state == "done" and o.at < node.read_at for o in pending)
        return ours or (bool(pending) and not seen)
    job = next((j for j in case.jobs if j.job == step.job), None)
    since = job.start if job is not None and job.start is not None else 0.0
    return any(o.at >= since for o in pending)


def node_of(case: Case, name: str) -> NodeFacts | None:
    if case.node is not None and case.node.name == name:
        return case.node
    return next((node for node in case.fleet if node.name == name), None)


def advice_of(case: Case, kind: Kind | None, rungs: Sequence[Rung]) -> list[str]:
    """What people may do beyond the plan, in the ladder's order."""
    cause = cause_of(case)
    if kind is not None and cause is not None and reach_of(case, kind) is Rung.NOTIFY and Rung.NOTIFY not in rungs:
        return [
            f"This rests on one kind of sign ({cause.authority}). Look at it; nothing is done before a second agrees."
        ]
    node = case.incident.node
    texts = {
        Rung.RESET_GPU: f"Reset {case.incident.entity} once nothing runs on it.",
        Rung.REBOOT: f"Reboot {node} once it is empty.",
        Rung.CHECK: f"Check {node} before it takes work again.",
        Rung.TICKET: "If it comes back after that, open a ticket with the vendor.",
        Rung.REPLACE: "If it comes back after that, have the part replaced.",
        Rung.RESTART_JOB: "The fault is in the job's own code: its owner mends it, then starts it again.",
        Rung.NOTIFY: "Tell who owns it.",
    }
    if kind is not None and kind.exclude == "not_94_first":
        texts[Rung.RESTART_JOB] = "The error was contained: start the job that it hit again."
    if kind is not None and node and not may_exclude(case, kind):
        texts |= dict.fromkeys(DRAINS, f"This can wait until {node} is empty for another reason.")
    done_here = {Rung.REBOOT: Verb.REBOOT, Rung.TICKET: Verb.TICKET, Rung.REPLACE: Verb.TICKET}
    planned = rungs[:1] if rungs and done_here.get(rungs[0]) in case.can else ()
    return [texts[rung] for rung in rungs if rung in texts and rung not in planned]


def _holding(case: Case, node: str) -> list[AttemptFacts]:
    """Jobs on the node, by number, so that the same case always gives the same plan."""
    return sorted((job for job in case.jobs if node in job.nodes), key=lambda job: (len(job.job), job.job))


def _requeue(node: str, job: str) -> PlannedStep:
    text = f"Requeue job {job} without {node}." if node else f"Requeue job {job}."
    return PlannedStep(Rung.REQUEUE, Verb.REQUEUE, node, job, text)


def _drain_text(node: str, rung: Rung, jobs: Sequence[AttemptFacts]) -> str:
    if rung is Rung.DRAIN_NOW:
        return f"Drain {node} now."
    running = [job.job for job in jobs if node in job.nodes]
    return f"Drain {node}; job {', '.join(running)} ends by itself." if running else f"Drain {node}."
