"""The verdict snapshot of one request."""

from __future__ import annotations

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from backend.answers.ready import Ready
from backend.answers.verdicts import Snapshot
from backend.snapshots import Snapshots
from backend.watch import Watch


def snapshots_of(request: Request) -> Snapshots:
    found = request.app.state.snapshots
    assert isinstance(found, Snapshots)
    return found


async def snapshot_of(request: Request, watch: Watch) -> Snapshot:
    """The snapshot for one request: at once where one holds, else made on a thread."""
    return (await ready_of(request, watch)).seen


async def ready_of(request: Request, watch: Watch) -> Ready:
    """As ``snapshot_of``, ready to be asked."""
    snapshots = snapshots_of(request)
    kept = snapshots.ready(watch)
    return kept if kept is not None else await run_in_threadpool(snapshots.made, watch)
