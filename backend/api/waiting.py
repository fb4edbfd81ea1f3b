"""Answers with an ETag, and requests that wait until theirs changes: any number of them, and no thread for any."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from backend.answers.ready import Page, Ready, is_known
from backend.api.problems import Problem
from backend.api.snapshots import ready_of
from backend.snapshots import Snapshots
from backend.store.engine import StoreError
from backend.watch import Watch

#: Longest that a request may wait, in seconds; most proxies close a connection that is quiet for a minute.
LONGEST_S = 55.0
#: Exclusions that another process made tell nobody: while somebody waits, it is looked this often, in seconds.
LOOK_S = 1.0
#: Requests that wait in one process at most.
MOST = 20_000
RETRY_S = 10

Wait = Annotated[
    float,
    Query(
        alias="wait",
        ge=0,
        le=LONGEST_S,
        description="With If-None-Match: answer only once the answer is another, or after so many seconds with 304.",
    ),
]
Draw = Callable[[Ready], Page]
log = logging.getLogger("watchkeeper.waiting")


@dataclass(eq=False, slots=True)
class Waiter:
    """One request: how its answer is drawn, what it knows already, and where the new one goes."""

    draw: Draw
    known: bytes
    came: asyncio.Future[Page | None]


@dataclass(eq=False, slots=True)
class Vigil:
    """Those who wait for news of one cluster, and the one task that looks for all of them."""

    waiters: dict[Waiter, None] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


class Waiting:
    """Used by the event loop alone."""

    def __init__(self, snapshots: Snapshots, look_s: float = LOOK_S, most: int = MOST) -> None:
        self._snapshots = snapshots
        self._look_s = look_s
        self._most = most
        self._vigils: dict[str, Vigil] = {}

    @property
    def count(self) -> int:
        return sum(len(vigil.waiters) for vigil in self._vigils.values())

    async def until_other(self, watch: Watch, draw: Draw, known: bytes, wait_s: float) -> Page | None:
        """The answer once ``known`` no longer names it; None after ``wait_s``, and when the server is about to stop.
        Raises Problem where too many wait already."""
        if self.count >= self._most:
            text = f"{self._most:,} requests wait here already. Ask again without wait, or later."
            raise Problem(503, text, headers={"Retry-After": str(RETRY_S)})
        vigil = self._vigils.setdefault(watch.cluster, Vigil())
        waiter = Waiter(draw, known, asyncio.get_running_loop().create_future())
        vigil.waiters[waiter] = None
        if vigil.task is None or vigil.task.done():
            vigil.task = asyncio.create_task(self._look(watch, vigil))
        try:
            async with asyncio.timeout(wait_s):
                return await waiter.came
        except TimeoutError:
            return None
        finally:
            vigil.waiters.pop(waiter, None)

    async def _look(self, watch: Watch, vigil: Vigil) -> None:
        """Ends by itself once nobody waits any more."""
        news, loop = asyncio.Event(), asyncio.get_running_loop()
        told: Ready | None = None
        made: Ready | None
        with watch.changes.ringing(lambda: loop.call_soon_threadsafe(news.set)):
            while vigil.waiters and not watch.changes.closed:
                try:
                    made = await run_in_threadpool(self._snapshots.made, watch)
                except (SQLAlchemyError, StoreError) as error:
                    log.warning("%s: those who wait go on waiting: %s", watch.cluster, type(error).__name__)
                    made = told
                if made is not None and made is not told:
                    told = made
                    tell(vigil, made)
                await heard(news, self._look_s)
        for waiter in vigil.waiters:
            if not waiter.came.done():
                waiter.came.set_result(None)


async def heard(news: asyncio.Event, within_s: float) -> None:
    """Until something rings, or the time is over."""
    try:
        async with asyncio.timeout(within_s):
            await news.wait()
    except TimeoutError:
        return
    finally:
        news.clear()


def tell(vigil: Vigil, ready: Ready) -> None:
    """Hand everybody whose answer became another the new one."""
    for waiter in tuple(vigil.waiters):
        if not waiter.came.done():
            page = waiter.draw(ready)
            if not is_known(page.mark, waiter.known):
                waiter.came.set_result(page)


# --- answers --------------------------------------------------------------------------------------------------------


async def answered(request: Request, watch: Watch, draw: Draw, wait_s: float = 0.0, media: str = "") -> Response:
    """The answer with its ETag; 304 without a body where If-None-Match names it, after waiting where that was asked."""
    known = ",".join(request.headers.getlist("if-none-match")).encode("latin-1")
    page = draw(await ready_of(request, watch))
    if wait_s and is_known(page.mark, known):
        waiting = request.app.state.waiting
        assert isinstance(waiting, Waiting)
        page = await waiting.until_other(watch, draw, known, wait_s) or page
    headers = {"ETag": page.mark.decode("latin-1"), "Cache-Control": "no-cache"}
    if is_known(page.mark, known):
        return Response(status_code=304, headers=headers)
    return Response(page.body, headers=headers, media_type=media or "application/json")
