"""Rows that the tests of the API put into the store: a node, an incident with its plan, an exclusion."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from backend.facts import Rung, Verb
from backend.model.actions import Decision, Exclusion, Order
from backend.model.cluster import Node
from backend.model.events import Finding
from backend.model.incidents import Incident
from backend.store import incidents
from tests.backend.api.conftest import NOW, Site


def add(site: Site, row: Any) -> int:
    with site.parts.store.write() as session:
        session.add(row)
        session.flush()
        return int(row.id or 0)


def a_node(site: Site, name: str = "gpu-001", **more: Any) -> None:
    values: dict[str, Any] = {"first_seen": NOW, "last_seen": NOW, "state": "idle", "state_at": NOW}
    with site.parts.store.write() as session:
        session.add(Node(cluster=site.watch.cluster, name=name, **{**values, **more}))


def an_incident(site: Site, node: str = "gpu-001", **more: Any) -> int:
    reason = f"GPU 3 of {node} fell off the bus."
    values: dict[str, Any] = {
        "kind": "gpu_bus_loss",
        "severity": "critical",
        "headline": reason,
        "entity_kind": "gpu",
        "entity_id": f"GPU-{node}-3",
        "entity_name": f"{node}/gpu3",
        "node": node,
        "job": "41207",
        "opened_at": NOW - timedelta(minutes=5),
        "changed_at": NOW,
        "last_asserted_at": NOW,
        "decided_revision": 1,
        "hypotheses": [
            {
                "kind": "gpu_bus_loss",
                "entity": f"{node}/gpu3",
                "entity_kind": "gpu",
                "node": node,
                "score": 0.97,
                "reason": reason,
                "authority": "code",
            }
        ],
        "entities": [f"{node}/gpu3"],
        "dark": ["slurm"],
    }
    row = Incident(cluster=site.watch.cluster, **{**values, **more})
    with site.parts.store.write() as session:
        session.add(row)
        session.flush()
        incidents.tell(session, row, NOW, "opened", reason)
        return int(row.id or 0)


def a_finding(site: Site, incident: int, node: str = "gpu-001") -> int:
    row = Finding(
        cluster=site.watch.cluster,
        key=f"kernel/xid|gpu_bus_loss|gpu:GPU-{node}-3",
        detector="kernel/xid",
        kind="gpu_bus_loss",
        entity_kind="gpu",
        entity_id=f"GPU-{node}-3",
        entity_name=f"{node}/gpu3",
        node=node,
        severity="critical",
        score=0.97,
        since=NOW,
        reason="Xid 79",
        evidence=[{"what": "Xid", "value": "79", "grade": "observed"}],
        raised_at=NOW,
        emitted_at=NOW,
        incident_id=incident,
    )
    return add(site, row)


def a_plan(site: Site, incident: int, node: str = "gpu-001", **more: Any) -> int:
    """A decision that waits: exclude only, so that approving it needs no backend."""
    values: dict[str, Any] = {
        "state": "proposed",
        "plan": [{"rung": Rung.EXCLUDE.value, "verb": None, "node": node, "job": "", "text": f"Exclude {node}."}],
        "guards": [{"guard": "share", "verdict": "holds", "reason": "1 of 48 out", "measured": "1", "limit": "2"}],
        "blast": {"nodes": [node], "jobs": [], "other_jobs": [], "gpus": 8},
    }
    row = Decision(
        cluster=site.watch.cluster,
        incident_id=incident,
        revision=1,
        at=NOW,
        mode="propose",
        sentence=f"Keep new work from {node}.",
        recommended="exclude",
        **{**values, **more},
    )
    return add(site, row)


def an_order(site: Site, incident: int, decision: int, state: str = "waiting", node: str = "gpu-001") -> int:
    row = Order(
        cluster=site.watch.cluster,
        key=f"d{decision}:drain:{node}",
        decision_id=decision,
        incident_id=incident,
        verb=Verb.DRAIN.value,
        node=node,
        kind="gpu_bus_loss",
        reason=f"[watchkeeper] gpu_bus_loss gpu=3 inc={incident}",
        state=state,
        created_at=NOW,
        not_before=NOW,
    )
    return add(site, row)


def an_exclusion(site: Site, node: str = "gpu-001", **more: Any) -> int:
    values: dict[str, Any] = {"owner": "dana", "origin": "approved", "reason": "bus loss", "kind": "gpu_bus_loss"}
    until = NOW + timedelta(days=7)
    row = Exclusion(cluster=site.watch.cluster, node=node, created_at=NOW, until=until, **{**values, **more})
    return add(site, row)
