"""Figures as JSON and table twins as CSV, each at its own address; what a page fetches to draw or redraw."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import APIRouter, Depends, Request, Response
from sqlmodel import Session

from backend.answers.fleet_state import FleetState, fleet_state
from backend.answers.healthy_day import healthy_day
from backend.answers.incident_story import IncidentStory, incident_story
from backend.answers.pulse import pulses
from backend.clock import unix
from backend.identity import limits
from backend.web import cells, evidence, fleet, shown
from backend.web.base import HEADERS, NoPage, Visit, visit
from frontend.contexts import Twin
from frontend.figures.age import ages
from frontend.figures.encode import as_csv
from frontend.figures.healthy import healthy
from frontend.figures.lanes import lanes
from frontend.figures.rack_map import names, rack_map
from frontend.figures.theme import Theme, themes, tokens

Seen = Annotated[Visit, Depends(visit)]


def router() -> APIRouter:
    found = APIRouter(prefix="/figures")
    looks = themes(tokens())

    def look(theme: str) -> Theme:
        return looks["dark" if theme == "dark" else "light"]

    @found.get("/fleet.json")
    def map_json(seen: Seen, theme: str = "", narrow: bool = False, rack: str = "") -> Response:
        with seen.parts.store.read() as session:
            state = state_of(session, seen)
        drawn = rack_map(cells.map_places(state, rack), cells.marks(state), look(theme), narrow)
        return as_json(seen.request, drawn)

    @found.get("/names.json")
    def names_json(seen: Seen, narrow: bool = False, rack: str = "") -> Response:
        with seen.parts.store.read() as session:
            state = state_of(session, seen)
        return as_json(
            seen.request, names(cells.map_places(state, rack), narrow), for_ever="v" in seen.request.query_params
        )

    @found.get("/healthy.json")
    def healthy_json(seen: Seen, theme: str = "", narrow: bool = False) -> Response:
        with seen.parts.store.read() as session:
            steps = healthy_day(session, seen.watch.cluster, seen.now, state_of(session, seen))
        if not steps:
            raise NoPage("No GPU is known yet, so there is no line of healthy ones.")
        at = np.array([unix(s.at) for s in steps])
        return as_json(seen.request, healthy(at, np.array([s.healthy for s in steps], np.float32), look(theme), narrow))

    @found.get("/sources.json")
    def sources_json(seen: Seen, theme: str = "", narrow: bool = False) -> Response:
        with seen.parts.store.read() as session:
            sources = pulses(session, seen.watch.cluster, seen.now).sources
        return as_json(seen.request, ages(shown.ages(sources), look(theme), narrow))

    @found.get("/incidents/{number:int}.json")
    def lanes_json(number: int, seen: Seen, theme: str = "", narrow: bool = False) -> Response:
        with seen.parts.store.read() as session:
            story = story_of(session, seen, number)
        return as_json(seen.request, lanes(evidence.story_of(story, seen), look(theme), narrow))

    add_tables(found)
    return found


def add_tables(found: APIRouter) -> None:
    """The table twins, and the list of devices that are not healthy."""

    @found.get("/fleet.csv")
    def map_csv(seen: Seen, rack: str = "") -> Response:
        with seen.parts.store.read() as session:
            return as_sheet(cells.map_figure(state_of(session, seen), seen, rack).twin, "fleet")

    @found.get("/healthy.csv")
    def healthy_csv(seen: Seen) -> Response:
        with seen.parts.store.read() as session:
            steps = healthy_day(session, seen.watch.cluster, seen.now, state_of(session, seen))
        rows = tuple((s.at.isoformat(), str(s.healthy), s.why) for s in steps)
        return as_sheet(Twin(("Time", "#Healthy", "Why"), rows, ""), "healthy")

    @found.get("/sources.csv")
    def sources_csv(seen: Seen) -> Response:
        with seen.parts.store.read() as session:
            return as_sheet(
                shown.age_figure(pulses(session, seen.watch.cluster, seen.now).sources, seen).twin, "sources"
            )

    @found.get("/incidents/{number:int}.csv")
    def lanes_csv(number: int, seen: Seen) -> Response:
        with seen.parts.store.read() as session:
            story = story_of(session, seen, number)
            return as_sheet(evidence.lanes_figure(story, seen, whole=True).twin, f"incident-{number}")

    @found.get("/devices.csv")
    def devices_csv(seen: Seen, state: str = "", rack: str = "") -> Response:
        with seen.parts.store.read() as session:
            rows = fleet.device_rows(state_of(session, seen), seen, state, rack)
        cells_ = tuple((r.name, r.state, r.why, r.job, r.rack, r.since, r.incident.text) for r in rows)
        return as_sheet(Twin(("Device", "State", "Why", "Job", "Rack", "#Since", "Incident"), cells_, ""), "devices")


def state_of(session: Session, seen: Visit) -> FleetState:
    return fleet_state(session, seen.watch.cluster, seen.now, shown.sight(seen))


def story_of(session: Session, seen: Visit, number: int) -> IncidentStory:
    story = incident_story(session, seen.watch.cluster, number, seen.now)
    if story is None or not limits.seen(session, seen.watch.cluster, seen.person, [story.incident]):
        raise NoPage(f"There is no incident {number} in cluster {seen.watch.cluster}.")
    return story


def as_json(request: Request, body: dict[str, Any], for_ever: bool = False) -> Response:
    """With an ETag: a figure that did not change costs no bytes and no redraw."""
    plain = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    tag = f'"{hashlib.sha256(plain).hexdigest()[:20]}"'
    headers = HEADERS | {"ETag": tag} | ({"Cache-Control": "private, max-age=31536000, immutable"} if for_ever else {})
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(plain, headers=headers, media_type="application/json")


def as_sheet(twin: Twin, name: str) -> Response:
    headers = HEADERS | {"Content-Disposition": f'attachment; filename="watchkeeper-{name}.csv"'}
    return Response(as_csv(twin), headers=headers, media_type="text/csv; charset=utf-8")
