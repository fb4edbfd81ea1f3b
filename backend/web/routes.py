"""Puts the pages on an application: routers, static files, and errors that people can read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from jinja2 import Environment
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from backend.identity.oidc import Issuer
from backend.registry import public_url
from backend.web import (
    account,
    actions,
    alerts,
    backtest,
    cluster,
    exclusions,
    figures,
    fleet,
    handover,
    hardware,
    incident,
    incidents,
    live,
    node,
    now,
    people,
    planner,
    reliability,
    run,
    runs,
    settings,
    sign_in,
    storage,
    system,
)
from backend.web.base import HEADERS, Beyond, NeedSignIn, NoPage, sign_in_path
from backend.web.cookies import SessionCookie
from backend.web.problem import AWAY, problem
from backend.writes import Invalid
from frontend.render import environment, static_folder

Handler = Callable[[Request, Exception], Response | Awaitable[Response]]
#: A file whose address carries its hash never changes.
FOR_EVER = "public, max-age=31536000, immutable"


class Files(StaticFiles):
    """Static files; with their hash in the address they are kept for ever."""

    def file_response(self, *args: Any, **more: Any) -> Response:
        response = super().file_response(*args, **more)
        scope = args[2] if len(args) > 2 else more["scope"]
        hashed = b"v=" in scope.get("query_string", b"")
        response.headers["Cache-Control"] = FOR_EVER if hashed else "no-cache"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


def routers(pages: Environment) -> tuple[APIRouter, ...]:
    """Every page, a router each, and what they fetch."""
    cost = (runs, run, reliability, storage, planner)
    ruled = (backtest, settings, people, account, hardware)
    made = (now, fleet, cluster, node, incidents, incident, actions, exclusions, alerts, *cost, system, *ruled, sign_in)
    return (*(module.router(pages) for module in made), figures.router(), handover.router(), live.router())


def static_app() -> StaticFiles:
    return Files(directory=str(static_folder()))


def install(app: FastAPI, pages: Environment | None = None) -> None:
    """Mount it all. ``app.state.parts`` is set already, and the API's own errors are installed before ours."""
    pages = pages or environment()
    settings = app.state.parts.settings
    app.state.issuer = Issuer(settings.oidc, public_url(settings)) if settings.oidc is not None else None
    app.add_middleware(SessionCookie)
    for router in routers(pages):
        app.include_router(router, include_in_schema=False)
    app.mount("/static", static_app(), name="static")
    for kind, respond in handlers(pages).items():
        app.add_exception_handler(kind, for_people(respond, app.exception_handlers.get(kind)))


def handlers(pages: Environment) -> dict[type[Exception], Callable[[Request, Exception], Response]]:
    def http(request: Request, raised: Exception) -> Response:
        assert isinstance(raised, HTTPException)
        said = "There is no such page." if raised.status_code == 404 else str(raised.detail)
        return problem(request, pages, raised.status_code, said)

    def away(request: Request, _: Exception) -> Response:
        found = problem(request, pages, 503, "The database does not answer. Try again in a moment.")
        found.headers["Retry-After"] = "5"
        return found

    return {
        NeedSignIn: need_sign_in,
        Beyond: beyond_of(pages),
        NoPage: lambda request, raised: problem(request, pages, 404, str(raised)),
        Invalid: lambda request, raised: problem(request, pages, 422, str(raised)),
        HTTPException: http,
        **dict.fromkeys(AWAY, away),
        Exception: lambda request, _: problem(
            request, pages, 500, "Watchkeeper failed at this page; its log says why."
        ),
    }


def beyond_of(pages: Environment) -> Callable[[Request, Exception], Response]:
    """To the page that is theirs, where there is one and they came to the front door; else why not."""

    def respond(request: Request, raised: Exception) -> Response:
        assert isinstance(raised, Beyond)
        if raised.to and request.url.path == "/":
            return RedirectResponse(raised.to, 303, headers=HEADERS)
        return problem(request, pages, 403, str(raised))

    return respond


def need_sign_in(request: Request, _: Exception) -> Response:
    """To the sign-in page, and back to where the reader was going."""
    url = request.url
    to = f"{url.path}?{url.query}" if url.query else url.path
    return RedirectResponse(sign_in_path(to if request.method == "GET" else "/"), 303, headers=HEADERS)


def for_people(respond: Callable[[Request, Exception], Response], before: Handler | None) -> Handler:
    """Programs' paths keep the handler that the API installed."""

    async def handle(request: Request, raised: Exception) -> Response:
        if before is not None and request.url.path.startswith(("/api/", "/healthz", "/readyz", "/metrics")):
            found = before(request, raised)
            return await found if isinstance(found, Awaitable) else found
        return await run_in_threadpool(respond, request, raised)

    return handle
