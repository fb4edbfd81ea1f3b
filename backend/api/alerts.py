"""alerts and silences: what was told to whom and why, who would be told, what is held back, what was given up."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from backend import quieting
from backend.answers import alerts as answers
from backend.api.guard import Reader, Writer, watch_of
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.api.words import Asked as AskedKind
from backend.api.words import Host, JobId, Moment, Reason, RowId
from backend.notify import preview
from backend.notify.silences import Match
from backend.store import alerts, incidents, messages
from backend.telling import desk_of
from backend.watch import Watch
from detectors.model import Severity

router = APIRouter(tags=["alerts"])

WatchOf = Annotated[Watch, Depends(watch_of)]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]
Patterns = Annotated[list[Pattern], Field(max_length=100)]
Loudness = Literal["info", "warning", "high", "critical"]
State = Literal["sent", "waiting", "claimed", "dead"]


class SentRow(BaseModel):
    """One message on one channel."""

    id: int
    at: datetime
    kind: str
    incident: int | None
    severity: str
    headline: str
    why: str
    route: str = Field(description="The route that sent it; empty: it was addressed by itself.")
    channel: str
    to: list[str] = Field(description="Who got it instead of those in the settings.")
    state: State
    tries: int
    answer: str = Field(description="What the channel answered.")
    error: str
    message_id: str


class AlertsAnswer(BaseModel):
    items: list[SentRow]
    groups: list[dict[str, Any]] = Field(description="Groups of incidents that are told as one and still open.")
    held: list[dict[str, Any]] = Field(description="Incidents that nobody is told of now, and why.")
    counts: dict[str, int] = Field(description="Messages by state.")
    as_of: datetime


class RouteWord(BaseModel):
    """What one route says of the alert."""

    route: str
    takes: bool
    why: str
    channels: list[str]
    to: dict[str, list[str]]
    group: str
    wait_s: float
    when: str
    then: str


class PreviewAnswer(BaseModel):
    """Who would be told. Nothing is sent."""

    answer: str
    kind: str
    severity: str
    node: str
    rack: str
    switch: str
    job: str
    owner: str
    team: str
    routes: list[RouteWord]
    held: str = Field(description="What holds it back; empty: nothing.")
    held_until: datetime | None


class Matches(BaseModel):
    """Each list holds patterns (``gpu-04*``) of which one has to fit; all that are given have to."""

    model_config = ConfigDict(extra="forbid")
    kind: Patterns = []
    entity: Patterns = []
    node: Patterns = []
    rack: Patterns = []
    switch: Patterns = []
    job: Patterns = []
    owner: Patterns = []
    team: Patterns = []
    least: Loudness | None = None
    most: Loudness | None = None


class NewSilence(BaseModel):
    """Hold back what it matches. Give ``ends_at`` or ``hours``; without either it lasts 2 hours."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"matches": {"node": ["gpu-0412"]}, "comment": "riser is being swapped", "hours": 4}]
        },
    )
    kind: Literal["silence", "maintenance"] = "silence"
    matches: Matches
    comment: Reason
    starts_at: AwareDatetime | None = None
    ends_at: AwareDatetime | None = None
    hours: float | None = Field(None, gt=0, le=24 * 31)


class SilenceRow(BaseModel):
    id: int
    kind: Literal["silence", "maintenance"]
    matches: dict[str, Any]
    words: str
    comment: str
    by: str
    created_at: datetime
    starts_at: datetime
    ends_at: datetime
    ended_at: datetime | None
    ended_by: str


class SilenceList(BaseModel):
    items: list[SilenceRow]
    as_of: datetime


