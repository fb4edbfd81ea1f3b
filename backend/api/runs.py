"""GET runs: what became of each run: its attempts, where its time went, what failures took."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from backend.answers.runs import listed, run_list, run_of
from backend.api.guard import Reader
from backend.api.history import WatchOf
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.api.words import Asked, Moment

router = APIRouter(prefix="/runs", tags=["runs"])


class RunRow(BaseModel):
    """One run. ``ettr`` is null where its bounds are wider than 0.005 either way; ``ettr_bounds`` hold the truth."""

    run: str = Field(examples=["atlas-70b-pretrain"])
    user: str
    account: str
    state: str = Field(description="Of its newest attempt.", examples=["RUNNING"])
    nodes: int
    gpus: int
    began_at: datetime | None
    moved_at: datetime = Field(description="When it last did anything.")
    attempts: int
    failures: int
    infra_failures: int
    last_failure_at: datetime | None
    last_failure: str = Field(description="Why, in a few words.")
    ettr: float | None
    ettr_bounds: list[float] | None
    lost_gpu_hours: list[float] = Field(description="Held, but not productive: [least, most].")


class RunList(BaseModel):
    items: list[RunRow]
    states: dict[str, int] = Field(description="How many runs are in each state.")
    next: datetime | None = Field(description="Give it as ``before`` for the next page; null: that was all.")


class RunDocument(BaseModel):
    """One run as runs.json has it."""

    run: str
    nodes: int
    gpus: int
    attempts: list[dict[str, Any]] = Field(description="Each with its nodes, parts_s, class and verdict.")
    ettr: float | None
    ettr_bounds: list[float] | None
    decomposition_s: dict[str, float | None] = Field(description="Seconds by part; null where only bounded.")
    ettr_sliding_1h: list[list[float]]
    failures: int
    infra_failures: int
    mttf_hours: float | None
    quru: dict[str, Any] = Field(description="Wall-clock as Q + R + U, seconds.")
    roles: list[dict[str, Any]] = Field(description="ETTR of each role; empty where none was given.")
    as_of: datetime


@router.get("", operation_id="list_runs", response_model=RunList)
def list_runs(
    person: Reader,
    watch: WatchOf,
    state: Annotated[Asked, Query(description="Only runs whose newest attempt is in this state.")] = "",
    user: Annotated[Asked, Query(description="Only runs of this user.")] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    before: Annotated[Moment | None, Query(description="Only runs that moved before then.")] = None,
) -> Response:
    """Runs, what moved last first. They are counted by a loop, about a minute behind."""
    with watch.store.read() as session:
        found = run_list(session, watch.cluster, limit, before, state.upper(), user, person.projects)
    last = found.rows[-1]["moved_at"] if len(found.rows) == limit else None
    return json({"items": [listed(row) for row in found.rows], "states": found.states, "next": last})


@router.get("/{run:path}", operation_id="read_run", response_model=RunDocument)
def read_run(person: Reader, watch: WatchOf, run: str) -> Response:
    """One run, by its name or by the id of one of its jobs: attempts, ETTR, where the time went."""
    with watch.store.read() as session:
        row = run_of(session, watch.cluster, run, person.projects)
    if row is None:
        raise Problem(404, f"No run or job {run[:200]!r} is accounted here.")
    return json({**row.document, "user": row.user, "as_of": row.moved_at})
