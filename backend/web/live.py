"""The live stream: names of what changed, never what it became; the page fetches that itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse

from backend.changes import Change, Changes
from backend.web.base import HEADERS, Visit, visit

#: How often the feed is looked at. A look takes microseconds; waiting in a thread would cost one thread a tab.
LOOK_S = 0.25
#: A comment this often keeps proxies from closing a quiet stream.
KEEP_ALIVE_S = 15.0


def router() -> APIRouter:
    found = APIRouter()

    @found.get("/live")
    async def live(request: Request, seen: Annotated[Visit, Depends(visit)], after: str = "") -> StreamingResponse:
        changes = seen.parts.changes
        since = starting_at(request.headers.get("last-event-id", after), changes)
        headers = HEADERS | {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream(request, changes, since), headers=headers, media_type="text/event-stream")

    return found


def starting_at(last: str, changes: Changes) -> int:
    """Go on after what a browser saw, by event or by page; numbers of an earlier process mean nothing here."""
    latest = changes.latest()
    return int(last) if last.isdecimal() and len(last) < 16 and int(last) <= latest else latest


async def stream(request: Request, changes: Changes, after: int) -> AsyncIterator[str]:
    """Server-sent events until the browser leaves."""
    yield f"retry: 3000\nid: {after}\n\n"
    quiet_s = 0.0
    while not changes.closed and not await request.is_disconnected():
        news = changes.wait(after, 0.0)
        if news:
            after, quiet_s = news[-1].seq, 0.0
            yield "".join(event(change) for change in distinct(news))
        elif quiet_s >= KEEP_ALIVE_S:
            quiet_s = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(LOOK_S)
        quiet_s += LOOK_S


def distinct(news: list[Change]) -> list[Change]:
    """A storm says each name once; the last number counts."""
    return sorted({(c.name, c.id, c.cluster): c for c in news}.values(), key=lambda c: c.seq)


def event(change: Change) -> str:
    body = {"name": change.name, "id": change.id, "cluster": change.cluster}
    return f"id: {change.seq}\ndata: {orjson.dumps(body).decode()}\n\n"
