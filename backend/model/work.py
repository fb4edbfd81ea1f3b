"""Who runs where: attempts of jobs, and the spans in which they hold nodes and GPUs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, Index, SQLModel

from backend.model.base import row_id, stored, when


class Attempt(SQLModel, table=True):
    """One attempt of a job: (job, life, restart).

    ``life`` counts how often the id was given anew: schedulers use ids again, and then restart 0 is somebody else's.
    The newest life has the highest number. ``outputs`` are log files; ``roles`` are [node, role] pairs.
    """

    __table_args__ = (Index("ix_attempt_start", "cluster", "start"),)
    cluster: str = Field(primary_key=True)
    job: str = Field(primary_key=True)
    life: int = Field(default=0, primary_key=True)
    restart: int = Field(primary_key=True)
    unit: str = ""
    array: str = ""
    run: str = Field(default="", index=True)
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    state: str = Field(default="UNKNOWN", index=True)
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    requeued_by: str = ""
    dependency: str = ""
    submit: datetime | None = when(default=None)
    eligible: datetime | None = when(default=None)
    start: datetime | None = when(default=None)
    end: datetime | None = when(default=None)
    limit_s: float | None = None
    gpus_per_node: int = 0
    excluded: list[str] = stored(list)
    roles: list[list[str]] = stored(list)
    outputs: list[str] = stored(list)
    source: str = ""
    asks_nodes: int = 0
    attrs: dict[str, Any] = stored(dict)


class Allocation(SQLModel, table=True):
    """A node, or some of its GPUs, held by an attempt for a span; ``end`` None = still held.

    ``gpus`` are indices on the node, empty = not known: all of them, as far as anybody can tell. ``size`` is the class
    of its length (``store.allocations``), by which a moment of long ago is found without reading the whole past.
    """

    __table_args__ = (
        Index("ix_allocation_node", "cluster", "node", "size", "start", "end"),
        Index("ix_allocation_size", "cluster", "size", "start"),
        Index("ix_allocation_job", "cluster", "job", "life", "restart"),
    )
    id: int | None = row_id()
    cluster: str
    job: str
    life: int = 0
    restart: int
    node: str
    gpus: list[int] = stored(list)
    size: int = 0
    start: datetime = when()
    end: datetime | None = when(default=None)
