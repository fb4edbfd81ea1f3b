"""What was: where devices and nodes stood, what they ran, when they were out, and how they are wired."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Field, Index, SQLModel

from backend.model.base import row_id, stored, when


class DeviceSpan(SQLModel, table=True):
    """A device in one place; ``end`` None = it sits there now. A new index or address begins a new span."""

    __table_args__ = (
        Index("ix_devicespan_device", "cluster", "device", "start"),
        Index("ix_devicespan_node", "cluster", "node", "start"),
    )
    id: int | None = row_id()
    cluster: str
    device: str
    node: str
    index: str = ""
    pci: str = ""
    start: datetime = when()
    end: datetime | None = when(default=None)


class NodeSpan(SQLModel, table=True):
    """A node at one place of the topology; ``end`` None = it stands there now."""

    __table_args__ = (Index("ix_nodespan_node", "cluster", "node", "start"),)
    id: int | None = row_id()
    cluster: str
    node: str
    rack: str = ""
    switch: str = ""
    clique: str = ""
    start: datetime = when()
    end: datetime | None = when(default=None)


class Version(SQLModel, table=True):
    """What a node, a device of it or a job's processes run now, by the word of one source.

    Two sources spell the same version in two ways: each has its own row, so that neither looks like a change.
    """

    cluster: str = Field(primary_key=True)
    node: str = Field(primary_key=True)
    device: str = Field(default="", primary_key=True)
    job: str = Field(default="", primary_key=True)
    item: str = Field(primary_key=True)
    source: str = Field(default="", primary_key=True)
    value: str = ""
    since: datetime = when()


class Change(SQLModel, table=True):
    """One thing that became another: ``before`` empty = nobody knew what it was. Never altered, told once."""

    __table_args__ = (
        Index("ix_change_at", "cluster", "at"),
        Index("ix_change_node", "cluster", "node", "at"),
    )
    id: int | None = row_id()
    cluster: str
    node: str
    device: str = ""
    job: str = ""
    item: str
    value: str
    before: str = ""
    at: datetime = when()
    source: str = ""
    text: str = ""
    by: str = ""


class Outage(SQLModel, table=True):
    """A span in which a node was out, by the word of ``source``; "observed" = we saw its scheduler say so."""

    cluster: str = Field(primary_key=True)
    node: str = Field(primary_key=True)
    source: str = Field(primary_key=True)
    start: datetime = when(primary_key=True)
    end: datetime | None = when(default=None)
    state: str = ""
    reason: str = ""
    user: str = ""


class Maintenance(SQLModel, table=True):
    """A window that somebody announced; ``name`` and ``source`` are its identity."""

    cluster: str = Field(primary_key=True)
    source: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    nodes: list[str] = stored(list)
    start: datetime = when()
    end: datetime | None = when(default=None)
    text: str = ""


class Cable(SQLModel, table=True):
    """One tie of a node: a port to a leaf (kind ib, eth), a mount to its server (kind fs). ``end`` None = it holds."""

    __table_args__ = (
        Index("ix_cable_node", "cluster", "node"),
        Index("ix_cable_peer", "cluster", "peer"),
    )
    id: int | None = row_id()
    cluster: str
    kind: str
    node: str
    port: str
    peer: str
    peer_port: str = ""
    rail: str = ""
    source: str = ""
    start: datetime = when()
    end: datetime | None = when(default=None)
