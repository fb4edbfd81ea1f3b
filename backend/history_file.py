"""One mapped file of the history: where everything lies in it, how it grows, and how a torn one is told."""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import weakref
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

#: A cell is five minutes; the file holds 48 h of them and then starts over.
CELL_S = 300
CELLS = 576
#: The file grows by whole segments of rows (devices), so that nothing in it ever moves: at least so many rows, and a
#: quarter of what there is, so that a large fleet lies in few pieces.
LEAST_ROWS = 256
GROWTH = 4
MOST_SEGMENTS = 64
#: What is kept of each row, metric and cell, in this order.
STATS = 3
LEAST, MEAN, MOST = range(STATS)
#: The changing part of the head, int64: odd while a tick is being written; segments there are; the newest cell's
#: period; generation of the table of ids; the newest tick in ms.
SEQUENCE, SEGMENTS, OPEN, TABLE, LAST = range(5)

_MAGIC = b"WKHIST01"
_FIXED = struct.Struct("<8sII")
_NUMBER = struct.Struct("<q")
_HEAD_BYTES = 8192
_CHANGING_AT = 4096
_BOOT_AT = _CHANGING_AT + 256
_BOOT_BYTES = 36
_ROWS_AT = _CHANGING_AT + 512
#: Of each segment: the period that every cell holds (0 = none), then the period that the counts belong to.
_COUNTED_AT = CELLS * 8
_COUNTS_AT = 8192


class Torn(Exception):
    """A file that is not what this release wrote; says why."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The fixed part of the head. ``nonce`` ties the table of ids to the file."""

    axis: str
    metrics: tuple[str, ...]
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    def head_bytes(self, rows: int) -> int:
        """Bytes of a segment before its cells: periods, and the counts of the newest cell."""
        return _COUNTS_AT + len(self.metrics) * rows * 2

    def cell_bytes(self, rows: int) -> int:
        return len(self.metrics) * STATS * rows * 4

    def segment_bytes(self, rows: int) -> int:
        """Most of them are holes until their time comes."""
        return self.head_bytes(rows) + CELLS * self.cell_bytes(rows)

    def packed(self) -> bytes:
        shape = {"cell_s": CELL_S, "cells": CELLS, "stats": STATS}
        body = orjson.dumps({"axis": self.axis, "metrics": self.metrics, "nonce": self.nonce, **shape})
        if _FIXED.size + len(body) > _CHANGING_AT:
            raise ValueError(f"{len(self.metrics)} metrics do not fit into the head of a history file")
        return _FIXED.pack(_MAGIC, zlib.crc32(body), len(body)) + body


def unpacked(head: bytes) -> Layout:
    """The layout of a file that begins with ``head``. Raises Torn."""
    if len(head) < _HEAD_BYTES:
        raise Torn("it ends within its head")
    magic, check, length = _FIXED.unpack_from(head)
    body = head[_FIXED.size : _FIXED.size + length]
    if magic != _MAGIC or zlib.crc32(body) != check:
        raise Torn("its head is damaged, or of another release")
    said = orjson.loads(body)
    found = Layout(said["axis"], tuple(said["metrics"]), said["nonce"])
    if found.packed() != head[: _FIXED.size + length]:
        raise Torn("it has another layout")
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Rows ``first`` to ``first + rows`` of a file with m metrics, as they lie on disk from byte ``at`` on.

    periods int64[CELLS]; counted int64[1]; counts uint16[m, rows], how many ticks told of the newest cell; values
    float32[CELLS, m, STATS, rows], NaN where nothing was heard.
    """

    at: int
    first: int
    rows: int
    periods: NDArray[np.int64]
    counted: NDArray[np.int64]
    counts: NDArray[np.uint16]
    values: NDArray[np.float32]


class Mapped:
    """A file seen through a read-only map. head is int64[5]; what is written shows in it at once."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where it cannot be opened, Torn where it is not whole."""
        with path.open("rb") as file:
            self.layout = unpacked(file.read(_HEAD_BYTES))
            self.inode = os.fstat(file.fileno()).st_ino
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.head: NDArray[np.int64] = np.ndarray(5, np.int64, memory, _CHANGING_AT)
        self.boot = memory[_BOOT_AT : _BOOT_AT + _BOOT_BYTES]
        count = int(self.head[SEGMENTS])
        if not 0 <= count <= MOST_SEGMENTS:
            raise Torn("its head names an impossible number of segments")
        sizes: NDArray[np.int64] = np.ndarray(count, np.int64, memory, _ROWS_AT)
        found: list[Segment] = []
        at, first = _HEAD_BYTES, 0
        for rows in map(int, sizes):
            if rows <= 0 or at + self.layout.segment_bytes(rows) > len(memory):
                raise Torn("it is shorter than its head says")
            found.append(_segment(memory, self.layout, at, first, rows))
            at, first = at + self.layout.segment_bytes(rows), first + rows
        self.segments = tuple(found)
        self.rows = first
        self.end = at

    @property
    def whole(self) -> bool:
        """False once the file has grown beyond this map."""
        return len(self.segments) == int(self.head[SEGMENTS])


