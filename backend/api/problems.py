"""Every error of the API as problem+json (RFC 9457): what went wrong, where, and how to mend it; never a traceback."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from backend.proposals import Conflict, Refused
from backend.store.engine import StoreError
from backend.writes import Forbidden, Invalid, Missing

log = logging.getLogger("watchkeeper.api")

MEDIA_TYPE = "application/problem+json"
#: Paths whose errors are for programs; all others are for people and belong to the pages.
FOR_PROGRAMS = ("/api/", "/healthz", "/readyz", "/metrics")
#: A store that is busy or restarting is asked again after this, in seconds.
STORE_RETRY_S = 5
#: Details of a 422 shown; the count says how many there were.
SHOWN_ERRORS = 20

Handler = Callable[[Request, Exception], Response | Awaitable[Response]]


class Flaw(BaseModel):
    """One thing that is wrong with a request."""

    where: str = Field(examples=["body.until"])
    what: str = Field(examples=["Input should be a valid datetime"])


class ProblemBody(BaseModel):
    """The body of every answer of 400 and above."""

    type: str = Field(examples=["urn:watchkeeper:problem:not-found"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["No incident 812 in cluster main. GET /api/v1/incidents lists them."])
    errors: list[Flaw] = []
    guards: list[dict[str, Any]] = Field(default=[], description="Every guard's verdict, where a guard refused.")


class Problem(Exception):
    """Raised by a route: ends as problem+json with this status. ``detail`` says what, where and how to mend it."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[Mapping[str, object]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})


def answer(
    status: int,
    detail: str,
    errors: Sequence[Mapping[str, object]] = (),
    headers: Mapping[str, str] | None = None,
    **more: object,
) -> Response:
    """A problem+json response; ``type`` is stable per status, ``title`` is the status's own phrase."""
    title = HTTPStatus(status).phrase
    kind = f"urn:watchkeeper:problem:{title.lower().replace(' ', '-')}"
    body = {"type": kind, "title": title, "status": status, "detail": detail, "errors": list(errors), **more}
    return Response(orjson.dumps(body), status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


# --- which exception becomes which problem --------------------------------------------------------------------------


def of_problem(_: Request, raised: Exception) -> Response:
    assert isinstance(raised, Problem)
    return answer(raised.status, raised.detail, raised.errors, raised.headers)


def of_http(request: Request, raised: Exception) -> Response:
    """404 and 405 of the router, and whatever a framework raises by status."""
    assert isinstance(raised, HTTPException)
    detail = {
        404: f"Nothing answers at {request.url.path}; /docs lists every route.",
        405: f"{request.url.path} does not take {request.method}; it takes {(raised.headers or {}).get('Allow', '')}.",
        400: "The body is no JSON that can be read: it nests too deeply, or holds too long a number.",
    }.get(raised.status_code, str(raised.detail))
    return answer(raised.status_code, detail, headers=raised.headers)


def of_validation(request: Request, raised: Exception) -> Response:
    """Wrong types and missing fields, each with its place; the value itself is not echoed."""
    assert isinstance(raised, RequestValidationError)
    flaws = [{"where": ".".join(str(p) for p in e["loc"]), "what": str(e["msg"])} for e in raised.errors()]
    broken = any(e["type"] == "json_invalid" for e in raised.errors())
    said = "; ".join(f"{flaw['where']}: {flaw['what']}" for flaw in flaws[:3])
    detail = f"The body is not JSON: {said}." if broken else f"{len(flaws)} wrong in the request: {said}."
    if flaws and flaws[0]["where"] == "body" and "json" not in request.headers.get("content-type", ""):
        detail += " Send it with Content-Type: application/json."
    return answer(400 if broken else 422, detail, flaws[:SHOWN_ERRORS])


def of_write(_: Request, raised: Exception) -> Response:
    """What the writes of people say no to."""
    status = {Missing: 404, Forbidden: 403, Invalid: 422, Conflict: 409}.get(type(raised), 409)
    return answer(status, str(raised))


def of_refusal(_: Request, raised: Exception) -> Response:
    assert isinstance(raised, Refused)
    detail = f"A guard refuses, so nothing was done: {raised}"
    return answer(409, detail, guards=[asdict(guard) for guard in raised.guards])


def of_store(_: Request, raised: Exception) -> Response:
    """The database is away: what was sent is not kept, so the sender keeps it and asks again."""
    log.error("the store failed a request: %s", type(raised).__name__)
    detail = "The database does not answer; nothing was kept. Send it again."
    return answer(503, detail, headers={"Retry-After": str(STORE_RETRY_S)})


def of_anything(request: Request, _: Exception) -> Response:
    """Our own mistake. The server's log has the traceback; the client never does."""
    detail = f"{request.method} {request.url.path} failed inside Watchkeeper; its log says why. Nothing is known kept."
    return answer(500, detail)


HANDLERS: Mapping[type[Exception], Callable[[Request, Exception], Response]] = {
    Problem: of_problem,
    HTTPException: of_http,
    RequestValidationError: of_validation,
    Missing: of_write,
    Forbidden: of_write,
    Invalid: of_write,
    Conflict: of_write,
    Refused: of_refusal,
    StoreError: of_store,
    OperationalError: of_store,
    PoolTimeout: of_store,
    Exception: of_anything,
}


def install_problems(app: FastAPI) -> None:
    """Answer errors of programs' paths as problems; other paths keep the handler they had, or a plain line."""
    for kind, respond in HANDLERS.items():
        before = app.exception_handlers.get(kind)
        app.add_exception_handler(kind, only_for_programs(respond, before))


def only_for_programs(respond: Callable[[Request, Exception], Response], before: Handler | None) -> Handler:
    async def handle(request: Request, raised: Exception) -> Response:
        if request.url.path.startswith(FOR_PROGRAMS):
            return respond(request, raised)
        if before is None:
            return PlainTextResponse(f"{respond(request, raised).status_code}", respond(request, raised).status_code)
        found = before(request, raised)
        return await found if isinstance(found, Awaitable) else found

    return handle
