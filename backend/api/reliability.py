"""GET reliability, lemons, rollups: how often things fail, what it costs, and which nodes stand out."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from backend.answers.runs import DAY_WORDS, whole_of
from backend.api.guard import Reader, parts_of
from backend.api.history import WatchOf
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.api.words import Asked, Moment
from backend.model.reckoning import Reckoning
from backend.registry import Parts
from backend.rollups import weekly
from backend.store.reckoning import sums
from backend.watch import Watch

router = APIRouter(tags=["reliability"])

PartsOf = Annotated[Parts, Depends(parts_of)]
Window = Annotated[Literal["7d", "28d", "90d"], Query(description="How far back.")]
#: Hours of one answer: the longest span that is kept.
MOST_HOURS = 400 * 24


class Whole(BaseModel):
    """reliability.json over a window, with ``trend``, ``lost``, ``churn``, ``efficacy``, ``survival``, ``usage``."""

    as_of: datetime
    days: int
    ettr: dict[str, Any]
    retry: dict[str, Any]
    exclusions: dict[str, Any]
    drains: dict[str, Any]
    failures: dict[str, Any]
    lemons: list[dict[str, Any]]
    checkpoints: dict[str, Any]
    trend: list[dict[str, Any]]
    lost: dict[str, list[dict[str, Any]]] = Field(description="GPU-hours [least, most] by cause, node, rack, team ...")
    risk: dict[str, Any] = Field(description="Chance of a fault within 24 h by node, with Brier score and lift.")
    components: list[dict[str, Any]] = Field(description="Failures, MTTF, MTTD and MTTR of each component.")
    differences: dict[str, Any] = Field(description="What nodes that fail have and others have not.")
    storage: dict[str, Any] = Field(description="Saves and loads as counters of mounts show them.")
    crash_loops: list[dict[str, Any]] = Field(description="Runs that fail again and again and save nothing.")


class WeeklyReport(BaseModel):
    """What the weekly message says."""

    headline: str
    why: str
    facts: list[list[str]] = Field(description="Label and value.")
    most: list[str] = Field(description="What cost most.")
    advice: str
    as_of: datetime


class Lemon(BaseModel):
    """``p_false``: the chance that it is healthy. ``score``: its rate as a multiple of the fleet's usual one."""

    node: str
    lemon: bool
    score: float | None
    p_false: float | None
    failures: int
    node_days: float | None
    signals: dict[str, float | None]


class LemonList(BaseModel):
    items: list[Lemon]
    nodes: int = Field(description="Nodes that show any sign.")
    as_of: datetime


class Hour(BaseModel):
    """Sums of one hour; see the table of rollups."""

    hour: datetime
    held_gpu_s: float
    productive_low_gpu_s: float
    productive_high_gpu_s: float
    queue_gpu_s: float
    failures: int
    infra_failures: int
    findings: int
    incidents: int
    out_s: float


class HourList(BaseModel):
    items: list[Hour]


def whole(watch: Watch, parts: Parts, window: str) -> Reckoning:
    """Raises Problem 503 where nothing was counted yet."""
    with watch.store.read() as session:
        found = whole_of(session, watch.cluster, DAY_WORDS[window], parts.settings.reliability.days)
    if found is None:
        raise Problem(503, "Nothing is counted yet; the first count follows within a minute or two of the start.")
    return found


@router.get("/reliability", operation_id="read_reliability", response_model=Whole)
def read_reliability(_: Reader, watch: WatchOf, parts: PartsOf, window: Window = "28d") -> Response:
    """Failures, MTTF by size, retries, exclusions, lemon nodes, losses: each with its n and 95 % interval."""
    found = whole(watch, parts, window)
    return json({**found.document, "as_of": found.at})


@router.get("/reliability/report", operation_id="read_weekly_report", response_model=WeeklyReport)
def read_weekly_report(_: Reader, watch: WatchOf, parts: PartsOf) -> Response:
    """The report of the last 7 days, as mail and Slack get it once a week."""
    found = whole(watch, parts, "7d")
    told = weekly.message_of(watch.cluster, 0, found.document, found.at, watch.rules.url)
    facts = [list(pair) for pair in told.facts]
    said = {"headline": told.headline, "why": told.why, "facts": facts, "most": list(told.evidence)}
    return json(said | {"advice": told.advice, "as_of": found.at})


@router.get("/lemons", operation_id="list_lemons", response_model=LemonList)
def list_lemons(_: Reader, watch: WatchOf, parts: PartsOf) -> Response:
    """Nodes that fail more than their exposure explains, over 28 days; the most suspicious first."""
    found = whole(watch, parts, "28d")
    rows = found.document["lemons"]
    return json({"items": rows, "nodes": len(rows), "as_of": found.at})


@router.get("/rollups", operation_id="list_rollups", response_model=HourList)
def list_rollups(
    _: Reader,
    watch: WatchOf,
    job: Annotated[Asked, Query(description="The hours of this job,")] = "",
    node: Annotated[Asked, Query(description="or of this node; neither: of the cluster.")] = "",
    since: Annotated[Moment | None, Query(description="From then on; 7 days back where it is left out.")] = None,
    until: Annotated[Moment | None, Query(description="Up to then; now where it is left out.")] = None,
) -> Response:
    """Sums per hour: GPU-seconds held and productive, failures, findings, incidents, node-seconds out."""
    if job and node:
        raise Problem(422, "Name a job or a node, not both.")
    end = until or watch.clock.now() + timedelta(hours=1)
    start = since or end - timedelta(days=7)
    start = max(start, end - timedelta(hours=MOST_HOURS))
    with watch.store.read() as session:
        rows = sums(session, watch.cluster, start, end, job=job, node=node)
    return json({"items": rows})
