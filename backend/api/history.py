"""GET history, allocations: the cluster as it was: who ran where, what sat where, what was out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from backend.answers.device_history import DeviceHistory, device_history
from backend.answers.node_history import Held, NodeHistory, held, node_history
from backend.api.guard import Reader, watch_of
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.api.words import Asked, Moment
from backend.clients import hostlist
from backend.clock import utc
from backend.facts import OutageFacts
from backend.model.actions import Exclusion, Order
from backend.model.incidents import Incident
from backend.model.past import Change, DeviceSpan
from backend.store import allocations as spans
from backend.store.cluster import devices
from backend.store.spans import device_at
from backend.watch import Watch

router = APIRouter()

WatchOf = Annotated[Watch, Depends(watch_of)]
Since = Annotated[Moment | None, Query(description="From then on; 7 days back where it is left out.")]
Until = Annotated[Moment | None, Query(description="Up to then; now where it is left out.")]
#: How far back a history reaches where nobody says, and at most.
USUAL, LONGEST = timedelta(days=7), timedelta(days=400)


class HeldRow(BaseModel):
    """An attempt on a node for a span."""

    node: str = Field(examples=["gpu-0412"])
    gpus: list[int] = Field(description="Indices held; empty: not known, so any of them.", examples=[[0, 1, 2, 3]])
    job: str = Field(examples=["48213"])
    restart: int
    life: int = Field(description="How often the id was given anew before; the newest is the highest.")
    run: str
    user: str
    state: str = Field(examples=["RUNNING"])
    start: datetime
    end: datetime | None = Field(description="null: still held.")


class Place(BaseModel):
    node: str
    gpus: list[int]


class Allocations(BaseModel):
    items: list[HeldRow]
    device: str | None = Field(description="Who had that index on that node then; null where nobody knows.")
    peers: list[Place] = Field(description="What else the attempts of that GPU or node held then, itself left out.")
    hostlist: str = Field(description="The peers' nodes.", examples=["gpu-[0400-0411,0413]"])
    at: datetime


class SpanRow(BaseModel):
    start: datetime
    end: datetime | None
    text: str
    by: str
    ref: str = Field(description="incident:812, exclusion:3, order:45 or the source.")


class SeatRow(BaseModel):
    device: str
    node: str
    index: str
    pci: str
    start: datetime
    end: datetime | None


class ChangeItem(BaseModel):
    """One thing that became another."""

    id: int | None
    at: datetime
    node: str = Field(description="Empty: the whole cluster, or a job's processes.")
    device: str
    job: str
    item: str = Field(examples=["driver"])
    before: str = Field(description="Empty: nobody knew.", examples=["570.86.15"])
    value: str = Field(examples=["575.51.03"])
    source: str
    text: str
    by: str


class History(BaseModel):
    """Lanes of one node, each oldest first."""

    node: str
    since: datetime
    until: datetime
    jobs: list[HeldRow]
    incidents: list[SpanRow]
    exclusions: list[SpanRow]
    outages: list[SpanRow]
    maintenances: list[SpanRow]
    orders: list[SpanRow]
    devices: list[SeatRow]
    places: list[SpanRow] = Field(description="Rack, leaf and NVLink domain.")
    changes: list[ChangeItem]
    versions: dict[str, dict[str, str]] = Field(description="Item to source to what it runs now.")


class PastOfDevice(BaseModel):
    """Lanes of one device, each oldest first; what belongs to a node only while it sat there."""

    device: str
    since: datetime
    until: datetime
    places: list[SeatRow]
    jobs: list[HeldRow]
    incidents: list[SpanRow]
    exclusions: list[SpanRow]
    outages: list[SpanRow]
    changes: list[ChangeItem]


class DeviceItem(BaseModel):
    device: str
    node: str
    index: str
    pci: str
    model: str
    retired_at: datetime | None


class DeviceList(BaseModel):
    items: list[DeviceItem]


@router.get("/nodes/{node}/history", operation_id="node_history", response_model=History, tags=["nodes"])
def read_node_history(node: Asked, _: Reader, watch: WatchOf, since: Since = None, until: Until = None) -> Response:
    """Who ran on a node, what broke, when it was out and by whose word, which cards sat in it, what changed."""
    start, end = span_of(watch, since, until)
    with watch.store.read() as session:
        found = node_history(session, watch.cluster, node, start, end)
    if not found.known:
        raise Problem(404, f"No node {node!r} was ever known in cluster {watch.cluster}.")
    return json(of_node(found))


@router.get("/devices", operation_id="list_devices", response_model=DeviceList, tags=["devices"])
def list_devices(_: Reader, watch: WatchOf, node: Asked = "") -> Response:
    """Every GPU ever met, in the order of meeting; ``node`` keeps that node's."""
    with watch.store.read() as session:
        found = devices(session, watch.cluster, node)
    names = ("node", "index", "pci", "model", "retired_at")
    return json({"items": [{"device": row.id} | {name: getattr(row, name) for name in names} for row in found]})


