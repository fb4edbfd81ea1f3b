"""hardware: what a vendor may see of its nodes, redacted; also as a file that may leave the house."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from backend.answers.hardware import hardware
from backend.api.guard import Anybody, watch_of
from backend.api.nodes import json
from backend.api.words import Moment
from backend.watch import Watch

router = APIRouter(tags=["hardware"])

DAYS = 90


class HardwareAnswer(BaseModel):
    cluster: str
    since: datetime
    until: datetime
    nodes: list[dict[str, Any]] = Field(description="node, model, boot_at and its devices.")
    incidents: list[dict[str, Any]] = Field(description="Faults of their hardware; no job, run or person is named.")
    events: list[dict[str, Any]] = Field(description="Codes as the kernel and the fabric said them, masked.")
    checks: list[dict[str, Any]] = Field(description="What checks found.")
    cut: list[str] = Field(description="Of what only the newest stand here: ask again with an earlier until.")


@router.get("/hardware", operation_id="read_hardware", response_model=HardwareAnswer)
def read_hardware(
    person: Anybody,
    watch: Annotated[Watch, Depends(watch_of)],
    since: Annotated[Moment | None, Query(description="From then on; 90 days back where it is left out.")] = None,
    until: Annotated[Moment | None, Query(description="Up to then; now where it is left out.")] = None,
    download: Annotated[bool, Query(description="As a file.")] = False,
) -> Response:
    """Parts, faults, codes and checks of the nodes that the asker may see. Jobs, runs, people, processes, secrets and
    the names of other nodes are left out or masked, also for who could see them: this may be handed on."""
    end = until or watch.clock.now() + timedelta(seconds=1)
    start = since or end - timedelta(days=DAYS)
    with watch.store.read() as session:
        found = hardware(session, watch.cluster, person.nodes, start, end)
    body = {"cluster": watch.cluster, "since": start, "until": end}
    rows = {name: list(getattr(found, name)) for name in ("nodes", "incidents", "events", "checks", "cut")}
    answer = json(body | rows)
    if download:
        answer.headers["Content-Disposition"] = 'attachment; filename="watchkeeper-hardware.json"'
    answer.headers["Cache-Control"] = "no-store"
    return answer
