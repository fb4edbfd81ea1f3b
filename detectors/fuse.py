"""Findings of one tick become ranked suspicions: what agrees is joined, what follows from a cause folds under it."""

from __future__ import annotations

from dataclasses import dataclass

from detectors.model import Entity, FaultKind, Finding, Severity


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One possible cause. authority: code, state, vote, trend, rate, rule or band (tables/kinds.csv)."""

    kind: FaultKind
    entity: Entity
    score: float
    reason: str
    authority: str
    severity: Severity
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What one fault looks like now: hypotheses, best first, and every finding it explains.

    ``opens`` False: worth a row, not an incident of its own (severity info).
    """

    hypotheses: tuple[Hypothesis, ...]
    findings: tuple[Finding, ...]
    entities: tuple[Entity, ...]
    severity: Severity
    node: str
    job: str
    opens: bool = True
