"""Puts the API on an application: its routers, its limits, and its way of saying what went wrong."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI

from backend.api import (
    advice,
    alerts,
    backtests,
    changes,
    checks,
    docs,
    exclusions,
    export,
    hardware,
    history,
    incidents,
    ingest,
    joblogs,
    k8s,
    labels,
    nodes,
    orders,
    people,
    planner,
    policy,
    reliability,
    runs,
    settings,
    slack,
    system,
    topology,
    training,
)
from backend.api.bodies import BodyLimit
from backend.api.intake import Intake
from backend.api.problems import ProblemBody, install_problems
from backend.api.token_book import TokenBook
from backend.api.waiting import Waiting
from backend.snapshots import Snapshots

PREFIX = "/api/v1"
#: Answers any route may give beside its own.
PROBLEMS: dict[int | str, dict[str, object]] = {
    status: {"model": ProblemBody, "content": {"application/problem+json": {}}}
    for status in (400, 401, 403, 404, 409, 413, 422, 429, 500, 503)
}


def routers() -> tuple[APIRouter, ...]:
    """Everything under PREFIX, a router a noun."""
    past = (history.router, changes.router, topology.router)
    cost = (runs.router, reliability.router, planner.router, export.router)
    told = (
        incidents.router,
        orders.router,
        labels.router,
        policy.router,
        backtests.router,
        people.router,
        slack.router,
        settings.router,
        checks.router,
        hardware.router,
    )
    return (
        nodes.router,
        *past,
        exclusions.router,
        alerts.router,
        *told,
        ingest.router,
        training.router,
        *cost,
        joblogs.router,
        k8s.router,
        advice.router,
    )


def install(app: FastAPI) -> None:
    """Mount it all. ``app.state.parts`` is set already."""
    app.state.snapshots = Snapshots()
    app.state.waiting = Waiting(app.state.snapshots)
    app.state.intake = Intake()
    app.state.callers = TokenBook()
    for router in routers():
        app.include_router(router, prefix=PREFIX, responses=PROBLEMS)
    app.include_router(system.router)
    app.include_router(docs.router)
    app.add_middleware(BodyLimit, limit=app.state.parts.settings.server.max_body_bytes)
    install_problems(app)
