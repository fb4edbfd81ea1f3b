"""backtests: another rule set tried on a span of the past, beside today's; and put in force."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from backend import backtests
from backend.api.guard import Reader, Writer, watch_of
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.api.words import Moment, Remark, RowId
from backend.clock import utc
from backend.model.tasks import Task
from backend.store import tasks
from backend.watch import Watch

router = APIRouter(prefix="/backtests", tags=["backtests"])

WatchOf = Annotated[Watch, Depends(watch_of)]


class NewBacktest(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "start": "2026-02-28T00:00:00Z",
                    "end": "2026-02-28T06:00:00Z",
                    "thresholds": {"silence_ticks": 3},
                }
            ]
        },
    )
    start: Moment
    end: Moment
    thresholds: dict[str, float] = Field(description="Values to try, by name; GET /settings lists those in force.")


class Because(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "fewer false alarms"}]})
    reason: Remark = Field(default="", description="Kept in the audit.")


class SideAnswer(BaseModel):
    findings: int
    incidents: int
    above_info: int
    exclude: list[str] = Field(description="Nodes that it would have kept from work.")


class DifferenceAnswer(BaseModel):
    what: str = Field(description="raised: only by the tried set; not raised: only by today's; changed: not alike.")
    at: float = Field(description="Unix s.")
    entity: str
    kind: str
    severity: str
    words: str


class Outcome(BaseModel):
    sentence: str
    today: SideAnswer
    tried: SideAnswer
    same: int = Field(description="Incidents that both make alike.")
    differences: list[DifferenceAnswer]
    more: int = Field(description="Differences beyond those listed.")
    gained: list[str] = Field(description="Nodes that only the tried set would have kept from work.")
    lost: list[str]
    samples: int


class BacktestRow(BaseModel):
    id: int
    at: datetime
    by: str
    start: datetime
    end: datetime
    thresholds: dict[str, float]
    today: dict[str, float] = Field(description="The values in force when it was asked for.")
    state: str = Field(description="waiting, running, done, failed or cancelled.")
    share: float = Field(description="How much is done, 0 to 1.")
    said: str = Field(description="What is being done, or why it failed.")
    began_at: datetime | None
    ended_at: datetime | None
    cancelled_by: str
    adopted_at: datetime | None = Field(description="Since then its thresholds are in force.")
    adopted_by: str
    sentence: str = Field(description="What came of it, in one sentence.")


class BacktestAnswer(BacktestRow):
    result: Outcome | None


class BacktestList(BaseModel):
    items: list[BacktestRow]
    next: int | None = Field(description="Give it as ``before`` for the next page; null: that was all.")


SAME = ("id", "at", "by", "state", "share", "said", "began_at", "ended_at", "cancelled_by", "adopted_at", "adopted_by")


def row_of(row: Task) -> dict[str, Any]:
    asked = row.asked
    told = {"start": utc(asked["start"]), "end": utc(asked["end"]), "thresholds": asked["thresholds"]}
    told |= {"today": asked.get("today", {}), "sentence": row.result.get("sentence", "")}
    return {name: getattr(row, name) for name in SAME} | told


def whole(row: Task) -> dict[str, Any]:
    return row_of(row) | {"result": row.result or None}


@router.get("", operation_id="list_backtests", response_model=BacktestList)
def list_backtests(
    _: Reader,
    watch: WatchOf,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[RowId | None, Query()] = None,
) -> Response:
    """What was tried, newest first."""
    with watch.store.read() as session:
        rows = tasks.page(session, watch.cluster, limit, before)
    return json({"items": [row_of(row) for row in rows], "next": rows[-1].id if len(rows) == limit else None})


@router.get("/{number}", operation_id="read_backtest", response_model=BacktestAnswer)
def read_backtest(number: RowId, _: Reader, watch: WatchOf) -> Response:
    """One backtest: how far it is, or what both rule sets made of the span and how that differs."""
    with watch.store.read() as session:
        row = tasks.by_id(session, watch.cluster, number)
    if row is None:
        raise Problem(404, f"No backtest {number} in cluster {watch.cluster}.")
    return json(whole(row))


@router.post("", operation_id="begin_backtest", response_model=BacktestAnswer, status_code=201)
def begin_backtest(new: NewBacktest, person: Writer, watch: WatchOf) -> Response:
    """Try thresholds on a span of the cluster's first Prometheus. It runs beside the watch, one at a time; nothing of
    it reaches anybody. 409 where too many wait."""
    return json(whole(backtests.begin(watch, person, new.start, new.end, new.thresholds)), 201)


@router.post("/{number}/cancel", operation_id="cancel_backtest", response_model=BacktestAnswer)
def cancel_backtest(number: RowId, person: Writer, watch: WatchOf) -> Response:
    """Stop it: what waits at once, what runs within seconds. 409 where it is over."""
    return json(whole(backtests.cancel(watch, person, number)))


@router.post("/{number}/adopt", operation_id="adopt_backtest", response_model=BacktestAnswer)
def adopt_backtest(number: RowId, person: Writer, watch: WatchOf, why: Because | None = None) -> Response:
    """Put what it tried in force, over the configuration, from now on. An admin's; 409 where it is not done."""
    return json(whole(backtests.adopt(watch, person, number, why.reason if why else "")))


@router.post("/{number}/withdraw", operation_id="withdraw_backtest", response_model=BacktestAnswer)
def withdraw_backtest(number: RowId, person: Writer, watch: WatchOf, why: Because | None = None) -> Response:
    """Take what it tried out of force again. An admin's; 409 where it is not adopted."""
    return json(whole(backtests.withdraw(watch, person, number, why.reason if why else "")))
