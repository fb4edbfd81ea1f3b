"""Sorts more rows than memory holds: sorted runs on disk, read back as one stream by time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.ingest.bundle.folder import BundleError

Floats = NDArray[np.float64]
Column = NDArray[Any]

#: Rows held in memory at once: with the copies that sorting and merging take, some 20 MB for telemetry (measured).
MAX_ROWS = 150_000
#: Rows that pass between Python and numpy at once.
PIECE = 4_096


@dataclass(frozen=True, slots=True)
class _Run:
    """One sorted file: all keys (float64), then one column after the other."""

    path: Path
    size: int
    first: float
    last: float


class Spill:
    """Takes rows (a key and columns of fixed types) in any order and holds at most about ``max_rows`` of them."""

    def __init__(self, folder: Path, name: str, columns: Sequence[type[np.generic]], max_rows: int = MAX_ROWS) -> None:
        self._folder = folder
        self._name = name
        self._types = (np.dtype(np.float64), *(np.dtype(column) for column in columns))
        self._max_rows = max_rows
        self._held: list[tuple[Column, ...]] = []
        self._loose: list[tuple[float, ...]] = []
        self._rows = 0
        self._runs: list[_Run] = []

    def add(self, keys: Floats, *columns: Column) -> None:
        """Rows in the order in which ties are to be broken; keys are finite. Raises BundleError for a full disk."""
        for at in range(0, keys.size, self._max_rows):
            piece = slice(at, at + self._max_rows)
            self._held.append((keys[piece], *(column[piece] for column in columns)))
            self._rows += self._held[-1][0].size
            if self._rows >= self._max_rows:
                self._flush()

    def add_rows(self, rows: Sequence[tuple[float, ...]]) -> None:
        """Single rows: key, columns. They are gathered before they are added."""
        self._loose += rows
        if len(self._loose) >= min(PIECE, self._max_rows):
            self._add_loose()

    def _add_loose(self) -> None:
        columns = zip(*self._loose, strict=True)
        self._loose = []
        self.add(*(np.array(column, type_) for column, type_ in zip(columns, self._types, strict=True)))

    def finish(self) -> Sorted:
        """No more rows come."""
        if self._loose:
            self._add_loose()
        if self._rows:
            self._flush()
        return Sorted(tuple(self._runs), self._types, self._max_rows)

    def _flush(self) -> None:
        columns = [
            np.concatenate(parts).astype(type_)
            for parts, type_ in zip(zip(*self._held, strict=True), self._types, strict=True)
        ]
        self._held, self._rows = [], 0
        order = np.argsort(columns[0], kind="stable")
        path = self._folder / f"{self._name}-{len(self._runs):05d}.run"
        try:
            with path.open("wb") as file:
                for column in columns:
                    column[order].tofile(file)
        except OSError as error:
            need = sum(column.nbytes for column in columns)
            fix = f"Free {need} bytes and more there, or choose another folder to work in."
            raise BundleError(f"cannot be written: {error.strerror or error}", path, fix) from error
        keys = columns[0]
        self._runs.append(_Run(path, keys.size, float(keys[order[0]]), float(keys[order[-1]])))


@dataclass(frozen=True, slots=True)
class Sorted:
    """Rows of all runs by key; equal keys in the order in which they were added."""

    runs: tuple[_Run, ...]
    types: tuple[np.dtype[Any], ...]
    max_rows: int

    @property
    def size(self) -> int:
        return sum(run.size for run in self.runs)

    @property
    def first(self) -> float | None:
        return min((run.first for run in self.runs), default=None)

    @property
    def last(self) -> float | None:
        return max((run.last for run in self.runs), default=None)

    def blocks(self) -> Iterator[tuple[Column, ...]]:
        """(keys, columns) piece by piece, about ``max_rows`` in memory at once; equal keys are never parted.

        Raises BundleError where a run is no longer whole.
        """
        heads = [_Head(run, self.types) for run in self.runs]
        while heads:
            want = max(1, self.max_rows // len(heads))
            for head in heads:
                head.fill(want)
            bound = min((head.last for head in heads if head.more), default=math.inf)
            taken = [part for head in heads if (part := head.take(bound))[0].size]
            if taken:
                yield _merged(taken)
            for head in heads if not taken else ():
                if head.more and head.last <= bound:
                    head.fill(2 * head.size)  # one key fills all that was read of it
            heads = [head for head in heads if head.more or head.size]

    def each(self) -> Iterator[tuple[Any, ...]]:
        """The same row by row, as Python numbers."""
        for block in self.blocks():
            for at in range(0, block[0].size, PIECE):
                yield from zip(*(column[at : at + PIECE].tolist() for column in block), strict=True)


def _merged(parts: list[tuple[Column, ...]]) -> tuple[Column, ...]:
    if len(parts) == 1:
        return parts[0]
    columns = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return tuple(column[order] for column in columns)


class _Head:
    """The rows of one run that were read and not yet handed on."""

    def __init__(self, run: _Run, types: tuple[np.dtype[Any], ...]) -> None:
        self._run = run
        self._types = types
        self._read = 0
        self._rows: tuple[Column, ...] = tuple(np.empty(0, type_) for type_ in types)

    @property
    def more(self) -> bool:
        """Whether the file holds rows that were not read."""
        return self._read < self._run.size

    @property
    def size(self) -> int:
        return int(self._rows[0].size)

    @property
    def last(self) -> float:
        return float(self._rows[0][-1])

    def fill(self, want: int) -> None:
        """Read on until ``want`` rows are at hand."""
        count = min(want - self.size, self._run.size - self._read)
        if count <= 0:
            return
        base, columns = 0, []
        for type_ in self._types:
            columns.append(self._column(type_, base + self._read * type_.itemsize, count))
            base += self._run.size * type_.itemsize
        self._rows = tuple(np.concatenate(pair) for pair in zip(self._rows, columns, strict=True))
        self._read += count

    def _column(self, type_: np.dtype[Any], offset: int, count: int) -> Column:
        fix = "Leave the folder to work in alone while a bundle is replayed."
        try:
            found = np.fromfile(self._run.path, type_, count, offset=offset)
        except OSError as error:
            raise BundleError(f"cannot be read: {error.strerror}", self._run.path, fix) from error
        if found.size != count:
            raise BundleError("has become shorter", self._run.path, fix)
        return found

    def take(self, bound: float) -> tuple[Column, ...]:
        """All rows at hand with a key below ``bound``."""
        cut = self.size if math.isinf(bound) else int(np.searchsorted(self._rows[0], bound, side="left"))
        taken = tuple(column[:cut] for column in self._rows)
        self._rows = tuple(column[cut:] for column in self._rows)
        return taken
