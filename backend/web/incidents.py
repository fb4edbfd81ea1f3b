"""Incidents: what is open, since when, and whose turn it is."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from jinja2 import Environment
from sqlmodel import Session

from backend.answers.pages import PAGE, Standing, last_closed, listed
from backend.identity import limits
from backend.web import cells
from backend.web.base import Visit, frame, page, visit
from frontend import sentences
from frontend.contexts import Count, Incidents, Link
from frontend.words import ago, first

#: Rows of open incidents on a page; in a storm the loudest stand on the first.
MOST = 200
SHOW = ("open", "waiting", "resolved", "all")


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/incidents")
    def incidents(
        seen: Annotated[Visit, Depends(visit)], show: str = "open", before: str = "", skip: str = ""
    ) -> Response:
        which = show if show in SHOW else "open"
        older = int(before) if before.isdecimal() and len(before) < 16 else None
        with seen.parts.store.read() as session:
            return page(
                seen,
                pages,
                context(session, seen, which, older, int(skip) if skip.isdecimal() and len(skip) < 8 else 0),
            )

    return found


def context(session: Session, seen: Visit, show: str, before: int | None, skip: int = 0) -> Incidents:
    name = seen.watch.cluster
    live = theirs(session, seen, listed(session, name, "open", None))
    waiting = [s for s in live if s.waits]
    rows = {"open": live, "waiting": tuple(waiting)}.get(show) or theirs(
        session, seen, listed(session, name, show, before)
    )
    next_ = skip + MOST if show in ("open", "waiting") and len(rows) > skip + MOST else 0
    rows = rows[skip : skip + MOST] if show in ("open", "waiting") else rows
    closed = last_closed(session, name)
    ended = f"The last one closed {ago(closed, seen.now)}." if closed else "None has ever been open here."
    mine = seen.right("approver", "decide").allowed
    older = str(rows[-1].incident.id) if len(rows) == PAGE and show in ("resolved", "all") else ""
    return Incidents(
        frame=frame(session, seen, "Incidents", (Link("Incidents", ""),), seen.link("/api/v1/incidents")),
        answer=sentences.incidents_answer(len(live), len(waiting), mine),
        lede=lede(live[0].incident.headline if live else "", ended),
        filters=filters(seen, show, len(live), len(waiting)),
        rows=tuple(cells.incident_row(s, seen) for s in rows),
        older=seen.link("/incidents", show=show, before=older, skip=str(next_ or "")) if older or next_ else "",
        empty=ended,
    )


def theirs(session: Session, seen: Visit, rows: tuple[Standing, ...]) -> tuple[Standing, ...]:
    """What a reader who is limited to projects sees of them."""
    kept = {row.id for row in limits.seen(session, seen.watch.cluster, seen.person, [s.incident for s in rows])}
    return tuple(row for row in rows if row.incident.id in kept)


def lede(loudest: str, ended: str) -> str:
    return f"Loudest first: {first(loudest)}." if loudest else ended


def filters(seen: Visit, show: str, open_: int, waiting: int) -> tuple[Count, ...]:
    """Chips that are links; the state is in the URL."""
    rows = (
        ("open", "suspect", "open", str(open_)),
        ("waiting", "you", "waiting for a decision", str(waiting)),
        ("resolved", "done", "resolved", ""),
        ("all", "info", "all", ""),
    )
    return tuple(
        Count(glyph, word, n, seen.link("/incidents", show="" if key == "open" else key), key == show)
        for key, glyph, word, n in rows
    )
