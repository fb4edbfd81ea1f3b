"""The memory of a kernel detector: few rows, one per entity, fault kind and hardness, kept in one array."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.kernel.codes import Code
from detectors.model import Entity, Event, FaultKind, Fleet

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
        ("namespace", "U16"),
        ("code", "U32"),
        ("device", "U8"),
        ("severity", "i8"),
        ("count", "i8"),
        ("since", "f8"),
        ("last", "f8"),
        ("seq", "i8"),
        ("text", "U400"),
        ("word", "U16"),
        ("detail", "U96"),
        ("look", "U96"),
        ("jobs", "U256"),
        ("rate", "f8"),
        ("action", "U64"),
        ("mended", "f8"),
        ("ended", "?"),
        ("gone", "?"),
        ("back", "f8"),
        ("unproven", "?"),
    ]
)
#: The attribute of an event from where anybody may speak in the kernel's name.
UNPROVEN = "unproven"
#: Kinds of entities that belong to no one node.
NOWHERE = frozenset({"fs", "job", "cluster"})


@dataclass(slots=True)
class Row:
    """What one entity said under one kind. Times are unix s, NaN = not yet.

    slot: its row on its axis, -1 = unknown there. namespace, code, device, word: what names the fault; text, seq: its
    line. last: the newest line. rate: occurrences, each fading to nothing over ``again_s``. jobs: those it happened
    in, for the application's faults. action: what the driver asked for (Xid 154). mended: a boot, or the driver's own
    word. ended: another code said that it is over. gone, back: its series vanished after ``last``, and returned whole.
    unproven: all of its lines came where anybody may speak in the kernel's name.
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
    namespace: str
    code: str
    device: str
    severity: int
    count: int
    since: float
    last: float
    seq: int
    text: str
    word: str
    detail: str
    look: str
    jobs: str = ""
    rate: float = 1.0
    action: str = ""
    mended: float = math.nan
    ended: bool = False
    gone: bool = False
    back: float = math.nan
    unproven: bool = False

    @property
    def owner(self) -> tuple[str, str]:
        return (self.entity_kind, self.entity_id)

    @property
    def says(self) -> tuple[str, str]:
        return (self.namespace, self.code)

    def entity(self, fleet: Fleet) -> Entity:
        """Under its name of now where the fleet knows it, else under the name it had."""
        slot = fleet.slots.get(self.owner)
        if slot is not None and self.entity_kind in fleet.axes:
            return fleet.entity(self.entity_kind, slot)
        node = "" if self.entity_kind in NOWHERE else self.node
        return Entity(fleet.cluster, self.entity_kind, self.entity_id, self.entity_name, node)

    def hear(self, event: Event, code: Code, coalesce_s: float) -> bool:
        """Take one more line in. True when it is another occurrence, not the same one said twice."""
        again = event.at - self.last > coalesce_s
        self.unproven = self.unproven and UNPROVEN in event.attrs
        if self.ended and event.at >= self.last:
            self.ended, self.since, again = False, event.at, True
        if again:
            self.count += 1
            self.rate = self.rate * max(0.0, 1.0 - (event.at - self.last) / code.again_s if code.again_s else 0.0) + 1.0
        if code.severity > self.severity:
            self.severity = int(code.severity)
            self.name(event, code)
        self.since, self.last = min(self.since, event.at), max(self.last, event.at)
        if not event.at < self.mended:
            self.mended = math.nan
        if not event.at < self.back:
            self.gone, self.back = False, math.nan
        return again

    def name(self, event: Event, code: Code) -> None:
        """This line is the one that names the fault."""
        self.namespace, self.code, self.device = event.namespace, event.code, code.device
        self.text, self.seq, self.word = event.text, event.seq, event.attrs.get("severity", "")
        self.detail, self.look = detail_of(event), _look(event)


@dataclass(slots=True)
class KernelState:
    """``rows``: structured array of dtype ROW, sparse; its order carries no meaning. ``ticks``: int64[1], how many
    ticks with telemetry were seen: without any, nothing can be waited for. ``booted``: float64[nodes], when each row
    of the node axis last came up (unix s, NaN = not seen)."""

    rows: NDArray[Any]
    ticks: NDArray[np.int64]
    booted: NDArray[np.float64]


def fitted(booted: NDArray[np.float64], fleet: Fleet) -> NDArray[np.float64]:
    """As long as the node axis, also where that changed unannounced."""
    count = len(fleet.axes["node"]) if "node" in fleet.axes else 0
    if len(booted) == count:
        return booted
    out = np.full(count, np.nan)
    out[: len(booted)] = booted[:count]
    return out


def unpacked(state: KernelState) -> list[Row]:
    return [Row(*record) for record in state.rows.tolist()]


def ordered(rows: Iterable[Row]) -> list[Row]:
    """In one order whatever came first, so that equal memories are equal arrays and tell the same."""
    return sorted(rows, key=lambda row: (row.node, *row.owner, row.kind, row.hard, row.secondary, *row.says))


def packed(rows: Iterable[Row]) -> NDArray[Any]:
    return np.array([tuple(getattr(row, name) for name in ROW.names or ()) for row in rows], ROW)


def new_row(event: Event, entity: Entity, code: Code) -> Row:
    return Row(
        entity_kind=entity.kind,
        entity_id=entity.id,
        entity_name=str(entity),
        node=entity.host or event.entity.host,
        place=event.attrs.get("pci", "") if entity.kind == "node" and code.scope == "gpu" else "",
        slot=-1,
        kind=code.kind,
        hard=code.hard,
        secondary=code.secondary,
        namespace=event.namespace,
        code=event.code,
        device=code.device,
        severity=int(code.severity),
        count=1,
        since=event.at,
        last=event.at,
        seq=event.seq,
        text=event.text,
        word=event.attrs.get("severity", ""),
        detail=detail_of(event),
        look=_look(event),
        unproven=UNPROVEN in event.attrs,
    )


def _look(event: Event) -> str:
    """What to look into; where that depends on a driver's version that is not known, both readings."""
    attrs = event.attrs
    either = f"{attrs['old']}|{attrs['new']}" if "old" in attrs and "new" in attrs else ""
    return either or attrs.get("look", "") or attrs.get("meaning", "")


#: What of a line stands in the sentence, best first.
_DETAILS = (
    "server",
    "victim",
    "task",
    "dimm",
    "block",
    "ring",
    "device",
    "name",
    "disk",
    "member",
    "cpu",
    "slot",
    "what",
)


def detail_of(event: Event) -> str:
    """The part, process or server that a line names, for the sentence."""
    if event.namespace == "xid":
        return event.attrs.get("link", "")
    if event.namespace in ("sxid", "fm"):
        return f"link {event.attrs['link']}" if "link" in event.attrs else ""
    found = next((name for name in _DETAILS if event.attrs.get(name)), "")
    return f"processor {event.attrs[found]}" if found == "cpu" else event.attrs.get(found, "")


def moved(row: Row, old: Fleet, new: Fleet) -> Row | None:
    """The row for another fleet: it follows the id that its slot has now; gone with its device and its node."""
    axis = old.axes.get(row.entity_kind)
    if axis is not None and 0 <= row.slot < len(axis):
        row.entity_id = axis.ids[row.slot]
    slot = new.slots.get(row.owner)
    known = row.owner in old.slots or row.node in old.nodes
    if slot is None and known and row.node not in new.nodes:
        return None
    row.slot = -1 if slot is None else slot
    return row
