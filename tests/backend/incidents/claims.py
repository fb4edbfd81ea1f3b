"""Findings and suspicions made to measure, and the one step from levels to rows that these tests take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlmodel import col, select

from backend.clock import unix
from backend.incidents import lifecycle
from backend.incidents.correlate import Fold
from backend.incidents.record import Delta, Ledger, record
from backend.model.events import Finding as FindingRow
from backend.model.incidents import Entry, Incident
from backend.store.engine import Store
from detectors.fuse import Hypothesis, Suspicion
from detectors.model import Entity, Evidence, Finding, Fleet, Severity
from tests.detectors.fleets import entity, fleet_of

FLEET = fleet_of(2, 8)
AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
GPU_3 = entity(FLEET, "gpu-0001/gpu3")
NODE_1 = entity(FLEET, "gpu-0001")


def later(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def finding(
    name: str = "gpu-0001/gpu3",
    kind: str = "gpu_bus_loss",
    severity: Severity = Severity.CRITICAL,
    score: float = 0.9,
    detector: str = "kernel/xid",
    reason: str = "",
    fleet: Fleet = FLEET,
) -> Finding:
    said = reason or f"{name} shows {kind}."
    evidence = (Evidence("kernel line", "Xid 79", ref="event:7"),)
    return Finding(detector, kind, entity(fleet, name), severity, score, unix(AT), said, evidence)


def hypothesis(found: Finding, authority: str = "code") -> Hypothesis:
    keys = frozenset({found.key})
    return Hypothesis(found.kind, found.entity, found.score, found.reason, authority, found.severity, keys)


def suspicion(*findings: Finding, authority: str = "code", job: str = "48213") -> Suspicion:
    """One whose causes are its findings, in the order given."""
    entities: tuple[Entity, ...] = tuple(dict.fromkeys(f.entity for f in findings))
    causes = tuple(hypothesis(f, authority) for f in findings)
    return Suspicion(causes, findings, entities, max(f.severity for f in findings), findings[0].entity.host, job)


def written(
    store: Store, ledger: Ledger, findings: Sequence[Finding], at: datetime = AT, frozen: frozenset[str] = frozenset()
) -> Delta:
    with store.write() as session:
        return record(session, ledger, findings, frozen, at, at + timedelta(seconds=2))


def applied(store: Store, ledger: Ledger, *folds: Fold, at: datetime = AT, dark: Sequence[str] = ()) -> list[Incident]:
    """The levels of the folds recorded, then the folds applied, in one transaction as the pipeline does."""
    levels = {f.key: f for fold in folds for f in fold.suspicion.findings}
    held = [h.finding for key, h in ledger.items() if key not in levels]
    with store.write() as session:
        record(session, ledger, [*held, *levels.values()], frozenset(), at, at)
        return lifecycle.apply(session, folds, ledger, FLEET, at, dark)


def rows(store: Store) -> list[FindingRow]:
    with store.read() as session:
        return list(session.exec(select(FindingRow).order_by(col(FindingRow.id))))


def incident(store: Store, number: int) -> Incident:
    with store.read() as session:
        return session.get_one(Incident, number)


def timeline(store: Store, number: int) -> list[tuple[str, str]]:
    with store.read() as session:
        query = select(Entry).where(col(Entry.incident_id) == number).order_by(col(Entry.id))
        return [(entry.what, entry.text) for entry in session.exec(query)]
