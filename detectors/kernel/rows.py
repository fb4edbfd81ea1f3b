"""The memory of the kernel detector: few rows, one per entity, fault kind and hardness, kept in one array."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.model import Entity, Event, FaultKind, Fleet, Severity

#: One row as saved. Text has a fixed width; ids longer than this do not occur (host names end at 253 characters).
ROW = np.dtype(
    [
        ("entity_kind", "U16"),
        ("entity_id", "U256"),
        ("entity_name", "U272"),
        ("node", "U256"),
        ("place", "U16"),
        ("slot", "i8"),
        ("kind", "U40"),
        ("hard", "?"),
        ("secondary", "?"),
        ("code", "i8"),
        ("severity", "i8"),
        ("count", "i8"),
        ("since", "f8"),
        ("last", "f8"),
        ("seq", "i8"),
        ("text", "U400"),
        ("word", "U16"),
        ("action", "U64"),
        ("mended", "f8"),
        ("gone", "?"),
        ("back", "f8"),
    ]
)


@dataclass(slots=True)
class Row:
    """What one entity said under one kind. Times are unix s, NaN = not yet.

    slot: its row on its axis, -1 = unknown there. code, text, seq: the line that names the fault. last: the newest
    line. action: what the driver asked for (Xid 154). mended: a boot, or the driver's own word. gone, back: its
    series vanished after ``last``, and returned whole.
    """

    entity_kind: str
    entity_id: str
    entity_name: str
    node: str
    place: str
    slot: int
    kind: FaultKind
    hard: bool
    secondary: bool
    code: int
    severity: int
    count: int
    since: float
    last: float
    seq: int
    text: str
    word: str
    action: str = ""
    mended: float = math.nan
    gone: bool = False
    back: float = math.nan

    @property
    def owner(self) -> tuple[str, str]:
        return (self.entity_kind, self.entity_id)

    def entity(self, fleet: Fleet) -> Entity:
        """Under its name of now where the fleet knows it, else under the name it had."""
        slot = fleet.slots.get(self.owner)
        if slot is not None and self.entity_kind in fleet.axes:
            return fleet.entity(self.entity_kind, slot)
        return Entity(fleet.cluster, self.entity_kind, self.entity_id, self.entity_name, self.node)

    def hear(self, event: Event, severity: Severity, code: int, coalesce_s: float) -> bool:
        """Take one more line in. True when it is another occurrence, not the same one said twice."""
        again = event.at - self.last > coalesce_s
        self.count += again
        if severity > self.severity:
            self.severity, self.code = int(severity), code
            self.text, self.seq, self.word = event.text, event.seq, event.attrs.get("severity", "")
        self.since, self.last = min(self.since, event.at), max(self.last, event.at)
        if not event.at < self.mended:
            self.mended = math.nan
        if not event.at < self.back:
            self.gone, self.back = False, math.nan
        return again


@dataclass(slots=True)
class KernelState:
    """``rows``: structured array of dtype ROW, sparse; its order carries no meaning."""

    rows: NDArray[Any]


def unpacked(state: KernelState) -> list[Row]:
    return [Row(*record) for record in state.rows.tolist()]


def ordered(rows: Iterable[Row]) -> list[Row]:
    """In one order whatever came first, so that equal memories are equal arrays and tell the same."""
    return sorted(rows, key=lambda row: (row.node, *row.owner, row.kind, row.hard, row.secondary))


def packed(rows: Iterable[Row]) -> NDArray[Any]:
    return np.array([tuple(getattr(row, name) for name in ROW.names or ()) for row in rows], ROW)


def new_row(event: Event, kind: FaultKind, severity: Severity, code: int, *, hard: bool, secondary: bool) -> Row:
    entity = event.entity
    return Row(
        entity_kind=entity.kind,
        entity_id=entity.id,
        entity_name=str(entity),
        node=entity.host,
        place=event.attrs.get("pci", "") if entity.kind == "node" else "",
        slot=-1,
        kind=kind,
        hard=hard,
        secondary=secondary,
        code=code,
        severity=int(severity),
        count=1,
        since=event.at,
        last=event.at,
        seq=event.seq,
        text=event.text,
        word=event.attrs.get("severity", ""),
    )


def moved(row: Row, old: Fleet, new: Fleet) -> Row | None:
    """The row for another fleet: it follows the id that its slot has now; gone with its device and its node."""
    axis = old.axes.get(row.entity_kind)
    if axis is not None and 0 <= row.slot < len(axis):
        row.entity_id = axis.ids[row.slot]
    slot = new.slots.get(row.owner)
    if slot is None and row.owner in old.slots and row.node not in new.nodes:
        return None
    row.slot = -1 if slot is None else slot
    return row
