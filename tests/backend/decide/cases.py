"""Cases to decide about: one GPU lost on gpu-0412 under job 48213, and whatever a test changes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from backend.facts import SCHEDULES, AttemptFacts, Case, HypothesisFacts, IncidentFacts, NodeFacts, PastOrder, Verb
from detectors.catalogue import load
from detectors.model import Severity

NOW = 1_800_000_000.0
NODE = "gpu-0412"
KINDS = load().kinds


def cause(kind: str = "gpu_bus_loss", authority: str = "code", **more: Any) -> HypothesisFacts:
    told = {"entity": f"{NODE}/gpu3", "entity_kind": "gpu", "node": NODE, "score": 0.99, "reason": "Xid 79"}
    return HypothesisFacts(kind=kind, authority=authority, **{**told, **more})


def incident(kind: str = "gpu_bus_loss", authority: str = "code", **more: Any) -> IncidentFacts:
    entity_kind = more.get("entity_kind", "gpu")
    told: dict[str, Any] = {
        "severity": Severity.CRITICAL,
        "state": "open",
        "entity": f"{NODE}/gpu3",
        "entity_kind": "gpu",
        "entity_id": "GPU-1",
        "node": NODE,
        "job": "48213",
        "opened_at": NOW - 60,
        "closed_at": None,
        "hypotheses": (cause(kind, authority, entity_kind=entity_kind, node=more.get("node", NODE)),),
    }
    return IncidentFacts(id=812, cluster="main", kind=kind, **{**told, **more})


def job(name: str = "48213", nodes: tuple[str, ...] = (NODE, "gpu-0001"), **more: Any) -> AttemptFacts:
    return AttemptFacts(name, state="RUNNING", start=NOW - 7200, nodes=nodes, gpus_per_node=8, **more)


def node(name: str = NODE, **more: Any) -> NodeFacts:
    return NodeFacts(name, **{"state": "allocated", "expected_gpus": 8, "read_at": NOW - 4, **more})


def fleet(size: int = 48, out: int = 0, of: NodeFacts | None = None) -> tuple[NodeFacts, ...]:
    """``size`` nodes, the first ``out`` of them drained by somebody, and ``of`` among them."""
    foreign: dict[str, Any] = {"state": "idle", "flags": frozenset({"DRAIN"}), "reason": "x", "reason_owner": "eve"}
    others = tuple(node(f"gpu-{i:04d}", **(foreign if i < out else {})) for i in range(size - 1))
    return (*others, of or node())


def case(**more: Any) -> Case:
    at = more.pop("node", node())
    told: dict[str, Any] = {
        "now": NOW,
        "mode": "propose",
        "incident": incident(),
        "node": at,
        "fleet": fleet(of=at) if at is not None else fleet(),
        "jobs": (job(),),
        "can": SCHEDULES,
    }
    return Case(**{**told, **more})


def ordered(verb: Verb = Verb.DRAIN, ago_s: float = 7200.0, **more: Any) -> PastOrder:
    told = PastOrder(verb, NODE, "gpu_bus_loss", NOW - ago_s, "done")
    return replace(told, **more)
