"""Runs: which run needs a look, what each got out of its time, why it failed last."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from jinja2 import Environment
from sqlmodel import Session

from backend.answers.runs import RunList, run_list
from backend.web.base import Visit, frame, page, visit
from backend.web.cost_words import bounds, cut, run_path, share
from backend.web.run import told_words
from frontend.contexts import Chip, Count, Link
from frontend.contexts_cost import Cell, RunsPage, Table
from frontend.words import ago, count, number

#: Rows of one page.
ROWS = 100
#: Glyph of a state; any other is plain.
GLYPHS = {
    "RUNNING": "ok", "PENDING": "info", "COMPLETED": "done", "FAILED": "failed", "NODE_FAIL": "failed",
    "BOOT_FAIL": "failed", "OUT_OF_MEMORY": "failed", "LAUNCH_FAILED": "failed", "TIMEOUT": "suspect",
    "PREEMPTED": "suspect", "CANCELLED": "excluded", "REQUEUED": "draining", "UNKNOWN": "unknown",
}  # fmt: skip
#: States that the filter offers, as they come.
FILTERS = ("RUNNING", "PENDING", "FAILED", "NODE_FAIL", "COMPLETED", "CANCELLED", "PREEMPTED", "TIMEOUT")


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/runs")
    def runs(seen: Annotated[Visit, Depends(visit)], state: str = "", user: str = "") -> Response:
        with seen.parts.store.read() as session:
            return page(seen, pages, context(session, seen, state.upper()[:40], user[:200]))

    return found


def state_chip(state: str) -> Chip:
    return Chip(GLYPHS.get(state, "info"), state.lower().replace("_", " "))


def context(session: Session, seen: Visit, state: str, user: str) -> RunsPage:
    found = run_list(session, seen.watch.cluster, ROWS, None, state, user, seen.person.projects)
    query = {"state": state.lower(), "user": user}
    json_href = seen.link("/api/v1/runs", **query)
    return RunsPage(
        frame=frame(session, seen, "Runs", (Link("Runs", ""),), json_href, path=seen.link("/runs", **query)),
        answer=answer(found, seen),
        lede=lede(found),
        filters=filters(found, seen, state, user),
        table=table(found, seen, state),
    )


def answer(found: RunList, seen: Visit) -> str:
    running = found.states.get("RUNNING", 0)
    if not found.states:
        return "No run is accounted yet."
    today = [r for r in found.rows if r["failed_at"] and (seen.now - r["failed_at"]).total_seconds() < 86_400]
    theirs = [r for r in today if r["infra_failures"]]
    if not today:
        return f"{count(running, 'run')} {'is' if running == 1 else 'are'} running; none failed in the last 24 h."
    said = f"{count(len(today), 'run')} failed in the last 24 h"
    if len(today) == len(theirs):
        return f"{said}, with hardware at fault; {number(running)} running."
    return f"{said}, {len(theirs):,} with hardware at fault; {number(running)} running."


def lede(found: RunList) -> str:
    if not found.states:
        return "Jobs come from the scheduler, or by POST to api/v1/ingest/jobs; they are accounted within a minute."
    open_ = sum(1 for row in found.rows if row["ettr_low"] is None or row["ettr_high"] - row["ettr_low"] > 0.01)
    if open_:
        return f"{count(open_, 'run')} {'tells' if open_ == 1 else 'tell'} no steps, so ETTR lies between two numbers."
    return f"{count(sum(found.states.values()), 'run')} accounted, what moved last first."


def filters(found: RunList, seen: Visit, state: str, user: str) -> tuple[Count, ...]:
    known = [name for name in FILTERS if found.states.get(name)]
    total = sum(found.states.values())
    every = Count("info", "all", number(total), seen.link("/runs", user=user), not state)
    rest = [
        Count(
            GLYPHS[name],
            name.lower().replace("_", " "),
            number(found.states[name]),
            seen.link("/runs", state=name.lower(), user=user),
            state == name,
        )
        for name in known
    ]
    return (every, *rest) if total else ()


def table(found: RunList, seen: Visit, state: str) -> Table:
    heads = ("Run", "State!", "~User", "#GPUs", "#ETTR", "#Lost GPU-hours", "#Failures", "=Last failure")
    rows = tuple(row(one, seen) for one in found.rows)
    title = f"Runs, {state.lower().replace('_', ' ')}" if state else "Runs"
    more = Link(f"The next {ROWS} in the JSON", seen.link("/api/v1/runs")) if len(rows) == ROWS else None
    return Table("list", title, "", heads, rows, ("No run is in this list.", "Choose another state above."), more)


def row(one: dict[str, Any], seen: Visit) -> tuple[Cell, ...]:
    lost = bounds([one["lost_low_gpu_s"] / 3600, one["lost_high_gpu_s"] / 3600])
    failed = (
        f"{cut(told_words(one['failed_why']), 70)}, {ago(one['failed_at'], seen.now)}" if one["failed_at"] else "none"
    )
    theirs = f", {one['infra_failures']} hardware" if one["infra_failures"] else ""
    return (
        Link(cut(one["name"]), seen.link(run_path(one["name"]))),
        state_chip(one["state"]),
        one["user"],
        number(one["gpus"]),
        share([one["ettr_low"], one["ettr_high"]]),
        lost,
        f"{one['failures']}{theirs}",
        failed,
    )
