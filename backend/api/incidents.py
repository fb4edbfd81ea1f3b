"""incidents: what is broken, why, since when, and what people did about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from sqlmodel import Session

from backend import learn, writes
from backend.answers.incident_story import changed_before
from backend.answers.what_changed import Suspect
from backend.api.guard import Reader, Writer, watch_of
from backend.api.history import ChangeItem, of_change
from backend.api.nodes import json
from backend.api.orders import of_decision, of_order
from backend.api.snapshots import snapshots_of
from backend.api.words import Note, RowId
from backend.auth import Person
from backend.identity import limits
from backend.model.events import Finding
from backend.model.incidents import Entry, Incident
from backend.store import actions, findings, incidents, labels
from backend.watch import Watch
from backend.writes import Missing

router = APIRouter(prefix="/incidents", tags=["incidents"])

WatchOf = Annotated[Watch, Depends(watch_of)]
State = Literal["open", "acknowledged", "mitigated", "resolved"]


class Hypothesis(BaseModel):
    kind: str
    entity: str
    entity_kind: str
    node: str
    score: float
    reason: str
    authority: str = Field(description="code, state, vote, trend, rate, rule or band")


class IncidentRow(BaseModel):
    """One fault. ``entity`` prints as in ``gpu-0412/gpu3``; ``dark_sources`` could not be read when it opened."""

    id: int
    kind: str
    severity: Literal["info", "warning", "high", "critical"]
    state: State
    headline: str
    entity: str
    node: str
    job: str
    run: str
    opened_at: datetime
    changed_at: datetime
    closed_at: datetime | None
    mttr_s: float | None = Field(description="From open to close, in seconds.")
    blind: bool = Field(description="It cannot be judged at present, so it does not resolve.")
    acknowledged_by: str
    entities: list[str]
    victims: list[str]
    dark_sources: list[str]


class IncidentList(BaseModel):
    items: list[IncidentRow]
    next: int | None = Field(description="Give it as ``before`` for the next page; null: that was all.")


class TimelineEntry(BaseModel):
    at: datetime
    what: str
    actor: str
    text: str


class FindingRow(BaseModel):
    key: str
    detector: str
    kind: str
    entity: str
    severity: str
    score: float
    since: datetime
    reason: str
    evidence: list[dict[str, Any]]
    raised_at: datetime
    cleared_at: datetime | None
    victim: bool


class Similar(BaseModel):
    """A past failure whose logs resemble those of this job, and what a person said that it was."""

    incident: int | None
    job: str
    cause: str
    cosine: float = Field(description="0 to 1: how much the logs share, rare words most.")
    line: str


class ChangedRow(ChangeItem):
    """A change before the incident, that may be why."""

    before_s: float = Field(description="How long before it opened, in seconds.")
    nodes: int = Field(description="How many nodes got the same within 6 h, this one included.")
    odd: bool = Field(description="Nearly all of its kind hold another value.")


class IncidentDetail(IncidentRow):
    hypotheses: list[Hypothesis]
    changed: list[ChangedRow] = Field(description="Within 72 h before; likeliest to matter first, at most 8.")
    similar: list[Similar] = Field(description="At most three; empty where no log was judged or nobody labelled any.")
    timeline: list[TimelineEntry]
    decision: dict[str, Any] | None = Field(description="The newest decision, as in GET orders.")
    orders: list[dict[str, Any]]


class FindingList(BaseModel):
    items: list[FindingRow]


class NewNote(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "Riser ordered, ticket 4711"}]})
    text: Note


def row_of(row: Incident) -> dict[str, Any]:
    closed = row.closed_at
    return {
        "id": row.id,
        "kind": row.kind,
        "severity": row.severity,
        "state": row.state,
        "headline": row.headline,
        "entity": row.entity_name,
        "node": row.node,
        "job": row.job,
        "run": row.run,
        "opened_at": row.opened_at,
        "changed_at": row.changed_at,
        "closed_at": closed,
        "mttr_s": (closed - row.opened_at).total_seconds() if closed else None,
        "blind": row.blind,
        "acknowledged_by": row.acknowledged_by,
        "entities": row.entities,
        "victims": row.victims,
        "dark_sources": row.dark,
    }


def _entry(row: Entry) -> dict[str, Any]:
    return {"at": row.at, "what": row.what, "actor": row.actor, "text": row.text}


def _finding(row: Finding) -> dict[str, Any]:
    return {
        "key": row.key,
        "detector": row.detector,
        "kind": row.kind,
        "entity": row.entity_name,
        "severity": row.severity,
        "score": row.score,
        "since": row.since,
        "reason": row.reason,
        "evidence": row.evidence,
        "raised_at": row.raised_at,
        "cleared_at": row.cleared_at,
        "victim": row.victim,
    }


def _detail(session: Session, watch: Watch, row: Incident) -> dict[str, Any]:
    incident_id = row.id or 0
    decision = actions.told_decision(session, row)
    model = watch.verdicts.learned if watch.verdicts is not None else None
    verdict = labels.verdict_of_incident(session, row) if model is not None else None
    return {
        **row_of(row),
        "hypotheses": row.hypotheses,
        "changed": [_changed(one) for one in changed_before(session, row)],
        "similar": learn.similar(model, verdict, incident_id),
        "timeline": [_entry(entry) for entry in incidents.timeline(session, incident_id)],
        "decision": of_decision(decision) if decision is not None else None,
        "orders": [of_order(order) for order in actions.orders_of(session, incident_id)],
    }


def _changed(one: Suspect) -> dict[str, Any]:
    return of_change(one.change) | {"before_s": one.before_s, "nodes": one.alike, "odd": one.odd is not None}


def _found(session: Session, watch: Watch, incident_id: int, person: Person) -> Incident:
    row = incidents.by_id(session, watch.cluster, incident_id)
    if row is None or not limits.seen(session, watch.cluster, person, [row]):
        raise Missing(f"No incident {incident_id} in cluster {watch.cluster}; GET /api/v1/incidents lists them.")
    return row


LIVE: Sequence[State] = ("open", "acknowledged", "mitigated")
States = Annotated[
    list[State | Literal["all"]] | None, Query(alias="state", description="Default: all but resolved; all: every one.")
]


@router.get("", operation_id="list_incidents", response_model=IncidentList)
def list_incidents(
    person: Reader,
    watch: WatchOf,
    states: States = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    before: Annotated[RowId | None, Query()] = None,
) -> Response:
    """Newest first."""
    wanted = [] if states and "all" in states else list(states or LIVE)
    with watch.store.read() as session:
        rows = incidents.page(session, watch.cluster, [str(s) for s in wanted], limit, before)
        shown = limits.seen(session, watch.cluster, person, rows)
    return json({"items": [row_of(row) for row in shown], "next": rows[-1].id if len(rows) == limit else None})


@router.get("/{incident_id}", operation_id="read_incident", response_model=IncidentDetail)
def read_incident(incident_id: RowId, person: Reader, watch: WatchOf) -> Response:
    """One incident with its ranked causes, its timeline, and what is or would be done about it."""
    with watch.store.read() as session:
        return json(_detail(session, watch, _found(session, watch, incident_id, person)))


@router.get("/{incident_id}/findings", operation_id="list_incident_findings", response_model=FindingList)
def list_findings(incident_id: RowId, person: Reader, watch: WatchOf) -> Response:
    """Every finding behind an incident with its evidence; ``victim`` ones follow from the cause."""
    with watch.store.read() as session:
        _found(session, watch, incident_id, person)
        rows = findings.of_incident(session, incident_id)
    return json({"items": [_finding(row) for row in rows]})


@router.post("/{incident_id}/ack", operation_id="acknowledge_incident", response_model=IncidentDetail)
def acknowledge(incident_id: RowId, person: Writer, watch: WatchOf) -> Response:
    """Say that you have it. Twice is no error."""
    writes.acknowledge(watch, incident_id, person)
    return read_incident(incident_id, person, watch)


@router.post("/{incident_id}/resolve", operation_id="resolve_incident", response_model=IncidentDetail)
def resolve(request: Request, incident_id: RowId, person: Writer, watch: WatchOf) -> Response:
    """Say that it is mended: its node is given back, then it closes. Giving back a drained node needs an approver."""
    writes.resolve(watch, incident_id, person)
    snapshots_of(request).forget(watch.cluster)
    return read_incident(incident_id, person, watch)


@router.post("/{incident_id}/notes", operation_id="note_incident", response_model=IncidentDetail, status_code=201)
def note(incident_id: RowId, new: NewNote, person: Writer, watch: WatchOf) -> Response:
    """Put your words on the timeline."""
    writes.add_note(watch, incident_id, person, new.text)
    found = read_incident(incident_id, person, watch)
    found.status_code = 201
    return found
