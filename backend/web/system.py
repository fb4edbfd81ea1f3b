"""System: can Watchkeeper be trusted now? Loops, sources, detectors, and the kill switch."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from jinja2 import Environment
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from backend import learn, teaching, writes
from backend.answers.fleet_state import FleetState, fleet_state
from backend.answers.pulse import Pulse, Pulses, pulses
from backend.store import leases, models
from backend.web import shown
from backend.web.base import Visit, carried_out, checked, form, frame, page, visit
from frontend import chips, sentences
from frontend.contexts import Link, PulseRow, Switch, System, Tile, Told
from frontend.words import MODES, age, clock, count, number, span

#: The detector that learns what GPUs look like in health.
SHAPE = "telemetry/shape"


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/system")
    def system(seen: Annotated[Visit, Depends(visit)]) -> Response:
        return answer(seen, pages)

    @found.post("/system/kill-switch")
    async def kill_switch(request: Request, seen: Annotated[Visit, Depends(visit)]) -> Response:
        fields = await form(request)
        checked(seen, fields)
        on = fields.get("on") == "1"

        def with_told(told: Told, status: int) -> Response:
            return answer(seen, pages, told, status)

        def throw() -> None:
            writes.set_kill_switch(seen.watch, on, seen.person)

        return await run_in_threadpool(carried_out, seen, throw, seen.link("/system"), with_told)

    return found


def answer(seen: Visit, pages: Environment, told: Told | None = None, status: int = 200) -> Response:
    with seen.parts.store.read() as session:
        return page(seen, pages, context(session, seen, told), status)


def context(session: Session, seen: Visit, told: Told | None) -> System:
    name = seen.watch.cluster
    found = pulses(session, name, seen.now)
    fleet = fleet_state(session, name, seen.now, shown.sight(seen))
    late = [p.name for p in found.loops if p.health in ("late", "failing")]
    dark = [(p.name, clock(p.since, seen.now) if p.since else "") for p in found.dark]
    broken = [p.name for p in found.detectors if p.health == "failing"]
    return System(
        frame=frame(session, seen, "System", (Link("System", ""),), "", told, seen.link("/system")),
        answer=sentences.system_answer(late, dark, broken, len(found.loops)),
        lede=f"{lede(found, fleet, len(late))} {watched_by(session, seen)}".strip(),
        tiles=tiles(found, seen),
        sources=tuple(row(p, "source") for p in found.sources),
        age=shown.age_figure(found.sources, seen),
        loops=tuple(row(p, "loop") for p in found.loops),
        detectors=tuple(row(p, "detector") for p in found.detectors),
        learnt=learnt(session, name, seen),
        switch=switch(found, seen),
    )


def learnt(session: Session, name: str, seen: Visit) -> str:
    """Which version names failures that no rule names, what taught it, and how good it is; or what is missing."""
    model = learn.learnt(session, name)
    health = teaching.words(models.newest(session, name, SHAPE, arrays=False))
    if model is None:
        return f"{learn.words(None)} On an incident's page, say whether we were right. {health}"
    taught = f"Version {model.version}, {clock(model.at, seen.now)}, from {count(model.n, 'labelled failure')}."
    left = sum(model.left_out.values())
    unused = f" {count(left, 'label')} taught nothing: {'; '.join(sorted(model.left_out))}." if left else ""
    return f"{taught} {learn.words(model)}{unused} {health}"


def lede(found: Pulses, fleet: FleetState, late: int) -> str:
    beats = f"{count(len(found.loops) - late, 'loop')} of {len(found.loops)} beat on time." if found.loops else ""
    unknown = fleet.counts.get("unknown", 0)
    blind = (
        "No GPU is known yet."
        if not fleet.total
        else f"{unknown:,} of {fleet.total:,} GPUs have no telemetry; they count as no data, not as healthy."
    )
    return f"{beats} {blind}".strip()


def watched_by(session: Session, seen: Visit) -> str:
    """Which process watches; empty where this one does, and nobody else ever did."""
    lease = leases.lease(session, seen.watch.cluster)
    if lease is None or (lease.term == 1 and lease.who == seen.parts.who):
        return ""
    if lease.until <= seen.now:
        return f"Nobody watches: the lease of {lease.who} ran out at {clock(lease.until, seen.now)}."
    who = "This process" if lease.who == seen.parts.who else f"The process {lease.who}"
    return f"{who} watches since {clock(lease.since, seen.now)}, the {lease.term}. to hold the lease."


def row(p: Pulse, kind: str) -> PulseRow:
    words = {"source": chips.SOURCE, "loop": chips.LOOP, "detector": chips.DETECTOR}[kind]
    return PulseRow(
        name=p.name,
        state=words[p.health],
        last=f"{age(p.age_s)} ago" if p.age_s is not None else "never",
        every=span(p.every_s) if p.every_s else "on arrival",
        took=span(p.took_s) if p.took_s else "",
        errors=number(p.errors),
        error=p.error,
    )


def tiles(found: Pulses, seen: Visit) -> tuple[Tile, ...]:
    mode = seen.watch.rules.mode
    heart = next((p for p in found.loops if "tick_at" in p.counts), None)
    counts = heart.counts if heart is not None else {}
    waiting, dead = found.messages.get("waiting", 0) + found.messages.get("claimed", 0), found.messages.get("dead", 0)
    return (
        Tile("Mode", mode, "", MODES[mode]),
        Tile("Kill switch", "stopped" if found.cluster.kill_switch else "off", "", switch_words(found, seen)),
        Tile("Newest tick", *tick_words(counts.get("tick_at", 0.0), seen), "of telemetry or events"),
        Tile("Dropped", number(counts.get("dropped", 0)), "samples", f"{number(counts.get('late', 0))} came late"),
        Tile("Messages", number(waiting), "waiting", f"{dead} given up, {found.messages.get('sent', 0)} sent"),
    )


def tick_words(at: float, seen: Visit) -> tuple[str, str]:
    if not at:
        return "none", ""
    value, _, unit = age(seen.now.timestamp() - at).partition("\u00a0")
    return value, f"{unit} ago"


def switch_words(found: Pulses, seen: Visit) -> str:
    row_ = found.cluster
    if not row_.kill_switch:
        return "orders may be sent" if seen.watch.rules.mode != "observe" else "observe mode sends no orders anyway"
    return f"by {row_.kill_switch_by}{f' at {clock(row_.kill_switch_at, seen.now)}' if row_.kill_switch_at else ''}"


def switch(found: Pulses, seen: Visit, action: str = "/system/kill-switch") -> Switch:
    on = found.cluster.kill_switch
    text = (
        f"Stopped {switch_words(found, seen)} UTC. No decision can be approved and no order is sent; watching goes on."
        if on
        else "While it is thrown, no decision can be approved and no order is sent. Watching and telling go on."
    )
    return Switch(on, text, seen.link(action), seen.right("admin", "throw it"))
