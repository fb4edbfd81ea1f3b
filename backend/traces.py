"""What a run told step by step, read back for its page: its curves, its ranks, its layers and other signals.

The records lie beside those of ``trained``: ``cells`` holds any signal of a run, rank or layer; ``names`` the texts.
"""

from __future__ import annotations

import fcntl
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from backend.facts import StepFacts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: layer, signal: places among the texts of ``names``; -1 = of no layer.
CELL = np.dtype(
    [("at", "<f8"), ("step", "<i8"), ("rank", "<i4"), ("layer", "<i4"), ("signal", "<i4"), ("value", "<f8")]
)
#: Texts that one segment names, and characters of one.
MOST_NAMES, MAX_NAME = 20_000, 128
#: Records that one page reads; of more the oldest days are left out.
MOST_READ = 20_000_000
#: Values of one signal that a page reads; of more the oldest are left out.
MOST_CELLS = 2_000_000
#: Fields of a row that say whose it is, and are no signals.
_WHOSE = frozenset({"layer", "host", "gpu", "node", "ts", "epoch"})


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Rows of one run in the order of time, columns of one length. rank -1 = of the whole run; NaN = not said."""

    at: Floats
    step: Ints
    rank: NDArray[np.int32]
    loss: Floats
    grad_norm: Floats
    step_s: Floats
    tokens: Floats

    def __len__(self) -> int:
        return len(self.at)

    def take(self, which: NDArray[Any]) -> Trace:
        return Trace(*(getattr(self, name)[which] for name in self.__slots__))

    def whole(self) -> Trace:
        """The rows that speak for the run: those of no rank, else those of its lowest rank."""
        if not len(self):
            return self
        return self.take(self.rank == (-1 if (self.rank < 0).any() else self.rank.min()))


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """One signal over time: ``layer`` (a place in ``layers``) and ``rank`` say whose each value is; -1: the run's."""

    at: Floats
    step: Ints
    rank: NDArray[np.int32]
    layer: NDArray[np.int64]
    value: Floats
    layers: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.at)


def write_cells(folder: Path, rows: Sequence[StepFacts]) -> None:
    """Append the signals of these rows to a segment. Raises OSError."""
    named = [(row, row.attrs.get("layer", ""), _numbers(row)) for row in rows]
    wanted = {name for _, _, numbers in named for name in numbers}
    wanted |= {_layer(layer) for _, layer, numbers in named if numbers and layer != ""}
    if not wanted:
        return
    places = _places(folder, wanted)
    found = []
    for row, layer, numbers in named:
        of = -1 if layer == "" else places.get(_layer(layer), -1)
        rank = -1 if row.rank is None else row.rank
        found += [(row.at, row.step, rank, of, places[n], v) for n, v in numbers.items() if n in places]
    with (folder / "cells").open("ab") as file:
        if torn := file.tell() % CELL.itemsize:
            file.truncate(file.tell() - torn)
        file.write(np.array(found, CELL).tobytes())


def _layer(told: float | str) -> str:
    return (str(int(told)) if isinstance(told, float) and told.is_integer() else str(told))[:MAX_NAME]


def _numbers(row: StepFacts) -> dict[str, float]:
    """Its signals; of a row of a layer also those that a row of the run holds in fields of their own."""
    found: dict[str, float] = {}
    own = ("grad_norm", "loss") if "layer" in row.attrs else ()
    members = ("replicas_live", "replicas_total")
    told = {name: getattr(row, name) for name in (*own, *members)}
    for name, value in {**told, **row.attrs}.items():
        if value is None or name in _WHOSE or len(name) > MAX_NAME:
            continue
        if isinstance(value, int | float) or value in ("nan", "inf", "-inf"):
            found[name] = float(value)
    return found


def _places(folder: Path, wanted: Collection[str]) -> dict[str, int]:
    """The number of each text in a segment; new ones are added, as long as there is room."""
    with (folder / "names").open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        raw = file.read()
        names = _names(raw)
        known = {name: place for place, name in enumerate(names) if name}
        new = sorted(set(wanted) - set(known))[: max(0, MOST_NAMES - len(names))]
        torn = b"\n" if raw and not raw.endswith(b"\n") else b""
        if new:
            file.write(torn + b"".join(orjson.dumps(name) + b"\n" for name in new))
    return known | {name: len(names) + place for place, name in enumerate(new)}


def _names(raw: bytes) -> list[str]:
    """The texts by their places; one that a crash tore is "" and keeps its place."""
    return [_name(line) for line in raw.removesuffix(b"\n").split(b"\n")] if raw else []


def _name(line: bytes) -> str:
    try:
        return str(orjson.loads(line))
    except orjson.JSONDecodeError:
        return ""


def records(file: Path, kind: np.dtype[Any], start: float, end: float) -> NDArray[Any]:
    """The records of a segment between two times; mapped, so that what is not asked for is not held."""
    try:
        size = file.stat().st_size // kind.itemsize
        mapped = np.memmap(file, kind, "r", shape=(size,)) if size else np.empty(0, kind)
    except OSError:
        return np.empty(0, kind)
    at = np.ascontiguousarray(mapped["at"])
    inside = (at >= start) & (at <= end)
    return np.asarray(mapped) if inside.all() else np.asarray(mapped[inside])


