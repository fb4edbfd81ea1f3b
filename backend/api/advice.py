"""GET advice?job=: retry now or wait, on which nodes not, from which step; for launchers and job controllers."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from backend.advising import Given, advice_on
from backend.answers.ready import Page, Ready, is_known
from backend.answers.verdicts import Snapshot
from backend.api.guard import Reader, watch_of
from backend.api.nodes import CONDITIONAL
from backend.api.problems import Problem
from backend.api.scopes import scopes_now
from backend.api.snapshots import snapshot_of
from backend.api.waiting import Wait, Waiting
from backend.api.words import JobId
from backend.auth import Person
from backend.identity import limits
from backend.watch import Watch

router = APIRouter(tags=["advice"])

#: What a scheduler says of a job rings no bell: while somebody waits, it is looked this often, in seconds.
LOOK_S = 5.0


class Before(BaseModel):
    """What became of the answer before."""

    revision: int
    action: str
    followed: bool = Field(description="A later attempt began, on none of the nodes that were advised against.")
    attempt: int
    against: list[str] = Field(description="Nodes advised against on which it began all the same.")


class AdviceBody(BaseModel):
    """The same until something changed: ``revision`` and ``since`` tell since when."""

    job: str
    run: str
    attempt: int = Field(description="The newest attempt of the job; it is what the advice is about.")
    life: int
    state: str = Field(examples=["NODE_FAIL"])
    action: Literal["run", "restart", "wait", "stop", "done"] = Field(
        description="run: let it run. restart: start it again now. wait: later. stop: it would fail again. done."
    )
    sentence: str = Field(examples=["Start it again now. Leave out gpu-0412. Restart from step 12,000."])
    why: list[str]
    exclude: list[str] = Field(description="Under a binding exclusion, for this job.")
    avoid: list[str] = Field(description="Advice only: its own suspect nodes.")
    hostlist: str = Field(description="exclude, as sbatch --exclude takes it.")
    reasons: dict[str, list[str]]
    restart_step: int | None = Field(description="The step of the save to go on from; null: none is known.")
    skip_batches: list[int] | None = Field(description="[first, last] to pass over, where the data broke it.")
    incidents: list[int]
    log_class: str
    dark: list[str] = Field(description="Sources that do not answer now.")
    previous: Before | None
    revision: int = Field(description="Counts the answers about this job.")
    since: datetime = Field(description="Since when this is the answer.")


@router.get("/advice", operation_id="read_advice", response_model=AdviceBody, responses=CONDITIONAL)
async def read_advice(
    request: Request,
    person: Reader,
    watch: Annotated[Watch, Depends(watch_of)],
    job: Annotated[JobId, Query(description="Its id, as the scheduler writes it.")],
    wait_s: Wait = 0.0,
) -> Response:
    """Start a failed job again, or wait, or stop; which nodes to leave out; from which saved step. Ask as often as you
    like: the answer is kept, and the same until something changed. The next one says what became of this."""
    known = ",".join(request.headers.getlist("if-none-match")).encode("latin-1")
    page = await asked(request, watch, person, job)
    until = asyncio.get_running_loop().time() + wait_s
    while wait_s and is_known(page.mark, known) and (left := until - asyncio.get_running_loop().time()) > 0:
        if watch.changes.closed:
            break
        await news(request, watch, min(left, LOOK_S))
        page = await asked(request, watch, person, job)
    headers = {"ETag": page.mark.decode("ascii"), "Cache-Control": "no-cache"}
    if is_known(page.mark, known):
        return Response(status_code=304, headers=headers)
    return Response(page.body, headers=headers, media_type="application/json")


async def news(request: Request, watch: Watch, within_s: float) -> None:
    """Until an incident or an exclusion changed, or the time is over."""
    waiting = request.app.state.waiting
    assert isinstance(waiting, Waiting)
    number = watch.changes.weighty
    held = mark_of_all((await snapshot_of(request, watch)), number)

    def draw(ready: Ready) -> Page:
        return Page(b"", mark_of_all(ready.seen, watch.changes.weighty))

    await waiting.until_other(watch, draw, held, within_s)


def mark_of_all(seen: Snapshot, number: int) -> bytes:
    return f'"{number}-{len(seen.listed)}-{max((row["id"] or 0 for row in seen.listed), default=0)}"'.encode()


async def asked(request: Request, watch: Watch, person: Person, job: str) -> Page:
    """Raises Problem: 404 for a job that nobody told us of, or that is not theirs to see."""
    seen = await snapshot_of(request, watch)
    given = await run_in_threadpool(_given, watch, seen, person, job)
    if given is None:
        raise Problem(404, f"Nobody told of a job {job} in cluster {watch.cluster}.")
    return page_of(given)


def _given(watch: Watch, seen: Snapshot, person: Person, job: str) -> Given | None:
    with watch.store.read() as session:
        if not limits.sees_job(session, watch.cluster, person, job):
            return None
    return advice_on(watch, seen, job, scopes_now(watch, job))


def page_of(given: Given) -> Page:
    body: dict[str, Any] = given.body | {"revision": given.revision, "since": given.at}
    return Page(orjson.dumps(body), f'W/"{given.revision}-{given.mark}"'.encode())