@router.get("/devices/{device}/history", operation_id="device_history", response_model=PastOfDevice, tags=["devices"])
def read_device_history(device: Asked, _: Reader, watch: WatchOf, since: Since = None, until: Until = None) -> Response:
    """Where a GPU sat (by UUID or serial, else ``pci:<node>:<address>``), who ran on it there, what broke."""
    start, end = span_of(watch, since, until)
    with watch.store.read() as session:
        found = device_history(session, watch.cluster, device, start, end)
    if not found.known:
        raise Problem(404, f"No device {device!r} was ever known in cluster {watch.cluster}.")
    return json(of_device(found))


@router.get("/allocations", operation_id="list_allocations", response_model=Allocations, tags=["allocations"])
def allocations(
    _: Reader,
    watch: WatchOf,
    node: Annotated[Asked, Query(description="The node; or say a job.")] = "",
    gpu: Annotated[
        int | None, Query(ge=0, le=65_535, description="Index of one GPU on it; all where it is left out.")
    ] = None,
    job: Annotated[Asked, Query(description="Every span of this job, whatever the time.")] = "",
    at: Annotated[Moment | None, Query(description="At that moment; now where it is left out.")] = None,
) -> Response:
    """Who held this GPU at 03:12, and which others worked with it then. An attempt that never said which GPUs it held
    may have held each of its nodes'."""
    if bool(node) == bool(job):
        raise Problem(422, "Say node= (with gpu= and at=), or job=.")
    moment = at or watch.clock.now()
    with watch.store.read() as session:
        if job:
            found = held(session, watch.cluster, spans.allocations(session, watch.cluster, [job]))
            return json({"items": [written(one) for one in found], "device": None} | beside([], moment))
        on = spans.holders(session, watch.cluster, node, moment, gpu)
        found = held(session, watch.cluster, on)
        others = [p for one in on for p in spans.beside(session, one, moment) if gpu is not None or p.node != node]
        seat = device_at(session, watch.cluster, node, gpu, moment) if gpu is not None else None
    peers = [{"node": p.node, "gpus": [i for i in p.gpus if p.node != node or i != gpu]} for p in others]
    kept = [p for p, row in zip(peers, others, strict=True) if p["gpus"] or not row.gpus]
    body = {"items": [written(one) for one in found], "device": seat.device if seat is not None else None}
    return json(body | beside(kept, moment))


def beside(peers: Sequence[dict[str, Any]], at: datetime) -> dict[str, Any]:
    return {"peers": list(peers), "hostlist": hostlist.render(sorted({p["node"] for p in peers})), "at": at}


