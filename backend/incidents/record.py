"""Levels become rows: a finding is raised, perhaps changed, and cleared once seen and no longer asserted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime

from sqlmodel import Session

from backend.clock import unix, utc
from backend.model.events import Finding as Row
from detectors.model import BoolArray, Entity, Evidence, Finding, Fleet, Judged, Severity

#: A score must move this much before its row is written again: steps re-assert every level, rows tell news.
SCORE_STEP = 0.05


@dataclass(frozen=True, slots=True)
class Held:
    """A level that holds, its row, and the incident it was linked to (None = not yet, or never)."""

    row_id: int
    finding: Finding
    incident: int | None = None


#: Finding key -> what holds under it. The pipeline's memory of the rows that are not cleared.
Ledger = MutableMapping[str, Held]


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step changed; empty means no row was touched."""

    raised: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    cleared: tuple[Held, ...] = ()
    frozen: frozenset[str] = field(default_factory=frozenset)

    @property
    def empty(self) -> bool:
        return not (self.raised or self.changed or self.cleared)


def held_of(row: Row) -> Held:
    """A row read back at start."""
    assert row.id is not None
    entity = Entity(row.cluster, row.entity_kind, row.entity_id, row.entity_name, row.node)
    evidence = tuple(Evidence(**piece) for piece in row.evidence)
    finding = Finding(
        row.detector, row.kind, entity, Severity.of(row.severity), row.score, unix(row.since), row.reason, evidence
    )
    return Held(row.id, finding, row.incident_id)


def is_blind(blind: Mapping[str, BoolArray], fleet: Fleet, entity: Entity) -> bool:
    """Could this step not judge the entity, or the node it sits in?"""
    for kind, key in ((entity.kind, entity.id), ("node", entity.host)):
        slot = fleet.slots.get((kind, key))
        mask = blind.get(kind)
        if slot is not None and mask is not None and slot < len(mask) and bool(mask[slot]):
            return True
    return False


def frozen_keys(ledger: Ledger, judged: Mapping[str, Judged], fleet: Fleet, asserted: Iterable[str]) -> frozenset[str]:
    """Keys that are not asserted and not clear either: their detector failed, or could not see their entity."""
    missing = set(ledger).difference(asserted)
    frozen = set()
    for key in missing:
        finding = ledger[key].finding
        seen = judged.get(finding.detector)
        if seen is None or is_blind(seen.blind, fleet, finding.entity):
            frozen.add(key)
    return frozenset(frozen)


def record(
    session: Session,
    ledger: Ledger,
    findings: Sequence[Finding],
    frozen: frozenset[str],
    at: datetime,
    emitted_at: datetime,
) -> Delta:
    """Write what is news and bring the ledger up to date. ``at`` is tick.at, ``emitted_at`` when the tick closed."""
    raised, changed = [], []
    now = {f.key: f for f in findings}
    for key, finding in now.items():
        before = ledger.get(key)
        if before is None:
            ledger[key] = Held(_raise(session, finding, at, emitted_at), finding)
            raised.append(key)
        elif _is_news(before.finding, finding):
            _change(session, before.row_id, finding)
            ledger[key] = replace(before, finding=finding)
            changed.append(key)
    gone = [key for key in ledger if key not in now and key not in frozen]
    cleared = tuple(_clear(session, ledger.pop(key), at) for key in gone)
    return Delta(tuple(raised), tuple(changed), cleared, frozen)


def _is_news(before: Finding, after: Finding) -> bool:
    return before.severity != after.severity or abs(before.score - after.score) >= SCORE_STEP


def _raise(session: Session, finding: Finding, at: datetime, emitted_at: datetime) -> int:
    row = Row(
        cluster=finding.entity.cluster,
        key=finding.key,
        detector=finding.detector,
        kind=finding.kind,
        entity_kind=finding.entity.kind,
        entity_id=finding.entity.id,
        entity_name=str(finding.entity),
        node=finding.entity.host,
        severity=finding.severity.word,
        score=finding.score,
        since=utc(finding.since),
        reason=finding.reason,
        evidence=[asdict(piece) for piece in finding.evidence],
        raised_at=at,
        emitted_at=emitted_at,
    )
    session.add(row)
    session.flush()
    assert row.id is not None
    return row.id


def _change(session: Session, row_id: int, finding: Finding) -> None:
    row = session.get_one(Row, row_id)
    row.severity, row.score, row.reason = finding.severity.word, finding.score, finding.reason
    row.evidence = [asdict(piece) for piece in finding.evidence]
    session.add(row)


def _clear(session: Session, held: Held, at: datetime) -> Held:
    row = session.get_one(Row, held.row_id)
    row.cleared_at = at
    session.add(row)
    return held
