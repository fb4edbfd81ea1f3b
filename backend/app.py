"""The ASGI application: wires api, web and the loops to the parts; nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from backend.api import routes as api
from backend.api.front import Front
from backend.loops import Loops
from backend.registry import Parts
from backend.tracing import Traced, untraced
from backend.web import routes as web


class Application(FastAPI):
    """FastAPI, and what stands in front of it once it is whole."""

    front: Front | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.front is None or scope["type"] != "http":
            await super().__call__(scope, receive, send)
        else:
            await self.front(scope, receive, send)


def create_app(parts: Parts, *, run_loops: bool = True, on_ready: Callable[[], None] | None = None) -> FastAPI:
    """One process's application. ``run_loops`` False leaves the loops to the caller (tests, replay)."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        loops = Loops(parts)
        if run_loops:
            loops.start()
        if on_ready is not None:
            on_ready()
        try:
            yield
        finally:
            await run_in_threadpool(loops.stop)

    app = Application(
        title="Watchkeeper",
        version="1",
        summary="Reliability of GPU training clusters: verdicts, incidents, exclusions, orders.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
    )
    app.state.parts = parts
    api.install(app)
    web.install(app)
    if parts.trace is not untraced:
        app.add_middleware(Traced, trace=parts.trace)
    app.front = Front(partial(FastAPI.__call__, app), parts, app.state.snapshots, app.state.callers)
    return app