def trace_of(folders: Sequence[Path], step: np.dtype[Any], start: float, end: float) -> Trace:
    """The rows of these segments (the newest first) from ``start`` to ``end``; a row that was told twice, the same in
    all it says, is one."""
    parts, size = [], 0
    for folder in folders:
        if size < MOST_READ:
            parts.append(records(folder / "steps", step, start, end))
            size += len(parts[-1])
    names = ("at", "step", "rank", "loss", "grad_norm", "step_s", "tokens")
    parts = parts or [np.empty(0, step)]
    found = Trace(*(np.concatenate([part[name] for part in parts]) for name in names))
    ordered = bool((found.at[1:] >= found.at[:-1]).all())
    found = found if ordered else found.take(np.argsort(found.at, kind="stable"))
    fresh = once([getattr(found, name) for name in names])
    return found if fresh.all() else found.take(fresh)


def once(columns: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
    """Which rows repeat no earlier one in all their columns; the first column is the time, and in order."""
    at = columns[0]
    tied, same = np.zeros(len(at), np.bool_), at[1:] == at[:-1]
    tied[1:] |= same
    tied[:-1] |= same
    places = np.flatnonzero(tied)
    marks = np.zeros(len(places), np.uint64)
    for column in columns:  # 64 bits of each row: of 20 million that differ two are alike once in 100,000 readings
        wide = column[places].astype(np.float64 if column.dtype.kind == "f" else np.int64, copy=False)
        marks = (marks ^ np.ascontiguousarray(wide).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        marks ^= marks >> np.uint64(29)
    first = np.unique(marks, return_index=True)[1]
    tied[places[first]] = False
    return ~tied


def signals_in(folders: Sequence[Path]) -> dict[str, bool]:
    """What these segments tell beside the fields of their rows: signal to whether it is told of layers."""
    found: dict[str, bool] = {}
    for folder in folders[:7]:
        rows, names = _cells(folder)
        if not len(rows):
            continue
        pairs = np.unique(np.stack([rows["signal"], (rows["layer"] >= 0).astype(np.int32)]), axis=1)
        for place, of_layer in pairs.T.tolist():
            if place < len(names):
                found[names[place]] = found.get(names[place], False) or bool(of_layer)
    return found


def cells_of(folders: Sequence[Path], signal: str, start: float, end: float, most: int = MOST_CELLS) -> Cells:
    """One signal of these segments (the newest first), in the order of time; of more than ``most`` values the
    newest."""
    parts, places, known, size = [], [], dict[str, int](), 0
    for folder in folders:
        rows, names = _cells(folder)
        if signal not in names or size >= most:
            continue
        rows = rows[(rows["signal"] == names.index(signal)) & (rows["at"] >= start) & (rows["at"] <= end)]
        rows = rows[size - most :]
        size += len(rows)
        used, of = np.unique(rows["layer"], return_inverse=True)
        told = [names[place] if 0 <= place < len(names) else "" for place in used.tolist()]
        place_of = [known.setdefault(name, len(known)) if name else -1 for name in told]
        parts.append(rows)
        places.append(np.array(place_of, np.int64)[of])
    rows = np.concatenate(parts) if parts else np.empty(0, CELL)
    layer = np.concatenate(places) if places else np.empty(0, np.int64)
    order = np.argsort(rows["at"], kind="stable")
    rows, layer = rows[order], layer[order]
    fresh = once([rows["at"], rows["step"], rows["rank"], layer, rows["value"]])
    rows = rows[fresh]
    return Cells(rows["at"], rows["step"], rows["rank"], layer[fresh], rows["value"], tuple(known))


def _cells(folder: Path) -> tuple[NDArray[Any], list[str]]:
    try:
        names = _names((folder / "names").read_bytes())
        size = (folder / "cells").stat().st_size // CELL.itemsize
        return (np.memmap(folder / "cells", CELL, "r", shape=(size,)) if size else np.empty(0, CELL)), names
    except OSError:
        return np.empty(0, CELL), []


# --- steps that went back --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rollback:
    """At ``at`` (unix s) the run went from step ``reached`` back to ``to``: so many steps were done again, or will be;
    ``lost_s``: how long they had taken, with all that stood between them."""

    at: float
    reached: int
    to: int
    lost_s: float

    @property
    def steps(self) -> int:
        return self.reached - self.to


def rollbacks(trace: Trace) -> list[Rollback]:
    """Every time a run went back, oldest first, from the rows that speak for it. A row that comes late (its step stands
    between those before and after it) is none: its time is its own, and rows are read in the order of time."""
    whole = trace.whole()
    step, found = whole.step, []
    for place in np.flatnonzero(step[1:] < step[:-1]) + 1:
        reached, to = int(step[place - 1]), int(step[place])
        before = np.flatnonzero(step[:place] < to)
        since = whole.at[before[-1]] if len(before) else whole.at[0]
        found.append(Rollback(float(whole.at[place]), reached, to - 1, float(whole.at[place - 1] - since)))
    return found
