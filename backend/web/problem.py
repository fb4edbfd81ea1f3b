"""What a reader sees when a page cannot be shown: what went wrong, and where to go."""

from __future__ import annotations

from fastapi import Request, Response
from jinja2 import Environment
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from backend.store.engine import StoreError
from backend.web.base import Beyond, NeedSignIn, NoPage, Visit, bare_frame, frame, page, stranger, visit
from frontend.contexts import Frame, Link, Problem, Told

#: What is raised while the store is away.
AWAY = (StoreError, OperationalError, PoolTimeout)


def problem(request: Request, pages: Environment, status: int, said: str) -> Response:
    """The page of an error. Strangers, and readers while the store is away, get it without the rail."""
    seen, framed = _framed(request, said)
    others = "Nothing can be shown until it does." if status == 503 else "The other pages still work."
    context = Problem(
        frame=framed,
        answer=said,
        lede="Nothing was changed." if request.method == "POST" else others,
        back=Link("Go to Now", "/"),
    )
    return page(seen, pages, context, status)


def _framed(request: Request, said: str) -> tuple[Visit, Frame]:
    told = Told(False, said) if request.method == "POST" else None
    try:
        seen = visit(request)
        with seen.parts.store.read() as session:
            return seen, frame(session, seen, "Problem", (Link("Problem", ""),), told=told)
    except (Beyond, NeedSignIn, NoPage, *AWAY):
        seen = stranger(request)
        return seen, bare_frame(seen, "Problem", told)
