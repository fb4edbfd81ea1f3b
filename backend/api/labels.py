"""labels: people say whether we were right, and what it really was; what is learnt is learnt from here."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from backend import learn, writes
from backend.api.guard import Reader, Writer, watch_of
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.api.words import JobId, Note, RowId
from backend.identity import limits
from backend.model.learning import Label
from backend.reliability.alerts import Word, alert_quality
from backend.store import labels
from backend.watch import Watch

router = APIRouter(prefix="/labels", tags=["labels"])

#: What a model comes as.
BINARY = "application/octet-stream"
WatchOf = Annotated[Watch, Depends(watch_of)]


class NewLabel(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"incident": 812, "right": False, "cause": "disk_full", "note": "/scratch had 0 bytes left"}]
        },
    )
    incident: RowId | None = Field(default=None, description="Which incident; or else")
    job: JobId | None = Field(default=None, description="which job: the verdict on its logs, or that none was given.")
    right: bool = Field(description="Whether we named the cause.")
    cause: str = Field(
        default="",
        max_length=64,
        pattern="^[a-z0-9_]*$",
        description="The real one: a class of job logs, or a kind of fault; empty = nobody knows.",
    )
    note: Note | None = None

    @model_validator(mode="after")
    def one_target(self) -> NewLabel:
        if (self.incident is None) == (self.job is None):
            raise ValueError("name either an incident or a job")
        return self


class LabelRow(BaseModel):
    """One person's word. ``said`` is what we had said then; ``verdict`` the event on the job's logs it speaks of."""

    id: int
    at: datetime
    by: str
    incident: int | None
    job: str
    right: bool
    said: str
    cause: str
    note: str
    verdict: int | None


class LabelList(BaseModel):
    items: list[LabelRow]
    next: int | None = Field(description="Give it as ``before`` for the next page; null: that was all.")


def row_of(row: Label) -> dict[str, Any]:
    return {
        "id": row.id,
        "at": row.at,
        "by": row.by,
        "incident": row.incident_id,
        "job": row.job,
        "right": row.right,
        "said": row.said,
        "cause": row.cause,
        "note": row.note,
        "verdict": row.event_id,
    }


@router.post("", operation_id="add_label", response_model=LabelRow, status_code=201)
def add_label(new: NewLabel, person: Writer, watch: WatchOf) -> Response:
    """Say whether we were right about an incident or a job, and what it really was. A person's last word counts; what
    they said before stays in the list. Of a job of which nothing was said (a failure we missed) only its cause can be
    named; it counts in no figure of how often we were right."""
    about: dict[str, int | str] = {"incident": new.incident} if new.incident is not None else {"job": new.job or ""}
    row = writes.label(watch, person, new.right, new.cause, new.note or "", **about)
    found = json(row_of(row))
    found.status_code = 201
    return found


@router.get("", operation_id="list_labels", response_model=LabelList)
def list_labels(
    person: Reader,
    watch: WatchOf,
    incident: Annotated[RowId | None, Query(description="Only those of this incident.")] = None,
    job: Annotated[str, Query(max_length=128, description="Only those that speak of this job.")] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    before: Annotated[RowId | None, Query()] = None,
) -> Response:
    """What people said, newest first, every word of it."""
    with watch.store.read() as session:
        rows = labels.page(session, watch.cluster, limit, before, incident_id=incident, job=job)
        items = [row_of(row) for row in limits.seen(session, watch.cluster, person, rows)]
    return json({"items": items, "next": rows[-1].id if len(rows) == limit else None})


class LearntModel(BaseModel):
    """What labels taught, in numbers; see ``summary``. ``version`` 0: nothing yet."""

    version: int
    at: datetime | None
    n: int = Field(description="Failures that taught it.")
    used: bool = Field(description="Whether it is asked where no rule names the cause.")
    held: int = Field(description="Failures that were held out by turns, whole runs at a time.")
    answered: int = Field(description="Of those, how many it would have answered.")
    right: int = Field(description="Of the answered, how many were right.")
    ci95: list[float] | None = Field(description="Wilson's interval of right among answered.")
    counts: dict[str, int] = Field(description="Failures of each class.")
    missing: dict[str, int] = Field(description="How many more runs each class needs; under an empty name, classes.")
    left_out: dict[str, int] = Field(description="Labels that taught nothing, by reason.")
    summary: str


@router.get("/model", operation_id="read_learnt_model", response_model=LearntModel)
def read_learnt_model(_: Reader, watch: WatchOf) -> Response:
    """The model that labels taught: its version, n, and the accuracy that was measured on held-out failures."""
    with watch.store.read() as session:
        found = learn.learnt(session, watch.cluster)
    empty: dict[str, Any] = {"version": 0, "at": None, "n": 0, "used": False, "held": 0, "answered": 0, "right": 0}
    shown = asdict(found) if found is not None else empty | {"counts": {}, "missing": {}, "left_out": {}}
    low, high = shown.pop("low", None), shown.pop("high", None)
    shown.pop("least", None)
    bounds = [round(low, 4), round(high, 4)] if low is not None and high is not None else None
    return json({**shown, "ci95": bounds, "summary": learn.words(found)})


@router.get(
    "/model/file",
    operation_id="read_learnt_file",
    response_class=Response,
    responses={200: {"content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}}},
)
def read_learnt_file(_: Reader, watch: WatchOf) -> Response:
    """The newest model as a file for ``watchkeeper classify --model``: arrays and JSON, no program text."""
    with watch.store.read() as session:
        blob = learn.file_of(session, watch.cluster)
    if blob is None:
        raise Problem(404, "Nobody has labelled a job's failure yet, so nothing was learnt.")
    return Response(blob, media_type=BINARY, headers={"Content-Disposition": "attachment; filename=joblog-model.npz"})


class QualityRow(BaseModel):
    """How often ``said`` was right; a thing on which people do not agree counts as disputed, in neither number."""

    said: str
    right: int
    n: int
    rate: float | None
    ci95: list[float] | None = Field(description="Wilson's interval.")
    disputed: int
    really: dict[str, int] = Field(description="What the wrong ones were, as people named it.")


class QualityList(BaseModel):
    items: list[QualityRow]
    labels: int = Field(description="Labels that were read: the newest.")


@router.get("/quality", operation_id="read_alert_quality", response_model=QualityList)
def read_alert_quality(_: Reader, watch: WatchOf) -> Response:
    """How often what we said was right, by what we said, as people judged it."""
    with watch.store.read() as session:
        rows = labels.page(session, watch.cluster, labels.MOST)
        words = [
            Word(learn.ref_of(row.incident_id, row.job), row.said, row.right, row.cause)
            for row in labels.standing(rows)
            if row.said
        ]
    items = [
        {
            "said": one.said,
            "right": one.right,
            "n": one.n,
            "rate": round(one.right / one.n, 4) if one.n else None,
            "ci95": [round(one.interval.low, 4), round(one.interval.high, 4)] if one.interval else None,
            "disputed": one.disputed,
            "really": dict(one.really),
        }
        for one in alert_quality(words)
    ]
    return json({"items": items, "labels": len(rows)})
