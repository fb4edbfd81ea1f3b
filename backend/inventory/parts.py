"""Ports, mounts and NFS calls of nodes: rows that are named by their place, and share the fate of their node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from backend.facts import DeviceLabel
from backend.inventory.journal import Journal, Part, Place
from backend.inventory.places import Places
from backend.model.cluster import Device
from detectors import fleet

#: Kinds of part, and how many of each one node may have: what passes by must not fill the memory.
MOST: dict[str, int] = {"nic": 64, "mount": 64, "mount_op": 128}


@dataclass(slots=True)
class _Rows:
    """The rows of one axis in the order of their slots, and by (node, index or export, operation)."""

    listed: list[Part] = field(default_factory=list)
    known: dict[tuple[str, str, str], Part] = field(default_factory=dict)
    by_node: Counter[str] = field(default_factory=Counter)
    drawn: fleet.Parts | None = None


class Parts:
    """Every port, mount and call that was ever met."""

    def __init__(self, journal: Journal, places: Places) -> None:
        self._journal = journal
        self._places = places
        self._rows: dict[str, _Rows] = {kind: _Rows() for kind in MOST}
        self._mounted: dict[tuple[str, str], str] = {}

    def __iter__(self) -> Iterator[Part]:
        for rows in self._rows.values():
            yield from rows.listed

    def slot(self, label: DeviceLabel) -> int | None:
        rows = self._rows.get(label.axis)
        place = self._places.known(label.node) if rows is not None else None
        part = rows.known.get((place.name, *_what(label))) if rows is not None and place is not None else None
        return part.slot if part is not None else None

    def named(self, kind: str, node: str) -> list[str]:
        """What the parts of a kind on a node are called."""
        rows = self._rows[kind]
        return [index for name, index, _ in rows.known if name == node] if rows.by_node[node] else []

    def knows(self, label: DeviceLabel, place: Place) -> bool:
        """Whether a label of this node says nothing that is new."""
        rows = self._rows.get(label.axis)
        known = rows.known.get((place.name, *_what(label))) if rows is not None else None
        told = not (label.export and label.index) or (place.name, label.export) in self._mounted
        return known is not None and known.export == label.export and told

    def learn(self, label: DeviceLabel, place: Place, now: datetime) -> None:
        """The row that a label of this node speaks of, made where it is new."""
        rows = self._rows[label.axis]
        known = rows.known.get((place.name, *_what(label)))
        if label.export and label.index:
            self._mount(place.name, label)
        if known is not None and known.export == label.export:
            return
        if known is not None:  # something else is mounted there now
            known.export, rows.drawn = label.export, None
            self._journal.note(known, rows_moved=False, redraw=True)
        elif rows.by_node[place.name] >= MOST[label.axis]:
            self._journal.rejected[f"more than {MOST[label.axis]} of a kind on one node: {label.axis}"] += 1
        else:
            operation = label.operation or label.index
            part = Part(len(rows.listed), label.axis, place, operation, label.export, now)
            self._add(rows, part)
            self._journal.note(part, rows_moved=True)

    def restore(self, row: Device, cluster: str) -> None:
        """Take in a row of the store; its node is known."""
        rows = self._rows[row.kind]
        part = Part(len(rows.listed), row.kind, self._places[row.node], row.index, row.model, row.first_seen)
        if part.key not in rows.known:
            self._add(rows, part)
            self._journal.epoch += 1
            if row.kind == "mount" and row.model:
                self._mounted.setdefault((row.node, row.model), row.index)
        rows.known[part.key].saved = part.row(cluster)

    def drawn(self) -> list[fleet.Parts]:
        """The rows as a Fleet is drawn of them."""
        for kind, rows in self._rows.items():
            if rows.drawn is None:
                rows.drawn = self._draw(kind, rows.listed)
        return [rows.drawn for rows in self._rows.values() if rows.drawn is not None]

    def _add(self, rows: _Rows, part: Part) -> None:
        rows.listed.append(part)
        rows.known[part.key] = part
        rows.by_node[part.place.name] += 1
        rows.drawn = None

    def _mount(self, node: str, label: DeviceLabel) -> None:
        """Where an export is mounted; of several places the first that was told."""
        if (node, label.export) not in self._mounted:
            self._mounted[node, label.export] = label.index
            self._rows["mount_op"].drawn = None
            self._journal.stale = True

    def _draw(self, kind: str, parts: list[Part]) -> fleet.Parts:
        names = [part.id if kind != "mount_op" else self._mount_of(part) for part in parts]
        return fleet.Parts(
            kind,
            [part.id for part in parts],
            names,
            np.array([part.place.slot for part in parts], np.int32),
            [part.export for part in parts],
            [part.index for part in parts],
        )

    def _mount_of(self, part: Part) -> str:
        """The mount that a call goes to, as people read it; by its export until the mount point is told."""
        node = part.place.name
        return f"{node}/mount:{self._mounted.get((node, part.export), part.export)}"


def _what(label: DeviceLabel) -> tuple[str, str]:
    return (label.export, label.operation) if label.axis == "mount_op" else (label.index, "")
