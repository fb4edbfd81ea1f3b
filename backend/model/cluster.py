"""The cluster as it is now: clusters, nodes and devices. What was stands in ``past``, who ran where in ``work``."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Field, SQLModel

from backend.model.base import stored, when


class Cluster(SQLModel, table=True):
    """One cluster, and its kill switch: while set, no order is sent and no decision is approved.

    ``breaker``: why it was tripped, "" = closed; only a person resets it.
    """

    name: str = Field(primary_key=True)
    simulated: bool = False
    kill_switch: bool = False
    kill_switch_by: str = ""
    kill_switch_at: datetime | None = when(default=None)
    breaker: str = ""
    breaker_at: datetime | None = when(default=None)
    breaker_reset_by: str = ""
    breaker_reset_at: datetime | None = when(default=None)


class Node(SQLModel, table=True):
    """A node; ``state`` and ``flags`` are the scheduler's words, empty while no scheduler has told us.

    ``switch`` is its leaf, ``clique`` its NVLink domain. ``listed_by``: sources whose lists name it, or did until it
    left; ``retired_at``: when it left the fleet.
    """

    cluster: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    rack: str = ""
    switch: str = ""
    clique: str = ""
    model: str = ""
    partitions: list[str] = stored(list)
    labels: dict[str, str] = stored(dict)
    listed_by: list[str] = stored(list)
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
