"""POST ingest: what exporters, agents and schedulers push. What a 2xx means stands in contracts.md."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from backend import pipeline
from backend.api.bodies import unpacked
from backend.api.guard import Sender, bound_to, parts_of, watch_of
from backend.api.intake import Intake
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.api.schemas import journal_body, rows_body, topology_body, write_body
from backend.clock import unix
from backend.facts import Batch
from backend.ingest.alertmanager import alerts_batch, in_turn, timeless
from backend.ingest.base import SourceError
from backend.ingest.bound import REASON, bound, bound_rows, is_its
from backend.ingest.files import Where
from backend.ingest.infiniband import infiniband_batch
from backend.ingest.jobs import jobs_batch
from backend.ingest.journal_push import journal_batch
from backend.ingest.logs import logs_batch, read_rows
from backend.ingest.loki_lines import LokiLines, host_of
from backend.ingest.loki_push import PROTOBUF, entries_of, is_loki, loki_batch
from backend.ingest.remote_write import decode
from backend.ingest.rows import Reject
from backend.ingest.topology import topology_batch
from backend.ingest.topology_csv import csv_batch
from backend.ingest.wrap import wrap_batch
from backend.pipeline import Accepted
from backend.registry import Parts
from backend.store import events
from backend.watch import Watch
from detectors.kernel.lines import parse

router = APIRouter(prefix="/ingest", tags=["ingest"])

#: Label names repeat, so a block unpacks to many times its size; beyond this it is a bomb.
MOST_UNPACKED = 8

PartsOf = Annotated[Parts, Depends(parts_of)]
WatchOf = Annotated[Watch, Depends(watch_of)]


class RejectedRow(BaseModel):
    row: int = Field(description="Its place from 0; the line's, in JSON lines.", examples=[3])
    field: str = Field(examples=["ts"])
    problem: str = Field(examples=["must be unix seconds, or an RFC 3339 text"])


class Taken(BaseModel):
    """What became of one body."""

    accepted: int = Field(description="Events, records or samples that are kept as the contract promises.")
    duplicates: int = Field(description="Events that were kept before; sending twice is safe.")
    counted: int = Field(description="Log lines that no rule hits: counted, and kept in a short tail per job.")
    rejected: list[RejectedRow] = Field(description="Rows that were not taken; the first 100 of them.")
    dropped: dict[str, int] = Field(description="What else was left out, by reason.")


def intake_of(request: Request) -> Intake:
    found = request.app.state.intake
    assert isinstance(found, Intake)
    return found


async def turn(request: Request, sender: Sender) -> AsyncIterator[None]:
    """A place among the bodies that are worked on; taken before the body is read, so that waiting costs no memory."""
    with intake_of(request).turn(request.url.path.rpartition("/")[2]):
        yield


async def plain(request: Request, parts: PartsOf, _: Annotated[None, Depends(turn)]) -> bytes:
    """The body, read and unpacked within the limit."""
    body = await request.body()
    encoding = request.headers.get("content-encoding", "")
    if encoding == "snappy" and content_type(request) == PROTOBUF:  # its reader unpacks it, and bounds that itself
        return body
    return await run_in_threadpool(unpacked, body, encoding, parts.settings.server.max_body_bytes)


#: What a sender of remote write 2.0 names its message; a 415 makes it fall back to 1.0, as its specification asks.
WRITE_2 = "io.prometheus.write.v2"


async def packed(request: Request, _: Annotated[None, Depends(turn)]) -> bytes:
    """The body of a remote write as it came: its decoder unpacks it, and bounds that itself."""
    encoding = request.headers.get("content-encoding", "snappy").strip().lower()
    if encoding != "snappy":
        raise Problem(415, f"Content-Encoding {encoding!r} is not taken here; remote write 1.0 sends snappy.")
    if WRITE_2 in content_type(request):
        raise Problem(415, "Remote write 2.0 is not taken here: leave protobuf_message at prometheus.WriteRequest.")
    return await request.body()


Plain = Annotated[bytes, Depends(plain)]


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "")


def readable(read: Callable[[], Any]) -> Any:
    """Raises Problem 400 for a body of which nothing can be read."""
    try:
        return read()
    except SourceError as error:
        raise Problem(400, str(error)) from error


def taken(request: Request, watch: Watch, batch: Batch, rejects: Sequence[Reject], counted: int = 0) -> Response:
    """Commit a batch and say what became of it. Raises Problem: 422 where nothing was right and something wrong, 403
    where a sender that is bound to its nodes spoke of others only."""
    batch = bound(batch, bound_to(request))
    kept = bool(batch.events or batch.series or batch.columns or pipeline.records_of(batch))
    if rejects and not kept and not counted:
        intake_of(request).count(watch.cluster, Accepted(dropped=batch.dropped))
        flaws = [{"where": f"row {r.row}, {r.field}", "what": r.problem} for r in rejects[:20]]
        first = rejects[0]
        raise Problem(422, f"No row was right; row {first.row}: {first.field} {first.problem}.", errors=flaws)
    if batch.dropped.get(REASON) and not kept and not counted:
        intake_of(request).count(watch.cluster, Accepted(dropped=batch.dropped))
        raise Problem(
            403, f"This token may speak of {', '.join(sorted(bound_to(request))[:5])} only; nothing was kept."
        )
    accepted = pipeline.accept(watch, batch) if kept else Accepted(dropped=batch.dropped)
    intake_of(request).count(watch.cluster, accepted)
    return json(_body(accepted, rejects, counted))


def _body(accepted: Accepted, rejects: Sequence[Reject], counted: int) -> Mapping[str, Any]:
    return {
        "accepted": accepted.events + accepted.records + accepted.samples,
        "duplicates": accepted.duplicates,
        "counted": counted,
        "rejected": [asdict(reject) for reject in rejects],
        "dropped": dict(accepted.dropped),
    }


LOG_EXAMPLE = {
    "ts": 1772366400.25,
    "host": "gpu-0412",
    "source": "kernel",
    "line": "NVRM: Xid (PCI:0000:9d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
}


@router.post("/logs", operation_id="ingest_logs", response_model=Taken, openapi_extra=rows_body("LogRow", LOG_EXAMPLE))
def logs(request: Request, watch: WatchOf, parts: PartsOf, body: Plain) -> Response:
    """Log lines. One that a rule hits is committed as an event before the 2xx; the others are counted, and those of a
    job kept among its last: GET jobs/{job}/log. Also takes what promtail, Alloy, Fluent Bit and Vector push to Loki, as
    JSON (streams) or as protobuf; their streams must name their host."""
    now, kind = unix(watch.clock.now()), content_type(request)
    if is_loki(body, kind):
        return loki_lines(request, watch, parts, body, now)
    rows = readable(lambda: read_rows(body, kind, now))
    tails = parts.tails[watch.cluster]
    rows, others = bound_rows(rows, bound_to(request))
    batch = logs_batch(rows, now, parse, tails)
    if others:
        batch = replace(batch, dropped={**batch.dropped, REASON: others})
    tails.flush()
    return taken(request, watch, batch, rows.rejects, len(rows.rows) - len(batch.events))


def loki_lines(request: Request, watch: Watch, parts: Parts, body: bytes, now: float) -> Response:
    """A push to Loki. Lines of a job are those with the label of [cluster.logs] loki_job_label."""
    most = parts.settings.server.max_body_bytes * MOST_UNPACKED
    entries, dropped = readable(lambda: entries_of(body, content_type(request), most))
    own = bound_to(request)
    its = [entry for entry in entries if not own or is_its(host_of(entry.labels), own)]
    if len(its) < len(entries):
        dropped[REASON] += len(entries) - len(its)
    logs = next(one.logs for one in parts.settings.cluster if one.name == watch.cluster)
    tails = parts.tails[watch.cluster]
    lines = LokiLines(parse, Where.here(), logs.loki_job_label, trusted=logs.trust_syslog)
    batch = loki_batch(its, dropped, now, lines, tails)
    tails.flush()
    return taken(request, watch, batch, (), len(its) - len(batch.events))


@router.post("/journal", operation_id="ingest_journal", response_model=Taken, openapi_extra=journal_body())
def journal(request: Request, watch: WatchOf, body: Plain) -> Response:
    """Entries of systemd journals, as journalctl -o export or -o json prints them. Those that a rule hits are committed
    as events before the 2xx, under the same keys as the journal itself gives; the others are counted."""
    now = unix(watch.clock.now())
    batch, counted = readable(lambda: journal_batch(body, now, parse))
    return taken(request, watch, batch, (), counted)


@router.post(
    "/alertmanager",
    operation_id="ingest_alertmanager",
    response_model=Taken,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}},
)
def alertmanager(request: Request, watch: WatchOf, body: Plain) -> Response:
    """Alerts of an Alertmanager, as its webhook sends them: each becomes a sign of its node, its job or the cluster,
    and ends when it is resolved. Told again they are the same; our own, sent back, are left out."""
    places = frozenset(watch.inventory.fleet.nodes)
    batch, rejects = readable(lambda: alerts_batch(body, unix(watch.clock.now()), places.__contains__))
    if nodes := sorted({event.host for event in batch.events if timeless(event)}):
        hold_s = watch.catalogue.limit("alert_hold_s")
        with watch.store.read() as session:
            since = watch.clock.now() - timedelta(seconds=hold_s)
            batch = in_turn(batch, events.last_alerts(session, watch.cluster, nodes, since), hold_s)
    return taken(request, watch, batch, rejects)


JOB_EXAMPLE = {
    "job": "41207",
    "restart": 0,
    "run": "atlas-70b-pretrain",
    "user": "lena",
    "state": "RUNNING",
    "submit": 1772360000,
    "start": 1772360010,
    "nodes": "gpu-[0001-0016]",
    "gpus_per_node": 8,
}


@router.post("/jobs", operation_id="ingest_jobs", response_model=Taken, openapi_extra=rows_body("JobRow", JOB_EXAMPLE))
def jobs(request: Request, watch: WatchOf, body: Plain) -> Response:
    """Job records: one row an attempt, told again whenever something about it changes."""
    now, kind = unix(watch.clock.now()), content_type(request)
    batch, rejects = readable(lambda: jobs_batch(body, kind, now))
    return taken(request, watch, batch, rejects)


@router.post("/topology", operation_id="ingest_topology", response_model=Taken, openapi_extra=topology_body())
def topology(request: Request, watch: WatchOf, body: Plain) -> Response:
    """Which nodes there are, where they stand and which GPUs they hold: a whole topology.json, or rows of it; as
    text/csv a table (node, rack, switch, clique, model, partitions, rail0 ..., fs); as text/plain what ibnetdiscover
    prints."""
    now, kind = unix(watch.clock.now()), content_type(request)
    batch, rejects = readable(lambda: placed(body, kind, now))
    return taken(request, watch, batch, rejects)


def placed(body: bytes, kind: str, now: float) -> tuple[Batch, tuple[Reject, ...]]:
    """Raises SourceError."""
    plain = kind.partition(";")[0].strip().lower()
    if plain == "text/csv":
        return csv_batch(body, now)
    if plain == "text/plain":
        return infiniband_batch(body, now), ()
    return topology_batch(body, kind, now)


WRAP_EXAMPLE = {
    "id": "41207/0/3/gpu-0412/8812/1772366400.000",
    "ts": 1772370000.5,
    "start": 1772366400,
    "host": "gpu-0412",
    "job": "41207",
    "restart": 0,
    "task": 3,
    "tasks": 8,
    "rank": 3,
    "name": "atlas-70b-pretrain",
    "exit_code": 1,
    "class": "cuda_oom",
    "confidence": 0.95,
    "excerpt": [{"line": 812, "at": 40961, "text": "torch.OutOfMemoryError: CUDA out of memory."}],
}


@router.post(
    "/wrap", operation_id="ingest_wrap", response_model=Taken, openapi_extra=rows_body("WrapRow", WRAP_EXAMPLE)
)
def wrap(request: Request, watch: WatchOf, body: Plain) -> Response:
    """Reports of job wrappers, one a process that ended. The ranks of an attempt are joined, their logs judged again
    together, and one verdict is told of it, the same one that its followed log would give."""
    now, kind = unix(watch.clock.now()), content_type(request)
    batch, rejects = readable(lambda: wrap_batch(body, kind, now))
    return taken(request, watch, batch, rejects)


@router.post("/remote-write", operation_id="ingest_remote_write", response_model=Taken, openapi_extra=write_body())
def remote_write(request: Request, watch: WatchOf, parts: PartsOf, body: Annotated[bytes, Depends(packed)]) -> Response:
    """Prometheus remote write 1.0. Samples are in the ring with the 2xx; names nobody needs are counted as dropped."""
    if parts.role == "api":
        raise Problem(421, "No telemetry is read in this process; send it to the one that runs `serve --role observe`.")
    limit, intake = parts.settings.server.max_body_bytes * MOST_UNPACKED, intake_of(request)
    targets = intake.targets(watch.cluster)
    pushes = None if bound_to(request) else intake.pushes(watch.cluster, watch.catalogue)
    batch = readable(lambda: decode(body, watch.catalogue, limit, targets, pushes, unix(watch.clock.now())))
    return taken(request, watch, batch, ())
