"""GET planner: what ETTR a run can expect, how often it should save, how many spares it needs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from backend.answers.planner import chosen, planned, tiered
from backend.answers.runs import whole_of
from backend.api.guard import Reader, parts_of
from backend.api.history import WatchOf
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.registry import Parts

router = APIRouter(prefix="/planner", tags=["reliability"])

Amount = Annotated[float | None, Query(ge=0, le=1e9)]


class Outlook(BaseModel):
    """What to expect. ``inputs`` says of each whether it was given, measured (with n) or assumed."""

    inputs: dict[str, dict[str, Any]]
    plan: dict[str, Any]
    ettr: float | None = Field(description="Exact for failures at random.")
    ettr_first_order: float | None = Field(description="Kokolis' formula; null with per-step recovery.")
    simulated_ettr: float | None = Field(description="The same plan drawn 20,000 failures long, with its error.")
    simulated_error: float | None
    restart_expected_s: float | None
    standby_covers: float | None = Field(description="The chance that the spares suffice.")
    mttf_s: float | None
    interval_s: float | None
    young_s: float | None
    standby_p99: int = Field(description="Spare nodes that suffice on 99 of 100 days.")
    failures_expected: float | None
    lost_gpu_hours_day: float | None
    best_interval_s: float | None
    best_ettr: float | None
    by_nodes: list[dict[str, Any]]
    by_interval: list[dict[str, Any]]


class ChosenJob(BaseModel):
    """nodes: 0 where it must wait. value: worth of its effective GPU-hours over ``days``."""

    job: str
    sizes: list[int]
    worth: float
    now: int
    nodes: int
    ettr: float | None
    value: float | None


class Chosen(BaseModel):
    """Which jobs to run, and at which size."""

    nodes: int
    used: int
    days: float
    value: float | None
    inputs: dict[str, dict[str, Any]]
    jobs: list[ChosenJob]


@router.get("", operation_id="plan_run", response_model=Outlook)
def plan_run(
    _: Reader,
    watch: WatchOf,
    parts: Annotated[Parts, Depends(parts_of)],
    nodes: Annotated[int, Query(ge=1, le=1_000_000)],
    per_node_day: Annotated[float | None, Query(ge=0, le=24, description="Failures a node and day.")] = None,
    write_s: Amount = None,
    restart_s: Amount = None,
    interval_s: Annotated[float | None, Query(gt=0, le=1e9, description="Time between saves; none: the best.")] = None,
    gpus_per_node: Annotated[int, Query(ge=1, le=1024)] = 8,
    replicas: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    per_step_recovery: bool = False,
    stall_s: Annotated[float | None, Query(ge=0, le=1e9, description="With it: what all wait at a failure.")] = None,
    standby: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    standby_restart_s: Amount = None,
    days: Annotated[float, Query(gt=0, le=400)] = 1.0,
) -> Response:
    """What-if of one run. What is left out is taken from what was measured on this cluster, else assumed."""
    asked = {
        "nodes": nodes,
        "per_node_day": per_node_day,
        "write_s": write_s,
        "restart_s": restart_s,
        "interval_s": interval_s,
        "gpus_per_node": gpus_per_node,
        "replicas": replicas,
        "per_step_recovery": per_step_recovery,
        "stall_s": stall_s,
        "standby": standby,
        "standby_restart_s": standby_restart_s,
        "days": days,
    }
    with watch.store.read() as session:
        found = whole_of(session, watch.cluster, 90, parts.settings.reliability.days)
    try:
        return json(planned(found.document if found is not None else None, asked))
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise Problem(422, f"This plan cannot be: {error}.") from error


@router.get("/choice", operation_id="choose_jobs", response_model=Chosen)
def choose_jobs(
    _: Reader,
    watch: WatchOf,
    parts: Annotated[Parts, Depends(parts_of)],
    nodes: Annotated[int, Query(ge=1, le=1_000_000, description="Nodes that there are.")],
    job: Annotated[
        list[str],
        Query(description="name:nodes[:worth[:nodes now]]; elastic: name:32,64,128 or name:32-128.", max_length=200),
    ],
    per_node_day: Annotated[float | None, Query(ge=0, le=24)] = None,
    write_s: Amount = None,
    restart_s: Amount = None,
    days: Annotated[float, Query(gt=0, le=400)] = 1.0,
) -> Response:
    """Which jobs to run where the nodes do not suffice for all: the most worth of effective GPU-hours."""
    asked = {"per_node_day": per_node_day, "write_s": write_s, "restart_s": restart_s, "days": days}
    with watch.store.read() as session:
        found = whole_of(session, watch.cluster, 90, parts.settings.reliability.days)
    try:
        return json(chosen(found.document if found is not None else None, asked, nodes, job))
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise Problem(422, f"This choice cannot be made: {error}.") from error


@router.get("/tiers", operation_id="plan_tiers")
def plan_tiers(
    _: Reader,
    watch: WatchOf,
    parts: Annotated[Parts, Depends(parts_of)],
    nodes: Annotated[int, Query(ge=1, le=1_000_000)],
    tier: Annotated[
        list[str],
        Query(description="KIND:EVERY_S:WRITE_S:LOAD_S[:GROUP:PARITY] of memory, peer, erasure, disk.", max_length=16),
    ],
    per_node_day: Annotated[float | None, Query(ge=0, le=24)] = None,
    restart_s: Amount = None,
    switch_share: Annotated[float, Query(ge=0, le=1, description="Of failures: those that take 32 nodes.")] = 0.01,
) -> dict[str, Any]:
    """Checkpoints in memory, on peers, erasure-coded and on disk: what each survives, and the ETTR of all together."""
    with watch.store.read() as session:
        found = whole_of(session, watch.cluster, 90, parts.settings.reliability.days)
    asked = {"nodes": nodes, "per_node_day": per_node_day, "restart_s": restart_s}
    try:
        return tiered(found.document if found is not None else None, asked, tier, switch_share)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise Problem(422, f"These tiers cannot be: {error}.") from error
