"""POST ingest/steps and ingest/checkpoints: what trainers push of their progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from fastapi import APIRouter, Request
from fastapi.responses import Response

from backend import pipeline
from backend.api.guard import bound_to
from backend.api.ingest import Plain, Taken, WatchOf, content_type, readable
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.api.schemas import rows_body
from backend.clock import unix
from backend.facts import Batch
from backend.ingest.base import SourceError
from backend.ingest.bound import bound
from backend.ingest.rows import MAX_AHEAD_S, Reject, read
from backend.ingest.steps import CheckpointRow, StepRow, saves_batch, step_facts
from backend.pipeline import Accepted
from backend.watch import Watch

router = APIRouter(prefix="/ingest", tags=["ingest"])

STEP_EXAMPLE = {
    "ts": 1772366400.25,
    "run": "atlas-70b-pretrain",
    "job": "41207",
    "step": 182443,
    "loss": 1.8127,
    "step_time_s": 5.21,
    "tokens": 4194304,
    "rank": 0,
}
CHECKPOINT_EXAMPLE = {
    "ts": 1772366438.0,
    "run": "atlas-70b-pretrain",
    "job": "41207",
    "step": 182443,
    "kind": "save",
    "duration_s": 37.8,
    "bytes": 980000000000,
}


@router.post(
    "/steps", operation_id="ingest_steps", response_model=Taken, openapi_extra=rows_body("StepRow", STEP_EXAMPLE)
)
def steps(request: Request, watch: WatchOf, body: Plain) -> Response:
    """Rows of training, one a step or one every few; each covers the time since the row before. They lie on the disk
    when this answers, and make ETTR exact where accounting alone only bounds it."""
    now, kind = unix(watch.clock.now()), content_type(request)
    rows = readable(lambda: read(body, kind, StepRow))
    kept = tuple(step_facts(row) for row in rows.rows if row.ts <= now + MAX_AHEAD_S)
    batch = Batch("steps", now, now, steps=kept, dropped=ahead(len(rows.rows) - len(kept)))
    return kept_or_problem(request, watch, batch, rows.rejects)


@router.post(
    "/checkpoints",
    operation_id="ingest_checkpoints",
    response_model=Taken,
    openapi_extra=rows_body("CheckpointRow", CHECKPOINT_EXAMPLE),
)
def checkpoints(request: Request, watch: WatchOf, body: Plain) -> Response:
    """Saves and loads that have finished. They lie on the disk when this answers."""
    now, kind = unix(watch.clock.now()), content_type(request)
    rows = readable(lambda: read(body, kind, CheckpointRow))
    good = [row for row in rows.rows if row.ts <= now + MAX_AHEAD_S]
    batch = saves_batch(good, now, ahead(len(rows.rows) - len(good)))
    return kept_or_problem(request, watch, batch, rows.rejects)


def ahead(rows: int) -> dict[str, int]:
    return {"in the future": rows} if rows else {}


def kept_or_problem(request: Request, watch: Watch, batch: Batch, rejects: Sequence[Reject]) -> Response:
    """Keep rows and say what became of them. Raises Problem: 422 where none was right, 503 where the disk is full."""
    batch = bound(batch, bound_to(request))
    count = pipeline.rows_of_training(batch)
    if not count and (rejects or batch.dropped):
        said = f"row {rejects[0].row}: {rejects[0].field} {rejects[0].problem}" if rejects else "; ".join(batch.dropped)
        flaws = [{"where": f"row {r.row}, {r.field}", "what": r.problem} for r in rejects[:20]]
        raise Problem(422, f"No row was right; {said}.", errors=flaws)
    try:
        accepted = pipeline.accept(watch, batch) if count else Accepted()
    except SourceError as error:
        raise Problem(503, str(error)) from error
    told = {"accepted": accepted.records, "duplicates": accepted.duplicates, "counted": 0}
    return json(told | {"rejected": [asdict(r) for r in rejects], "dropped": dict(batch.dropped)})