@router.get("/alerts", operation_id="list_alerts", response_model=AlertsAnswer)
def list_alerts(
    _: Reader,
    watch: WatchOf,
    state: Annotated[State | None, Query(description="Only these; dead: what was given up.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    before: Annotated[RowId | None, Query(description="The id to go on from.")] = None,
) -> Response:
    """What was told, to whom and why; what waits, what was given up, what is held back. Newest first."""
    now = watch.clock.now()
    with watch.store.read() as session:
        rows = messages.sent_log(session, watch.cluster, (state,) if state else (), limit, before)
        whole = answers.alerts_answer(session, watch.cluster, now)
    body = {"items": [answers.sent_row(*row) for row in rows], "counts": whole.counts, "as_of": now}
    body |= {"groups": [answers.group_row(row) for row in whole.groups]}
    return json(body | {"held": [answers.held_row(*row) for row in whole.held]})


@router.get("/alerts/preview", operation_id="preview_alert", response_model=PreviewAnswer)
def preview_alert(
    _: Reader,
    watch: WatchOf,
    incident: Annotated[RowId | None, Query(description="An incident that there is.")] = None,
    kind: Annotated[AskedKind | None, Query(description="Kind of fault, as in kinds.csv.")] = None,
    severity: Annotated[Loudness, Query()] = "critical",
    node: Annotated[Host | None, Query()] = None,
    job: Annotated[JobId | None, Query()] = None,
    at: Annotated[Moment | None, Query(description="At which moment; empty: now.")] = None,
) -> Response:
    """Who would be told of this, when and why: what sending asks, asked for you. Nothing is sent."""
    now, desk = at or watch.clock.now(), desk_of(watch)
    with watch.store.read() as session:
        if incident is not None:
            row = incidents.by_id(session, watch.cluster, incident)
            if row is None:
                raise Problem(404, f"No incident {incident} in cluster {watch.cluster}.")
            alert, found = preview.judged(session, desk, row, now)
        elif kind is None:
            missing = [{"where": "query.kind", "what": "missing"}]
            raise Problem(422, "Say which kind of fault, or which incident.", errors=missing)
        else:
            asked = preview.Asked(kind, Severity.of(severity), now, node or "", job or "")
            alert, found = preview.tried(session, desk, asked)
    return json(preview_row(alert, found))


def preview_row(alert: Any, found: Any) -> dict[str, Any]:
    return {
        "answer": preview.answer_words(found),
        "severity": alert.severity.word,
        **{name: getattr(alert, name) for name in ("kind", "node", "rack", "switch", "job", "owner", "team")},
        "routes": [preview.choice_row(choice) for choice in found.choices],
        "held": found.held.why if found.held else "",
        "held_until": found.held.until if found.held else None,
    }


@router.post("/alerts/{delivery_id}/send-again", operation_id="send_alert_again", response_model=SentRow)
def send_again(delivery_id: RowId, person: Writer, watch: WatchOf) -> Response:
    """A message that was given up goes once more, under the same id. 409 where it was not given up."""
    row = quieting.send_again(watch, person, delivery_id)
    with watch.store.read() as session:
        found = messages.message_of(session, row)
    return json(answers.sent_row(found, row))


@router.get("/silences", operation_id="list_silences", response_model=SilenceList)
def list_silences(
    _: Reader, watch: WatchOf, ended: Annotated[bool, Query(description="Also those that are over.")] = False
) -> Response:
    """Silences and announced work that hold now or will."""
    now = watch.clock.now()
    with watch.store.read() as session:
        rows = alerts.silences(session, watch.cluster, now, ended=ended)
    return json({"items": [answers.silence_row(row) for row in rows], "as_of": now})


@router.post("/silences", operation_id="create_silence", response_model=SilenceRow, status_code=201)
def create_silence(new: NewSilence, person: Writer, watch: WatchOf) -> Response:
    """Hold back what it matches, in your name. Incidents go on; nobody is told of them until it ends."""
    now = watch.clock.now()
    starts, ends = quieting.span_of(new.starts_at, new.ends_at, new.hours, now)
    wanted = quieting.Wanted(new.kind, match_of(new.matches), starts, ends, new.comment)
    return json(answers.silence_row(quieting.silence(watch, person, wanted)), 201)


def match_of(asked: Matches) -> Match:
    given: dict[str, Any] = {name: tuple(value) for name, value in asked.model_dump(exclude={"least", "most"}).items()}
    given |= {name: Severity.of(value) if (value := getattr(asked, name)) else None for name in ("least", "most")}
    return Match(**given)


@router.delete("/silences/{silence_id}", operation_id="end_silence", response_model=SilenceRow)
def end_silence(silence_id: RowId, person: Writer, watch: WatchOf) -> Response:
    """End it now: what it held back is told. 409 where it is over."""
    return json(answers.silence_row(quieting.end_silence(watch, person, silence_id)))
