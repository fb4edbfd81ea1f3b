"""checks: what checks of nodes found, before they went back to work and on idle ones."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from backend.api.guard import Reader, watch_of
from backend.api.nodes import json
from backend.api.words import Asked
from backend.store import checks
from backend.watch import Watch

router = APIRouter(tags=["checks"])

NAMES = ("node", "peer", "name", "occasion", "at", "verdict", "text", "reading", "digest", "incident_id")


class CheckRow(BaseModel):
    node: str
    peer: str = Field(description="The other node of a pair test.")
    name: str
    occasion: str = Field(description="return: before the node went back; idle: a sweep.")
    at: datetime
    verdict: str = Field(description="pass, warn, fail or unknown.")
    text: str
    reading: dict[str, Any] = Field(description="What it measured, by name.")
    digest: str
    incident_id: int | None


class CheckList(BaseModel):
    items: list[CheckRow]


@router.get("/checks", operation_id="list_checks", response_model=CheckList)
def list_checks(
    _: Reader,
    watch: Annotated[Watch, Depends(watch_of)],
    node: Annotated[Asked, Query(description="Only of this node.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Results of checks, newest first; of each node the last 200 are kept."""
    with watch.store.read() as session:
        rows = checks.of_node(session, watch.cluster, node, limit)
    return json({"items": [{name: getattr(row, name) for name in NAMES} for row in rows]})
