"""The cluster as we know it: clusters, nodes, devices, attempts of jobs and where they run."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, Index, SQLModel

from backend.model.base import row_id, stored, when


class Cluster(SQLModel, table=True):
    """One cluster, and its kill switch: while set, no order is sent and no decision is approved."""

    name: str = Field(primary_key=True)
    simulated: bool = False
    kill_switch: bool = False
    kill_switch_by: str = ""
    kill_switch_at: datetime | None = when(default=None)


class Node(SQLModel, table=True):
    """A node; ``state`` and ``flags`` are the scheduler's words, empty while no scheduler has told us."""

    cluster: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    rack: str = ""
    switch: str = ""
    model: str = ""
    expected_gpus: int = 0
    state: str = ""
    flags: list[str] = stored(list)
    reason: str = ""
    reason_owner: str = ""
    boot_at: datetime | None = when(default=None)
    state_at: datetime | None = when(default=None)
    first_seen: datetime = when()
    last_seen: datetime = when()
    retired_at: datetime | None = when(default=None)


class Device(SQLModel, table=True):
    """A device: ``id`` is its UUID or serial, else ``pci:<node>:<address>``. ``index`` may change, ``id`` never."""

    cluster: str = Field(primary_key=True)
    id: str = Field(primary_key=True)
    kind: str = "gpu"
    node: str = Field(index=True)
    index: str = ""
    pci: str = ""
    model: str = ""
    first_seen: datetime = when()
    last_seen: datetime = when()
    retired_at: datetime | None = when(default=None)


class Attempt(SQLModel, table=True):
    """One attempt of a job as its scheduler told it: (job, restart)."""

    cluster: str = Field(primary_key=True)
    job: str = Field(primary_key=True)
    restart: int = Field(primary_key=True)
    run: str = Field(default="", index=True)
    user: str = ""
    state: str = Field(default="UNKNOWN", index=True)
    submit: datetime | None = when(default=None)
    eligible: datetime | None = when(default=None)
    start: datetime | None = when(default=None)
    end: datetime | None = when(default=None)
    gpus_per_node: int = 0
    excluded: list[str] = stored(list)
    attrs: dict[str, Any] = stored(dict)


class Allocation(SQLModel, table=True):
    """A node held by an attempt for a span; ``end`` None = still held."""

    __table_args__ = (Index("ix_allocation_node", "cluster", "node", "start"),)
    id: int | None = row_id()
    cluster: str
    job: str = Field(index=True)
    restart: int
    node: str
    start: datetime = when()
    end: datetime | None = when(default=None)
