"""A policy tried without anything happening: what would be done about this kind of fault on this node, now."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlmodel import Session

from backend.cases import case_about, costs_of, restart_of
from backend.clock import unix
from backend.decide.decide import decide
from backend.decide.policy import MEMORY_S, acted_before
from backend.decide.rules import mistakes, rule_for
from backend.facts import Case, DecisionFacts, HypothesisFacts, IncidentFacts, Mode, PastOrder, Verb
from backend.store import cluster as cluster_rows
from backend.watch import Watch
from detectors.catalogue import Kind
from detectors.model import Severity


@dataclass(frozen=True, slots=True)
class Asked:
    """What is imagined. evidence: an authority of ``kinds.md``, "" = the first that the kind is believed by; severity
    "" = the kind's own; seen: how often it was acted on before, within a day."""

    kind: str
    node: str
    evidence: str = ""
    severity: str = ""
    seen: int = 0
    mode: Mode | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """rule: the name of the site's rule that applies, "" = the kind's own ladder. known: the node is in the fleet."""

    decision: DecisionFacts
    rule: str
    known: bool
    authorities: tuple[str, ...]


def tried(session: Session, watch: Watch, asked: Asked) -> Trial:
    """Decide about a fault that never was, on the cluster as it is. Writes nothing. Raises LookupError for a kind that
    is none, with the kinds there are."""
    kind = watch.catalogue.kinds.get(asked.kind)
    if kind is None:
        raise LookupError(f"{asked.kind!r} is no kind of fault; there are {', '.join(sorted(watch.catalogue.kinds))}.")
    case = _case(session, watch, asked, kind)
    facts = decide(case, watch.catalogue.kinds, watch.rules.limits, costs_of(case), restart_of(watch, case))
    rule = rule_for(case, watch.rules.limits.rules, acted_before(case))
    known = any(node.name == asked.node for node in case.fleet)
    return Trial(facts, rule.name if rule is not None else "", known, kind.authorities)


def _case(session: Session, watch: Watch, asked: Asked, kind: Kind) -> Case:
    now = unix(watch.clock.now())
    on = next((job for job in cluster_rows.running(session, watch.cluster) if asked.node in job.nodes), None)
    scope = next((word for word in kind.scopes if word in ("gpu", "nic", "node")), kind.scopes[0])
    name = f"{asked.node}/gpu0" if scope == "gpu" else asked.node
    authority = asked.evidence or kind.authorities[0]
    cause = HypothesisFacts(kind.kind, name, scope, asked.node, 1.0, "as asked", authority)
    severity = Severity.of(asked.severity) if asked.severity else kind.severity
    incident = IncidentFacts(
        id=0,
        cluster=watch.cluster,
        kind=kind.kind,
        severity=severity,
        state="open",
        entity=name,
        entity_kind=scope,
        entity_id=asked.node,
        node=asked.node,
        job=on.job if on is not None else "",
        opened_at=now,
        closed_at=None,
        hypotheses=(cause,),
    )
    case = case_about(session, watch, incident)
    before = _before(watch, asked, now)
    return replace(case, mode=asked.mode or case.mode, past=(*case.past, *before))


def _before(watch: Watch, asked: Asked, now: float) -> tuple[PastOrder, ...]:
    """Earlier drains for the same fault, far enough apart that no guard of rate or rest is about them."""
    since = min(MEMORY_S, max(watch.rules.limits.cooldown_s, watch.rules.limits.rate_s) + 60.0)
    return tuple(PastOrder(Verb.DRAIN, asked.node, asked.kind, now - since, "done") for _ in range(asked.seen))


def wrong_with(watch: Watch) -> list[str]:
    """What is wrong with the policy's rules, a sentence each."""
    return mistakes(watch.rules.limits.rules, watch.catalogue.kinds)
