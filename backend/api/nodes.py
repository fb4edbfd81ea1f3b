"""GET nodes: may work go there, and if not, why not."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from backend.api.guard import Reader, watch_of
from backend.api.scopes import scopes_of
from backend.api.waiting import Wait, answered
from backend.api.words import Asked
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


def json(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")


#: What a route with an ETag may answer beside its body.
CONDITIONAL: dict[int | str, dict[str, Any]] = {304: {"description": "If-None-Match names this very answer."}}
Words = Annotated[list[Literal["ok", "suspect", "exclude", "unknown"]] | None, Query(alias="verdict")]


@router.get("", operation_id="list_nodes", response_model=NodeList, responses=CONDITIONAL)
async def list_nodes(
    request: Request, _: Reader, watch: Annotated[Watch, Depends(watch_of)], words: Words = None, wait_s: Wait = 0.0
) -> Response:
    """The verdict of every known node, in order of name; ``verdict`` keeps only these words."""
    wanted = frozenset(words or ())
    return await answered(request, watch, lambda ready: ready.every(wanted), wait_s)


@router.get("/{node}", operation_id="read_node", response_model=NodeVerdict, responses=CONDITIONAL)
async def read_node(
    request: Request,
    node: str,
    _: Reader,
    watch: Annotated[Watch, Depends(watch_of)],
    job: Annotated[Asked, Query(description="Whose work it is: a hold may keep away the work of some only.")] = "",
    wait_s: Wait = 0.0,
) -> Response:
    """The verdict of one node. A name that was never seen is ``unknown``, not an error: a scheduler asks in a prolog
    and must get an answer it can read."""
    scopes = await scopes_of(request, watch, job)
    return await answered(request, watch, lambda ready: ready.page(node, scopes), wait_s)
