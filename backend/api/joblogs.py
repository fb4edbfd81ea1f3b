"""GET jobs/{job}/log, /verdict and /reports: what a job printed last, what its logs came to, what its wrappers told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from backend import learn
from backend.api.guard import Reader, parts_of, watch_of
from backend.api.incidents import Similar
from backend.api.labels import LabelRow, row_of
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.auth import Person
from backend.clients.summaries import SummaryError, summary_of
from backend.clock import utc
from backend.identity import limits
from backend.registry import Parts
from backend.security.redact import MASK, redact
from backend.settings import Settings
from backend.store import labels, reports
from backend.watch import Watch
from backend.writes import Missing
from detectors.joblog.excerpt import NAMED

router = APIRouter(prefix="/jobs", tags=["jobs"])

#: Lines of one answer.
MOST_LINES = 5_000
#: Reports of one answer.
MOST_REPORTS = 500
_KEY_BEGINS, _KEY_ENDS = "-----BEGIN ", "-----END "


class PrintedLine(BaseModel):
    """One line of a job's log."""

    at: datetime = Field(description="When it was printed, as the line says; else when it was read.")
    text: str = Field(examples=["torch.cuda.OutOfMemoryError: CUDA out of memory."])
    file: str = Field(
        description="Which log it stands in; empty where it was pushed.", examples=["/home/lena/slurm-41207.out"]
    )
    host: str = Field(examples=["gpu-0412"])
    rank: str = Field(description="The rank that printed it, as far as it is known.", examples=["17"])


class JobLog(BaseModel):
    job: str = Field(examples=["41207"])
    lines: list[PrintedLine] = Field(description="In the order in which they were read; empty where none was.")
    as_of: datetime


@router.get("/{job}/log", operation_id="read_job_log", response_model=JobLog)
async def read_job_log(
    job: str,
    person: Reader,
    watch: Annotated[Watch, Depends(watch_of)],
    parts: Annotated[Parts, Depends(parts_of)],
    lines: Annotated[int, Query(ge=1, le=MOST_LINES, description="How many of the last lines.")] = 200,
    rank: Annotated[str, Query(max_length=20, description="Only those of this rank.")] = "",
) -> Response:
    """The last lines of a job: those of its logs while it runs and after it ended, and those that were pushed. How many
    are kept is bounded (tail_bytes); a job that nobody heard of has none. Secrets in them are masked, since every
    reader sees them."""
    await run_in_threadpool(theirs, watch, person, job)
    kept = await run_in_threadpool(parts.tails[watch.cluster].tail, job, MOST_LINES)
    found = [line for line in kept if not rank or line.rank == rank][-lines:]
    texts = await run_in_threadpool(masked, [line.text for line in found])
    shown = [
        {name: value for name, value in asdict(line).items() if name != "place"} | {"at": utc(line.at), "text": text}
        for line, text in zip(found, texts, strict=True)
    ]
    return json({"job": job, "lines": shown, "as_of": watch.clock.now()})


class JobVerdict(BaseModel):
    """What a job's logs came to when it last failed."""

    job: str
    at: datetime
    log_class: str = Field(serialization_alias="class", examples=["disk_full"])
    confidence: float = Field(description="0 to 1.")
    by: str = Field(description="rules; or resemblance, where no rule names the cause: then it excludes nothing.")
    sentence: str
    first: str = Field(description="The line of the first cause; empty where none names it.")
    excerpt: list[str] = Field(description="The telling lines of its logs, secrets masked.")
    similar: list[Similar] = Field(description="At most three past failures with what people said they were.")
    labels: list[LabelRow] = Field(description="What people said of this verdict, newest first.")
    summary: str = Field("", description="The quoted lines, summed up by the site's model; decides nothing.")


