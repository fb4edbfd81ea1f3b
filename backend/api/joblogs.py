"""GET jobs/{job}/log: the last lines that a job printed, as far as they were pushed or its logs are followed."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from backend.api.guard import Reader, parts_of, watch_of
from backend.api.nodes import json
from backend.clock import utc
from backend.registry import Parts
from backend.watch import Watch

router = APIRouter(prefix="/jobs", tags=["jobs"])

#: Lines of one answer.
MOST_LINES = 5_000


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
    _: Reader,
    watch: Annotated[Watch, Depends(watch_of)],
    parts: Annotated[Parts, Depends(parts_of)],
    lines: Annotated[int, Query(ge=1, le=MOST_LINES, description="How many of the last lines.")] = 200,
    rank: Annotated[str, Query(max_length=20, description="Only those of this rank.")] = "",
) -> Response:
    """The last lines of a job: those of its logs while it runs and after it ended, and those that were pushed. How many
    are kept is bounded (tail_bytes); a job that nobody heard of has none."""
    kept = await run_in_threadpool(parts.tails[watch.cluster].tail, job, MOST_LINES)
    found = [line for line in kept if not rank or line.rank == rank][-lines:]
    shown = [
        {name: value for name, value in asdict(line).items() if name != "place"} | {"at": utc(line.at)}
        for line in found
    ]
    return json({"job": job, "lines": shown, "as_of": watch.clock.now()})
