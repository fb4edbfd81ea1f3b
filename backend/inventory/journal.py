"""What has changed in memory since it was last written, and how often rows came or went."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from backend.facts import DeviceLabel

#: What is kept of a node, and of a card, beside what only concerns this process.
PLACE: tuple[str, ...] = ("name", "rack", "switch", "clique", "model", "expected_gpus", "state", "reason")
PLACE += ("reason_owner", "boot_at", "state_at", "first_seen", "retired_at")
LISTS: tuple[str, ...] = ("flags", "partitions", "listed_by")
CARD = ("id", "index", "pci", "model", "first_seen", "retired_at")


@dataclass(slots=True)
class Missing:
    """For how many lists of one source a node has been missing, and since when (unix s)."""

    since: float
    lists: int = 0


@dataclass(slots=True, eq=False)
class Place:
    """One node, and the row it was last written as (None: not written). ``heard``, ``asked``: unix s."""

    slot: int
    name: str
    first_seen: datetime
    heard: float
    rack: str = ""
    switch: str = ""
    clique: str = ""
    model: str = ""
    partitions: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    listed_by: tuple[str, ...] = ()
    expected_gpus: int = 0
    state: str = ""
    flags: tuple[str, ...] = ()
    reason: str = ""
    reason_owner: str = ""
    boot_at: datetime | None = None
    state_at: datetime | None = None
    retired_at: datetime | None = None
    missing: dict[str, Missing] = field(default_factory=dict)
    saved: dict[str, Any] | None = None

    @property
    def seat(self) -> tuple[str, str, str]:
        """Where it stands: rack, leaf, NVLink domain."""
        return (self.rack, self.switch, self.clique)

    def row(self, cluster: str) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in PLACE}
        return {"cluster": cluster, **plain, **{n: list(getattr(self, n)) for n in LISTS}, "labels": dict(self.labels)}


@dataclass(slots=True, eq=False)
class Card:
    """One GPU. ``label`` is what was last said of it, ``job`` what its exporter says it works for."""

    slot: int
    id: str
    place: Place
    first_seen: datetime
    index: str = ""
    pci: str = ""
    model: str = ""
    job: str = ""
    retired_at: datetime | None = None
    label: DeviceLabel | None = None
    saved: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """``node/gpu3``; a card whose index now belongs to another goes by its address."""
        return f"{self.place.name}/{f'gpu{self.index}' if self.index else self.pci or self.id}"

    @property
    def seat(self) -> tuple[str, str, str] | None:
        """Where it sits: node, index, address; None once it was taken out."""
        return (self.place.name, self.index, self.pci) if self.retired_at is None else None

    def row(self, cluster: str) -> dict[str, Any]:
        more = {"cluster": cluster, "kind": "gpu", "node": self.place.name}
        return more | {name: getattr(self, name) for name in CARD}


@dataclass(slots=True, eq=False)
class Part:
    """A port, a mount, or a call of an NFS client. ``index``: its name, its mount point, or the call; ``export``: what
    is mounted there."""

    slot: int
    kind: str
    place: Place
    index: str
    export: str
    first_seen: datetime
    saved: dict[str, Any] | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.place.name, *((self.export, self.index) if self.kind == "mount_op" else (self.index, "")))

    @property
    def id(self) -> str:
        """``node/nic:mlx5_0``, ``node/mount:/scratch``, ``node/mount:store:/export#READ``."""
        if self.kind == "mount_op":
            return f"{self.place.name}/mount:{self.export}#{self.index}"
        return f"{self.place.name}/{self.kind}:{self.index}"

    def row(self, cluster: str) -> dict[str, Any]:
        said = {"id": self.id, "index": self.index, "pci": "", "model": self.export, "first_seen": self.first_seen}
        return {"cluster": cluster, "kind": self.kind, "node": self.place.name, "retired_at": None, **said}


Row = Place | Card | Part


class Journal:
    """Rows to be written, whether the fleet must be drawn anew, and names that were not taken, by reason."""

    def __init__(self) -> None:
        self.touched: set[Row] = set()
        self.epoch = 0
        self.stale = True
        self.rejected: Counter[str] = Counter()

    def note(self, row: Row, *, rows_moved: bool, redraw: bool = False) -> None:
        self.touched.add(row)
        if rows_moved:
            self.epoch += 1
        if rows_moved or redraw:
            self.stale = True