@router.get("/{job}/verdict", operation_id="read_job_verdict", response_model=JobVerdict)
def read_job_verdict(
    job: str,
    person: Reader,
    watch: Annotated[Watch, Depends(watch_of)],
    parts: Annotated[Parts, Depends(parts_of)],
    summary: Annotated[bool, Query(description="Also ask the site's language model, where settings name one.")] = False,
) -> Response:
    """Why a job failed, by its logs: the class, the telling lines, and past failures that it resembles."""
    theirs(watch, person, job)
    model = watch.verdicts.learned if watch.verdicts is not None else None
    with watch.store.read() as session:
        event = labels.verdict_of_job(session, watch.cluster, job)
        if event is None:
            raise Missing(f"No verdict on the logs of job {job} in cluster {watch.cluster}.")
        said = [row for row in labels.page(session, watch.cluster, 100, job=job) if row.event_id == event.id]
        attrs = event.attrs
        shown = {
            "job": job,
            "at": event.at,
            "class": event.code,
            "confidence": float(attrs.get("confidence", 0.0)),
            "by": attrs.get("by", "rules"),
            "sentence": event.text,
            "first": attrs.get("first", ""),
            "excerpt": [line[len(NAMED) :] for line in str(attrs.get("excerpt", "")).splitlines()],
            "similar": learn.similar(model, event),
            "labels": [row_of(row) for row in said],
        }
    return json(shown | {"summary": _summed_up(parts.settings, shown) if summary else ""})


def _summed_up(settings: Settings, shown: Mapping[str, Any]) -> str:
    """Raises Problem where no model is set or it gives no answer; the verdict stands without it."""
    if settings.summary is None:
        raise Problem(409, "No language model is set for summaries; set [summary] url to have one, or leave it off.")
    lines = [line for line in (shown["first"], *shown["excerpt"]) if line]
    try:
        return summary_of(settings.summary, str(shown["sentence"]), lines) if lines else ""
    except SummaryError as error:
        raise Problem(503, f"No summary: {error}. The verdict stands without it.") from error


def theirs(watch: Watch, person: Person, job: str) -> None:
    """Raises Missing for a job of a project that somebody is not limited to: for them it is not there."""
    if not person.projects:
        return
    with watch.store.read() as session:
        if not limits.sees_job(session, watch.cluster, person, job):
            raise Missing(f"No job {job} of {', '.join(person.projects)} in cluster {watch.cluster}.")


def masked(lines: Sequence[str]) -> list[str]:
    """Lines without their secrets, as many as before; a private key may span several."""
    found: list[str] = []
    inside = False
    for line in lines:
        begins = _KEY_BEGINS in line and "PRIVATE KEY-----" in line
        ends = _KEY_ENDS in line and "PRIVATE KEY-----" in line[line.rfind(_KEY_ENDS) :]
        found.append(MASK if inside and not begins else redact(line))
        inside = (inside or begins) and not ends
    return found


class JobReport(BaseModel):
    """What the wrapper of one process told when it ended."""

    at: datetime = Field(description="When it ended.")
    host: str = Field(examples=["gpu-0412"])
    restart: int = Field(description="The attempt.", examples=[0])
    rank: int | None = Field(description="The rank that it was; null where it started the ranks itself.", examples=[17])
    exit_code: int = Field(description="As a shell gives it.", examples=[1])
    signal: int | None = Field(description="The signal that ended it.", examples=[9])
    log_class: str = Field(description="What its own log comes to, seen alone.", examples=["cuda_oom"])
    sentence: str
    evidence: list[dict[str, Any]]
    tail: list[dict[str, Any]] = Field(description="Its last lines, each with its stream.")
    artifacts: list[dict[str, Any]] = Field(description="Text files that came with it.")
    left_out: list[dict[str, Any]] = Field(description="Files that did not fit, and why.")
    environment: dict[str, str]
    log: dict[str, Any] = Field(description="Where its log stands, and how much of it.")


class JobReports(BaseModel):
    job: str = Field(examples=["41207"])
    reports: list[JobReport] = Field(description="Those that failed first; of several attempts the newest first.")
    as_of: datetime


@router.get("/{job}/reports", operation_id="read_job_reports", response_model=JobReports)
def read_job_reports(
    job: str,
    person: Reader,
    watch: Annotated[Watch, Depends(watch_of)],
    limit: Annotated[int, Query(ge=1, le=MOST_REPORTS, description="How many at most.")] = 50,
) -> Response:
    """What the wrappers of a job told of its processes. The verdict on all of them together is the job's incident."""
    theirs(watch, person, job)
    fields = ("sentence", "evidence", "tail", "artifacts", "left_out", "environment", "log", "rank", "signal")
    with watch.store.read() as session:
        rows = reports.latest(session, watch.cluster, job, limit)
        told = [
            {"at": row.at, "host": row.host, "restart": row.restart, "exit_code": row.exit_code}
            | {"log_class": row.log_class}
            | {name: row.report.get(name) for name in fields}
            for row in rows
        ]
    return json({"job": job, "reports": told, "as_of": watch.clock.now()})
