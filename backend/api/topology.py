"""GET topology: racks, leaves, rails, NVLink domains and file servers, as far as anybody told."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from backend.answers.topology import topology
from backend.api.guard import Reader
from backend.api.history import WatchOf
from backend.api.nodes import json

router = APIRouter(prefix="/topology", tags=["topology"])


class Placed(BaseModel):
    """Where one node stands. Empty: nobody told."""

    node: str = Field(examples=["gpu-0412"])
    rack: str = Field(examples=["r12"])
    switch: str = Field(description="Its leaf.", examples=["leaf6"])
    clique: str = Field(description="Its NVLink domain.")
    model: str
    partitions: list[str]
    state: str = Field(description="The scheduler's word.", examples=["idle"])


class Group(BaseModel):
    kind: str = Field(description="rack, switch, clique, rail, fs or partition.", examples=["rack"])
    name: str = Field(examples=["r12"])
    count: int
    out: int = Field(description="How many of its nodes the scheduler has out.")
    hostlist: str = Field(examples=["gpu-[0401-0408]"])
    rails: list[str] = Field(description="Of a leaf: the rails that its ports belong to.")


class Graph(BaseModel):
    nodes: list[Placed]
    groups: list[Group]
    coverage: dict[str, int] = Field(
        description="Of how many nodes the place of each kind is known; ``nodes`` is all of them.",
        examples=[{"nodes": 512, "rack": 512, "switch": 480, "clique": 0, "rail": 0, "fs": 0}],
    )
    cables: int = Field(description="Known ties of ports and mounts.")
    as_of: datetime


@router.get("", operation_id="read_topology", response_model=Graph)
def read_topology(_: Reader, watch: WatchOf) -> Response:
    """How the cluster hangs together. Partial is fine: ``coverage`` says how much of it is known."""
    with watch.store.read() as session:
        found = topology(session, watch.cluster)
    names = ("rack", "switch", "clique", "model", "partitions", "state")
    return json(
        {
            "nodes": [{"node": row.name} | {name: getattr(row, name) for name in names} for row in found.nodes],
            "groups": [
                {
                    "kind": part.kind,
                    "name": part.name,
                    "count": len(part.nodes),
                    "out": part.out,
                    "hostlist": part.hostlist,
                    "rails": list(part.rails),
                }
                for part in found.parts
            ],
            "coverage": {"nodes": found.coverage.nodes, **found.coverage.placed},
            "cables": found.cables,
            "as_of": watch.clock.now(),
        }
    )
