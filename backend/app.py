"""The ASGI application: wires api, web and the loops to the parts; nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from backend.api import routes as api
from backend.loops import Loops
from backend.registry import Parts
from backend.web import routes as web


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

    app = FastAPI(
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
    return app