def span_of(watch: Watch, since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    """Raises Problem 422 for a span that ends before it begins, or is too long for one answer."""
    end = until or watch.clock.now()
    start = since or end - USUAL
    if start > end:
        raise Problem(422, "since lies after until.")
    if end - start > LONGEST:
        raise Problem(422, f"Ask for at most {LONGEST.days} days at once.")
    return start, end


# --- written --------------------------------------------------------------------------------------------------------


def written(one: Held) -> dict[str, Any]:
    span, attempt = one.span, one.attempt
    return {
        "node": span.node,
        "gpus": list(span.gpus),
        "job": span.job,
        "restart": span.restart,
        "life": span.life,
        "run": (attempt.run or attempt.name) if attempt is not None else "",
        "user": attempt.user if attempt is not None else "",
        "state": attempt.state if attempt is not None else "UNKNOWN",
        "start": span.start,
        "end": span.end,
    }


def of_node(found: NodeHistory) -> dict[str, Any]:
    versions: dict[str, dict[str, str]] = {}
    for row in found.versions:
        if not row.job:
            versions.setdefault(f"{row.item} {row.device}".strip(), {})[row.source] = row.value
    return {
        "node": found.name,
        "since": found.start,
        "until": found.end,
        "jobs": [written(one) for one in found.jobs],
        "incidents": [of_incident(row) for row in found.incidents],
        "exclusions": [of_exclusion(row) for row in found.exclusions],
        "outages": [of_outage(one) for one in found.outages],
        "maintenances": [
            line(utc(m.start), utc(m.end) if m.end is not None else None, m.text or m.name, "", m.source)
            for m in found.maintenances
        ],
        "orders": [of_order(row) for row in found.orders],
        "devices": [of_seat(row) for row in found.devices],
        "places": [line(p.start, p.end, seat_words(p.rack, p.switch, p.clique), "", "topology") for p in found.places],
        "changes": [of_change(row) for row in found.changes],
        "versions": versions,
    }


def of_device(found: DeviceHistory) -> dict[str, Any]:
    return {
        "device": found.id,
        "since": found.start,
        "until": found.end,
        "places": [of_seat(row) for row in found.places],
        "jobs": [written(one) for one in found.jobs],
        "incidents": [of_incident(row) for row in found.incidents],
        "exclusions": [of_exclusion(row) for row in found.exclusions],
        "outages": [of_outage(one) for one in found.outages],
        "changes": [of_change(row) for row in found.changes],
    }


def seat_words(rack: str, switch: str, clique: str) -> str:
    said = (("rack", rack), ("leaf", switch), ("NVLink domain", clique))
    return ", ".join(f"{what} {name}" for what, name in said if name)


def line(start: datetime, end: datetime | None, text: str, by: str, ref: str) -> dict[str, Any]:
    return {"start": start, "end": end, "text": text, "by": by, "ref": ref}


def of_incident(row: Incident) -> dict[str, Any]:
    return line(row.opened_at, row.closed_at, row.headline, row.acknowledged_by or "", f"incident:{row.id}")


def of_exclusion(row: Exclusion) -> dict[str, Any]:
    return line(row.created_at, row.lifted_at or row.until, row.reason, row.owner, f"exclusion:{row.id}")


def of_order(row: Order) -> dict[str, Any]:
    text = f"{row.verb} {row.node}: {row.state}{f', {row.outcome}' if row.outcome else ''}"
    return line(row.created_at, row.ended_at, text, "watchkeeper", f"order:{row.id}")


def of_outage(one: OutageFacts) -> dict[str, Any]:
    text = f"{one.state}: {one.reason}" if one.reason else one.state
    return line(utc(one.start), utc(one.end) if one.end is not None else None, text, one.user, one.source)


def of_seat(row: DeviceSpan) -> dict[str, Any]:
    names = ("device", "node", "index", "pci", "start", "end")
    return {name: getattr(row, name) for name in names}


def of_change(row: Change) -> dict[str, Any]:
    names = ("id", "at", "node", "device", "job", "item", "before", "value", "source", "text", "by")
    return {name: getattr(row, name) for name in names}
