"""The life of an incident: opened, folded into, seen clear, closed. Rows in, rows out; causes come from fuse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime

from sqlmodel import Session

from backend.clock import unix
from backend.facts import HypothesisFacts, IncidentFacts
from backend.incidents.correlate import Fold
from backend.incidents.record import Ledger, is_blind
from backend.model.events import Finding as FindingRow
from backend.model.incidents import Incident
from backend.store import incidents as store
from detectors.fuse import AUTHORITIES, Suspicion
from detectors.model import BoolArray, Entity, Fleet, Severity


def facts_of(row: Incident, keys: Iterable[str] = ()) -> IncidentFacts:
    """An incident as the pure rooms take it; ``keys`` are the finding keys linked to it."""
    assert row.id is not None
    return IncidentFacts(
        id=row.id,
        cluster=row.cluster,
        kind=row.kind,
        severity=Severity.of(row.severity),
        state=row.state,
        entity=row.entity_name,
        entity_kind=row.entity_kind,
        entity_id=row.entity_id,
        node=row.node,
        job=row.job,
        opened_at=unix(row.opened_at),
        closed_at=unix(row.closed_at) if row.closed_at else None,
        hypotheses=tuple(HypothesisFacts(**h) for h in row.hypotheses),
        entities=tuple(row.entities),
        keys=frozenset(keys),
        dark=tuple(row.dark),
        asserted_at=unix(row.last_asserted_at),
        moved_at=unix(row.mitigated_at) if row.mitigated_at else None,
        victims=tuple(row.victims),
    )


def keys_by_incident(ledger: Ledger) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for key, held in ledger.items():
        if held.incident is not None:
            found.setdefault(held.incident, set()).add(key)
    return found


def apply(
    session: Session, folds: Sequence[Fold], ledger: Ledger, fleet: Fleet, at: datetime, dark: Sequence[str]
) -> list[Incident]:
    """Open an incident for each fold that has none, fold the others in. Returns the incidents that changed."""
    touched = []
    opened: dict[int, Incident] = {}
    for place, fold in enumerate(folds):
        incident = opened.get(fold.opens_with) if fold.opens_with is not None else None
        if incident is None and fold.incident is not None:
            incident = session.get_one(Incident, fold.incident)
        if incident is None:
            incident = _open(session, fold.suspicion, ledger, fleet, at, dark)
            opened[place] = incident
            touched.append(incident)
        elif _fold(session, incident, fold, ledger, at) and incident not in touched:
            touched.append(incident)
    return touched


def _open(
    session: Session, suspicion: Suspicion, ledger: Ledger, fleet: Fleet, at: datetime, dark: Sequence[str]
) -> Incident:
    cause = suspicion.hypotheses[0]
    row = Incident(
        cluster=cause.entity.cluster,
        kind=cause.kind,
        severity=suspicion.severity.word,
        headline=cause.reason,
        entity_kind=cause.entity.kind,
        entity_id=cause.entity.id,
        entity_name=str(cause.entity),
        node=cause.entity.host,
        job=suspicion.job,
        opened_at=at,
        changed_at=at,
        last_asserted_at=at,
        hypotheses=_hypotheses(suspicion),
        entities=sorted(str(e) for e in suspicion.entities),
        dark=list(dark),
    )
    session.add(row)
    session.flush()
    _link(session, row, (f.key for f in suspicion.findings), ledger, victim=False)
    store.tell(session, row, at, "opened", cause.reason)
    return row


def _fold(session: Session, incident: Incident, fold: Fold, ledger: Ledger, at: datetime) -> bool:
    """Link what is new; a cause of the same incident may rank its hypotheses anew. False when nothing was new: no
    further level, and none that grew louder than the incident."""
    keys = [f.key for f in fold.suspicion.findings if ledger[f.key].incident != incident.id]
    if not keys and not _louder(incident, fold):
        return False
    _link(session, incident, keys, ledger, victim=fold.victim)
    names = sorted(str(e) for e in fold.suspicion.entities)
    cause = fold.suspicion.hypotheses[0]
    if fold.victim:
        incident.victims = sorted(set(incident.victims).union(names))
        store.tell(session, incident, at, "folded", cause.reason)
    else:
        _rank_again(incident, fold.suspicion)
        incident.entities = sorted(set(incident.entities).union(names))
        news = dict.fromkeys(ledger[key].finding.reason for key in keys)
        store.tell(session, incident, at, "evidence", " ".join(news) or cause.reason)
    if incident.state == "resolved":
        incident.changed_at = at
        session.add(incident)
        return True
    incident.changed_at = incident.last_asserted_at = at
    incident.clear_s = 0.0
    incident.revision += 1
    session.add(incident)
    return True


def _louder(incident: Incident, fold: Fold) -> bool:
    live = incident.state != "resolved" and not fold.victim
    return live and fold.suspicion.severity > Severity.of(incident.severity)


def _rank_again(incident: Incident, suspicion: Suspicion) -> None:
    """The strongest claim per (kind, entity) of old and new, best first, the newest of equals; severity only rises."""
    best: dict[tuple[str, str], dict[str, object]] = {}
    for h in [*_hypotheses(suspicion), *incident.hypotheses]:
        place = (str(h["kind"]), str(h["entity"]))
        if place not in best or _rank(h) > _rank(best[place]):
            best[place] = h
    incident.hypotheses = sorted(best.values(), key=_rank, reverse=True)
    cause, lead = incident.hypotheses[0], suspicion.hypotheses[0]
    if (cause["kind"], cause["entity"]) == (lead.kind, str(lead.entity)):
        incident.kind = lead.kind
        incident.entity_kind, incident.entity_id = lead.entity.kind, lead.entity.id
        incident.entity_name, incident.node = str(lead.entity), lead.entity.host
    if (cause["kind"], cause["entity"]) == (incident.kind, incident.entity_name):
        incident.headline = str(cause["reason"])
    incident.severity = max(Severity.of(incident.severity), suspicion.severity).word
    incident.job = incident.job or suspicion.job


def _rank(hypothesis: Mapping[str, object]) -> tuple[int, float]:
    authority = str(hypothesis["authority"])
    place = AUTHORITIES.index(authority) if authority in AUTHORITIES else len(AUTHORITIES)
    return -place, float(str(hypothesis["score"]))


def _hypotheses(suspicion: Suspicion) -> list[dict[str, object]]:
    return [
        asdict(HypothesisFacts(h.kind, str(h.entity), h.entity.kind, h.entity.host, h.score, h.reason, h.authority))
        for h in suspicion.hypotheses
    ]


def _link(session: Session, incident: Incident, keys: Iterable[str], ledger: Ledger, *, victim: bool) -> None:
    for key in keys:
        ledger[key] = replace(ledger[key], incident=incident.id)
        row = session.get_one(FindingRow, ledger[key].row_id)
        row.incident_id, row.victim = incident.id, victim
        session.add(row)


def watch_clear(
    session: Session,
    rows: Sequence[Incident],
    ledger: Ledger,
    frozen: frozenset[str],
    blind: Mapping[str, BoolArray],
    fleet: Fleet,
    elapsed_s: float,
    at: datetime,
) -> None:
    """Count how long each live incident has been seen and clear. Blind time does not count; news starts over."""
    linked = keys_by_incident(ledger)
    for row in rows:
        assert row.id is not None
        keys = linked.get(row.id, set())
        entity = Entity(row.cluster, row.entity_kind, row.entity_id, row.entity_name, row.node)
        if row.resolving_by:
            continue
        if keys - frozen:
            _set(session, row, clear_s=0.0, blind=False)
            row.last_asserted_at = at if elapsed_s else row.last_asserted_at
        elif keys or is_blind(blind, fleet, entity):
            _set(session, row, clear_s=row.clear_s, blind=True)
        elif elapsed_s:
            _set(session, row, clear_s=row.clear_s + elapsed_s, blind=False)


def seen_clear(row: Incident, hold_s: float) -> bool:
    """Live, seen, and clear for so long: what it took out may be given back."""
    return row.state in store.LIVE and not row.blind and row.clear_s >= hold_s


def heir_of(session: Session, row: Incident) -> Incident | None:
    """The oldest other live incident of the same node that is loud enough to keep it out."""
    same = store.live_on(session, row.cluster, row.node) if row.node else ()
    others = (other for other in same if other.id != row.id and not other.drill)
    return next((other for other in others if Severity.of(other.severity) >= Severity.HIGH), None)


def shade(session: Session, rows: Sequence[Incident], dark: Sequence[str]) -> None:
    """Each live incident says which sources do not answer now; one that is closed keeps what was dark then."""
    for row in rows:
        if row.dark != list(dark):
            row.dark = list(dark)
            session.add(row)


def _set(session: Session, row: Incident, *, clear_s: float, blind: bool) -> None:
    if row.clear_s != clear_s or row.blind != blind:
        row.clear_s, row.blind = clear_s, blind
        session.add(row)


def close(session: Session, row: Incident, at: datetime, text: str, actor: str = "") -> None:
    """Resolve a live incident."""
    row.state, row.closed_at, row.changed_at, row.close_note = "resolved", at, at, text
    row.revision += 1
    row.decided_revision = row.revision
    session.add(row)
    store.tell(session, row, at, "closed", text, actor)
