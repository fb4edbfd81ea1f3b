"""GET nodes: may work go there, and if not, why not."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from backend.answers import verdicts
from backend.answers.verdicts import Verdict
from backend.api.guard import Reader, watch_of
from backend.api.snapshots import snapshot_of
from backend.watch import Watch

router = APIRouter(prefix="/nodes", tags=["nodes"])


class NodeVerdict(BaseModel):
    """What a scheduler needs to know of one node."""

    node: str = Field(examples=["gpu-0412"])
    verdict: Literal["ok", "suspect", "exclude", "unknown"] = Field(
        description="unknown: never seen, dark or blind; it is not vouched for.", examples=["exclude"]
    )
    binding: bool = Field(description="True only under an exclusion that a person made or approved, or act mode made.")
    score: float | None = Field(description="How sure we are that it is broken, 0 to 1; null where nothing is known.")
    reasons: list[str] = Field(examples=[["Excluded by dana: GPU 3 fell off the bus"]])
    incidents: list[int] = Field(examples=[[812]])
    until: datetime | None = Field(description="When the exclusion ends by itself.")
    as_of: datetime


class NodeList(BaseModel):
    items: list[NodeVerdict]
    as_of: datetime


def written(verdict: Verdict) -> dict[str, Any]:
    return {
        "node": verdict.node,
        "verdict": verdict.verdict,
        "binding": verdict.binding,
        "score": verdict.score,
        "reasons": verdict.reasons,
        "incidents": verdict.incidents,
        "until": verdict.until,
        "as_of": verdict.as_of,
    }


def json(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")


Words = Annotated[list[Literal["ok", "suspect", "exclude", "unknown"]] | None, Query(alias="verdict")]


@router.get("", operation_id="list_nodes", response_model=NodeList)
async def list_nodes(
    request: Request, _: Reader, watch: Annotated[Watch, Depends(watch_of)], words: Words = None
) -> Response:
    """The verdict of every known node, in order of name; ``verdict`` keeps only these words."""
    seen = await snapshot_of(request, watch)
    found = [verdicts.verdict(seen, node) for node in sorted(seen.nodes)]
    kept = [written(v) for v in found if not words or v.verdict in words]
    return json({"items": kept, "as_of": seen.at})


@router.get("/{node}", operation_id="read_node", response_model=NodeVerdict)
async def read_node(request: Request, node: str, _: Reader, watch: Annotated[Watch, Depends(watch_of)]) -> Response:
    """The verdict of one node. A name that was never seen is ``unknown``, not an error: a scheduler asks in a prolog
    and must get an answer it can read."""
    seen = await snapshot_of(request, watch)
    return json(written(verdicts.verdict(seen, node)))
