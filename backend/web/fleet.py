"""Fleet: the state of every GPU by rack, and each reason why one is not healthy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from jinja2 import Environment
from sqlmodel import Session

from backend.answers.fleet_state import FleetState, Trouble, fleet_state
from backend.answers.pages import standing
from backend.store import incidents
from backend.web import cells, shown
from backend.web.base import Visit, frame, page, visit
from backend.web.past import node_path
from frontend import chips, sentences
from frontend.contexts import DeviceRow, Fleet, Link
from frontend.figures.rack_map import MOST_GPUS
from frontend.words import STATE_WORDS, STATES, age, of_device, sentence

MOST_ROWS = 40


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/fleet")
    def fleet(seen: Annotated[Visit, Depends(visit)], state: str = "", rack: str = "") -> Response:
        with seen.parts.store.read() as session:
            return page(seen, pages, context(session, seen, state if state in STATES else "", rack))

    return found


def context(session: Session, seen: Visit, state: str, rack: str) -> Fleet:
    name = seen.watch.cluster
    fleet = fleet_state(session, name, seen.now, shown.sight(seen))
    rows = device_rows(fleet, seen, state, rack)
    waiting = [s.incident for s in standing(session, incidents.live(session, name)) if s.waits]
    sick = [node for node in fleet.nodes if node.worst != "ok"]
    n = fleet.counts
    crumb = (Link("Fleet", seen.link("/fleet") if rack else ""), *((Link(rack, ""),) if rack else ()))
    return Fleet(
        frame=frame(session, seen, "Fleet", crumb, seen.link("/api/v1/nodes")),
        answer=sentences.fleet_answer(
            fleet.total, fleet.healthy, len(sick), [of_device(row.entity_name) for row in waiting]
        ),
        lede=sentences.fleet_lede(
            n.get("excluded", 0), n.get("draining", 0), n.get("unknown", 0), n.get("failed", 0) + n.get("suspect", 0)
        ),
        counts=cells.counts(fleet, seen, state),
        map=cells.map_figure(fleet, seen, rack),
        map_means=means(fleet),
        cluster=seen.link("/cluster"),
        rings=cells.rings(fleet, seen, rack),
        rows=tuple(rows[:MOST_ROWS]),
        more_rows=max(0, len(rows) - MOST_ROWS),
        csv_href=seen.link("/figures/devices.csv", state=state, rack=rack),
        filtered=title(state, rack),
    )


def title(state: str, rack: str) -> str:
    where = f" in {rack}" if rack else ""
    return f"{STATE_WORDS[state].capitalize()}{where}" if state else f"Not healthy{where}" if rack else ""


def means(fleet: FleetState) -> str:
    if fleet.total > MOST_GPUS:
        return "One cell is one node, in the colour of its worst GPU; one block is a rack. Places never move."
    return (
        "One cell is one GPU, one row of a block is one node, one block is a rack of up to 8 nodes. Places never move."
    )


def device_rows(fleet: FleetState, seen: Visit, state: str, rack: str) -> Sequence[DeviceRow]:
    """Reasons, worst first; the healthy have one row a node when asked for."""
    if state == "ok":
        fine = [n for n in fleet.nodes if "ok" in n.gpus and (not rack or n.rack == rack)]
        return [healthy_row(n.name, n.rack, n.job, n.gpus.count("ok"), seen) for n in fine]
    chosen = [t for t in fleet.troubles if (not state or t.state == state) and (not rack or t.rack == rack)]
    return [device_row(t, seen) for t in chosen]


def device_row(t: Trouble, seen: Visit) -> DeviceRow:
    return DeviceRow(
        name=cells.place_name(t),
        state=chips.DEVICE[t.state],
        why=sentence(t.reason),
        job=t.job or "none",
        rack=t.rack or "none",
        since=age((seen.now - t.since).total_seconds()),
        incident=Link(str(t.incident), seen.link(f"/incidents/{t.incident}")) if t.incident else Link("none", ""),
        href=seen.link(node_path(t.node)),
    )


def healthy_row(name: str, rack: str, job: str, gpus: int, seen: Visit) -> DeviceRow:
    why = f"{gpus} GPUs are healthy."
    none, href = Link("none", ""), seen.link(node_path(name))
    return DeviceRow(name, chips.DEVICE["ok"], why, job or "none", rack or "none", "", none, href)