def _segment(memory: mmap.mmap, layout: Layout, at: int, first: int, rows: int) -> Segment:
    m = len(layout.metrics)
    return Segment(
        at=at,
        first=first,
        rows=rows,
        periods=np.ndarray(CELLS, np.int64, memory, at),
        counted=np.ndarray(1, np.int64, memory, at + _COUNTED_AT),
        counts=np.ndarray((m, rows), np.uint16, memory, at + _COUNTS_AT),
        values=np.ndarray((CELLS, m, STATS, rows), np.float32, memory, at + layout.head_bytes(rows)),
    )


class Hand:
    """Writes into a file by plain calls: a full disk is an OSError then, where a store into a map would be a signal
    that ends the process. A reader's map shows it at once."""

    def __init__(self, path: Path, layout: Layout) -> None:
        """Raises OSError."""
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._layout = layout
        self.close = weakref.finalize(self, os.close, self._file)

    def head(self, which: int, value: int) -> None:
        """One of SEQUENCE, SEGMENTS, OPEN, TABLE, LAST."""
        self._put(_CHANGING_AT + 8 * which, _NUMBER.pack(value))

    def boot(self, boot: bytes) -> None:
        self._put(_BOOT_AT, boot)

    def periods(self, segment: Segment, periods: NDArray[np.int64]) -> None:
        """All of them, int64[CELLS]."""
        self._put(segment.at, periods.tobytes())

    def cell(self, segment: Segment, cell: int, values: NDArray[np.float32], counts: NDArray[np.uint16]) -> None:
        """Values and counts of one cell of one segment; nobody believes them before ``say``."""
        size = self._layout.cell_bytes(segment.rows)
        self._put(segment.at + self._layout.head_bytes(segment.rows) + cell * size, values.data.cast("B"))
        self._put(segment.at + _COUNTS_AT, counts.data.cast("B"))

    def say(self, segment: Segment, cell: int, period: int) -> None:
        """This cell holds that period now, and the counts belong to it."""
        self._put(segment.at + _COUNTED_AT, _NUMBER.pack(period))
        self._put(segment.at + 8 * cell, _NUMBER.pack(period))

    def extend(self, mapped: Mapped, rows: int) -> None:
        """One more segment. Its head takes real space at once; nobody sees it before the file's head says so."""
        count = len(mapped.segments)
        if count >= MOST_SEGMENTS:
            raise OSError("the history has too many segments; move it aside and it starts anew")
        self._put(mapped.end, bytes(self._layout.head_bytes(rows)))
        os.ftruncate(self._file, mapped.end + self._layout.segment_bytes(rows))
        self._put(_ROWS_AT + 8 * count, _NUMBER.pack(rows))
        self.head(SEGMENTS, count + 1)

    def _put(self, at: int, content: bytes | memoryview) -> None:
        view = memoryview(content)
        while view.nbytes:
            done = os.pwrite(self._file, view, at)
            view, at = view[done:], at + done


def create(path: Path, layout: Layout) -> None:
    """An empty file in the place of ``path``; whole or not there. Raises OSError."""
    replace_with(path, layout.packed().ljust(_HEAD_BYTES, b"\0"))


def replace_with(path: Path, content: bytes) -> None:
    """Write beside and move over: a crash leaves the old file or the new one."""
    beside = path.with_name(f"{path.name}.new")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


# --- the table of ids -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Whose row each row is, "" = nobody's. ``generation`` rises with every change."""

    nonce: str
    generation: int = 0
    ids: tuple[str, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)

    def with_ids(self, ids: Sequence[str]) -> Table:
        return table_of(self.nonce, self.generation + 1, ids)


def table_of(nonce: str, generation: int, ids: Sequence[str]) -> Table:
    return Table(nonce, generation, tuple(ids), {id_: row for row, id_ in enumerate(ids) if id_})


def save_table(path: Path, table: Table) -> None:
    """Raises OSError."""
    body = orjson.dumps({"nonce": table.nonce, "generation": table.generation, "ids": table.ids})
    replace_with(path, b"%08x\n" % zlib.crc32(body) + body)


def load_table(path: Path, nonce: str) -> Table:
    """Raises OSError, and Torn where it is damaged or belongs to another file."""
    check, _, body = path.read_bytes().partition(b"\n")
    if check != b"%08x" % zlib.crc32(body):
        raise Torn("its table of ids is damaged")
    said = orjson.loads(body)
    if said["nonce"] != nonce:
        raise Torn("its table of ids belongs to another file")
    return table_of(said["nonce"], int(said["generation"]), said["ids"])


def boot_id() -> bytes:
    """36 characters that change when the machine starts anew; dashes where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes()[:_BOOT_BYTES].ljust(_BOOT_BYTES, b"-")
    except OSError:
        return b"-" * _BOOT_BYTES
