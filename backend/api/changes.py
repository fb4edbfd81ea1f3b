"""changes and versions: what became another, what runs where, and who differs from its kind."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from backend.answers.odd_ones import Odd, Spread, odd_in
from backend.api.guard import Reader, Sender
from backend.api.history import ChangeItem, WatchOf, of_change
from backend.api.ingest import Plain, Taken, content_type, readable, taken
from backend.api.nodes import json
from backend.api.schemas import rows_body
from backend.api.words import Asked, Moment
from backend.clock import unix
from backend.ingest.pushed_changes import changes_batch
from backend.model.base import LARGEST_ID
from backend.store import ledger

router = APIRouter()

#: Rows of one answer at most.
MOST = 1000


class ChangeList(BaseModel):
    items: list[ChangeItem]
    before: int | None = Field(description="Ask again with this for older ones; null: there are none.")


class OddRow(BaseModel):
    """Few hold ``value`` where nearly all of their kind hold another."""

    group: str = Field(description="Model and partitions of the nodes.", examples=["H100 in train"])
    item: str = Field(examples=["driver"])
    source: str
    value: str = Field(examples=["570.86.15"])
    holders: list[str] = Field(description="Nodes, or node and device.", examples=[["gpu-0412"]])
    custom: str = Field(description="What the others hold.", examples=["575.51.03"])
    common: int = Field(description="How many hold it.", examples=[511])
    size: int = Field(description="How many there are in the group.", examples=[512])


class Held(BaseModel):
    value: str
    count: int


class SpreadRow(BaseModel):
    group: str
    item: str
    source: str
    size: int
    values: list[Held] = Field(description="Commonest first; at most 50.")


class Versions(BaseModel):
    odd: list[OddRow] = Field(description="Rarest first.")
    spread: list[SpreadRow]
    as_of: datetime


@router.get("/changes", operation_id="list_changes", response_model=ChangeList, tags=["changes"])
def list_changes(
    _: Reader,
    watch: WatchOf,
    node: Annotated[Asked, Query(description="Its own, and those of the whole cluster.")] = "",
    job: Annotated[Asked, Query(description="Those of this job's processes.")] = "",
    item: Annotated[Asked, Query(description="driver, vbios, firmware, kernel, nccl, image, bios, boot ...")] = "",
    since: Moment | None = None,
    until: Moment | None = None,
    before: Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="The id to go on from.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = 200,
) -> Response:
    """Changes, newest first. First sight of a version is no change; a reboot is one."""
    with watch.store.read() as session:
        found = ledger.changes(
            session,
            watch.cluster,
            node=node,
            job=job,
            item=item.lower(),
            since=since,
            until=until,
            before=before,
            limit=limit,
        )
    more = found[-1].id if len(found) == limit else None
    return json({"items": [of_change(row) for row in found], "before": more})


CHANGE_EXAMPLE = {
    "ts": 1772366400,
    "nodes": "gpu-[0001-0016]",
    "item": "driver",
    "value": "575.51.03",
    "text": "roll-out 17",
    "by": "ansible",
}


@router.post(
    "/changes",
    operation_id="push_changes",
    response_model=Taken,
    tags=["changes"],
    openapi_extra=rows_body("ChangeRow", CHANGE_EXAMPLE),
)
def push_changes(request: Request, _: Sender, watch: WatchOf, body: Plain) -> Response:
    """Tell of changes: rows of a configuration management, or what nodes found themselves to run. A row without nodes
    is about the whole cluster; one with ``by`` or ``text`` is kept also where nobody knew what was before."""
    now, kind = unix(watch.clock.now()), content_type(request)
    batch, rejects = readable(lambda: changes_batch(body, kind, now))
    return taken(request, watch, batch, rejects)


@router.get("/versions", operation_id="list_versions", response_model=Versions, tags=["changes"])
def versions(_: Reader, watch: WatchOf) -> Response:
    """Who runs something else than nearly all of its kind, and how each item is spread. Two sources' spellings of one
    version are never compared."""
    with watch.store.read() as session:
        odd, spread = odd_in(session, watch.cluster)
    body = {"odd": [of_odd(one) for one in odd], "spread": [of_spread(one) for one in spread]}
    return json(body | {"as_of": watch.clock.now()})


def of_odd(one: Odd) -> dict[str, Any]:
    names = ("group", "item", "source", "value", "custom", "common", "size")
    return {name: getattr(one, name) for name in names} | {"holders": list(one.holders)}


def of_spread(one: Spread) -> dict[str, Any]:
    held = [{"value": value, "count": count} for value, count in one.values[:50]]
    return {"group": one.group, "item": one.item, "source": one.source, "size": one.size, "values": held}
