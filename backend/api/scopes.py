"""Whose work a question is about: its job, run, account and partition, because a hold may keep away some only."""

from __future__ import annotations

from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from backend.answers.verdicts import NOBODY
from backend.api.snapshots import snapshot_of
from backend.store import attempts
from backend.store.engine import StoreError
from backend.watch import Watch


async def scopes_of(request: Request, watch: Watch, job: str) -> frozenset[str]:
    """As in ``job:41207`` and ``account:nlp``; of a job that nobody told us of only the first. None where no hold asks
    whose work it is."""
    if not job or not (await snapshot_of(request, watch)).scoped:
        return NOBODY
    return await run_in_threadpool(scopes_now, watch, job)


def scopes_now(watch: Watch, job: str) -> frozenset[str]:
    """As above, in the thread of who asks; while the database is away of the job alone."""
    try:
        with watch.store.read() as session:
            row = attempts.latest(session, watch.cluster, job)
    except (SQLAlchemyError, StoreError):
        row = None
    found = {"job": job}
    if row is not None:
        found |= {"run": row.run, "account": row.account, "partition": row.partition}
    return frozenset(f"{kind}:{name}" for kind, name in found.items() if name)
