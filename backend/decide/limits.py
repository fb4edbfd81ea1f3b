"""The numbers of the guards and of the plan, and the words that guards speak in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.decide.policy import node_of
from backend.decide.rules import Rule
from backend.facts import Case, GuardVerdict, NodeFacts, PlannedStep, Rung, Verb, Verdict


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers of the guards and of the plan (settings, section policy). Times in seconds, shares of 0 to 1.

    max_out_share, max_out_min: the larger of the two allowances of nodes out of work at once, in the fleet; the other
    shares: of one rack, NVLink domain, partition, where max_out_min counts too. rack_at_once: how many nodes of one
    rack we take ourselves before a person is asked. cooldown_s: no second action on a node within it. rate_max in
    rate_s: nodes taken, all together. fresh_s: oldest state of a node to act on. exclude_s: how long an exclusion
    lasts. shift_share, shift_min, shift_s: so many nodes that broke within so long trip the breaker. nearly_done_s: a
    job that must end within it is waited for; save_soon_s: one whose next checkpoint is due within it. maintenance_s:
    how long before an announced window its nodes are left alone. wide_nodes, wide_gpus: a plan of so many needs two
    persons. protect_nodes, protect_jobs: patterns (``login*``, ``gpu-[01-04]``) that no plan may touch.
    """

    max_out_share: float = 0.05
    max_out_min: int = 1
    cooldown_s: float = 3600.0
    fresh_s: float = 60.0
    exclude_s: float = 604_800.0
    max_out_share_rack: float = 0.5
    max_out_share_domain: float = 0.25
    max_out_share_partition: float = 0.1
    rack_at_once: int = 1
    rate_max: int = 6
    rate_s: float = 3600.0
    shift_share: float = 0.2
    shift_min: int = 5
    shift_s: float = 600.0
    nearly_done_s: float = 900.0
    save_soon_s: float = 300.0
    maintenance_s: float = 3600.0
    wide_nodes: int = 3
    wide_gpus: int = 1024
    protect_nodes: tuple[str, ...] = ()
    protect_jobs: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()


def nodes_of(plan: Sequence[PlannedStep]) -> list[str]:
    """Nodes that a plan touches, once each."""
    return list(dict.fromkeys(step.node for step in plan if step.node and (step.verb or step.rung is Rung.EXCLUDE)))


def taken_by(plan: Sequence[PlannedStep]) -> list[str]:
    """Nodes that a plan takes out of work, once each."""
    taken = (step.node for step in plan if step.verb in (Verb.DRAIN, Verb.REBOOT) or step.rung is Rung.EXCLUDE)
    return list(dict.fromkeys(taken))


def out_of(case: Case) -> set[str]:
    """Nodes out of work now, whoever took them out."""
    return {node.name for node in case.fleet if node.out} | case.excluded


def known(case: Case, names: Sequence[str]) -> list[NodeFacts]:
    return [node for name in names if (node := node_of(case, name)) is not None]


def said(guard: str, verdict: Verdict, reason: str, measured: str = "", limit: str = "") -> GuardVerdict:
    return GuardVerdict(guard, verdict, reason, measured, limit)


def unless_a_person(case: Case) -> Verdict:
    """What a person may overrule: asked where one approves, refused where nobody looks."""
    return "refuses" if case.mode == "act" else "asks"


def count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def span(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.5 h``, ``2 days``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.3g} h" if seconds < 172_800 else f"{seconds / 86_400:.3g} days"
