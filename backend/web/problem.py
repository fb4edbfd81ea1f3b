"""What a reader sees when a page cannot be shown: what went wrong, and where to go."""

from __future__ import annotations

from fastapi import Request, Response
from jinja2 import Environment
from sqlalchemy.exc import OperationalError

from backend.store.engine import StoreError
from backend.web.base import NeedSignIn, NoPage, Visit, bare_frame, frame, page, stranger, visit
from frontend.contexts import Frame, Link, Problem, Told


def problem(request: Request, pages: Environment, status: int, said: str) -> Response:
    """The page of an error. Strangers, and readers while the store is away, get it without the rail."""
    seen, framed = _framed(request, said)
    context = Problem(
        frame=framed,
        answer=said,
        lede="Nothing was changed." if request.method == "POST" else "The other pages still work.",
        back=Link("Go to Now", "/"),
    )
    return page(seen, pages, context, status)


def _framed(request: Request, said: str) -> tuple[Visit, Frame]:
    told = Told(False, said)
    try:
        seen = visit(request)
        with seen.parts.store.read() as session:
            return seen, frame(session, seen, "Problem", (Link("Problem", ""),), told=told)
    except (NeedSignIn, NoPage, OperationalError, StoreError):
        seen = stranger(request)
        return seen, bare_frame(seen, "Problem", told)
