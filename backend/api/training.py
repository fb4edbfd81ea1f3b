"""POST ingest/steps, checkpoints, collectives and otlp: what trainers push of their progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from backend import pipeline
from backend.api.guard import bound_to
from backend.api.ingest import PartsOf, Plain, Taken, WatchOf, content_type, intake_of, readable
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.api.schemas import otlp_body, rows_body
from backend.clock import unix
from backend.facts import Batch
from backend.ingest import otlp
from backend.ingest.base import SourceError
from backend.ingest.bound import bound, bound_rows
from backend.ingest.collectives import Whose, collectives_batch
from backend.ingest.logs import logs_batch, read_rows
from backend.ingest.rows import MAX_AHEAD_S, Reject, Rows, read
from backend.ingest.steps import CheckpointRow, StepRow, saves_batch, step_facts
from backend.pipeline import Accepted
from backend.watch import Watch
from detectors.kernel.lines import parse

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

COLLECTIVE_EXAMPLE = {
    "ts": 1772366400.9,
    "run": "atlas-70b-pretrain",
    "comm": "dp-3",
    "op": "all_reduce",
    "seq": 90210,
    "rank": 17,
    "ranks": 64,
    "host": "gpu-0412",
    "bytes": 268435456,
    "start": 1772366400.51,
    "end": 1772366400.88,
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


@router.post(
    "/collectives",
    operation_id="ingest_collectives",
    response_model=Taken,
    openapi_extra=rows_body("CollectiveRow", COLLECTIVE_EXAMPLE),
)
def collectives(
    request: Request, watch: WatchOf, body: Plain, run: str = "", job: str = "", rank: int | None = None, host: str = ""
) -> Response:
    """Calls of communicators as their ranks saw them: rows of our own, NCCL Inspector's, NCCL RAS as JSON, or
    a flight recorder's file as JSON. What a form does not tell of all its rows is said in the address: run, job, rank,
    host."""
    now = unix(watch.clock.now())
    batch, rejects = readable(lambda: collectives_batch(body, now, Whose(run, job, rank, host)))
    return kept_or_problem(request, watch, batch, rejects)


@router.post("/otlp/v1/metrics", operation_id="ingest_otlp_metrics", openapi_extra=otlp_body("resourceMetrics"))
def otlp_metrics(request: Request, watch: WatchOf, body: Plain) -> Response:
    """OTLP over HTTP: metrics of a job become its steps. Its run, job, rank, layer and step are attributes of the
    resource or of the points; the step may be a metric by that name."""
    now, kind = unix(watch.clock.now()), content_type(request)
    points, others = readable(lambda: otlp.metrics_of(body, kind))
    found = otlp.steps_of(points, now, others)
    batch = bound(Batch("otlp", now, now, steps=tuple(found.rows)), bound_to(request))
    dropped = found.dropped + Counter(batch.dropped)
    try:
        accepted = pipeline.accept(watch, batch) if batch.steps else Accepted()
    except SourceError as error:
        raise Problem(503, str(error)) from error
    intake_of(request).count(watch.cluster, replace(accepted, dropped=+dropped))
    return exported(dropped.total(), "; ".join(+dropped), kind, "DataPoints")


@router.post("/otlp/v1/logs", operation_id="ingest_otlp_logs", openapi_extra=otlp_body("resourceLogs"))
def otlp_logs(request: Request, watch: WatchOf, parts: PartsOf, body: Plain) -> Response:
    """OTLP over HTTP: log records, taken as ingest/logs takes its rows. Their host is an attribute of the resource."""
    now, kind = unix(watch.clock.now()), content_type(request)
    rows = otlp.log_rows(readable(lambda: otlp.logs_of(body, kind)))
    found = read_rows(orjson.dumps(rows), "application/json", now) if rows else Rows((), (), (), 0, 0)
    found, others = bound_rows(found, bound_to(request))
    tails = parts.tails[watch.cluster]
    batch = logs_batch(found, now, parse, tails)
    tails.flush()
    accepted = pipeline.accept(watch, batch) if batch.events or batch.printed else Accepted(dropped=batch.dropped)
    intake_of(request).count(watch.cluster, accepted)
    why = f"{found.rejects[0].field} {found.rejects[0].problem}" if found.rejects else "of other nodes"
    return exported(len(rows) - len(found.rows) if not others else found.rejected + others, why, kind, "LogRecords")


def exported(rejected: int, why: str, kind: str, what: str) -> Response:
    found, media = otlp.answer(rejected, why, kind, what)
    return Response(found if isinstance(found, bytes) else orjson.dumps(found), media_type=media)


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
