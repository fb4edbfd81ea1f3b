"""The last 48 hours of named metrics in cells of five minutes: one writer, any number of readers, a bounded file."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backend import history_file
from backend.history_file import (
    CELL_S,
    CELLS,
    GROWTH,
    LAST,
    LEAST,
    LEAST_ROWS,
    MEAN,
    MOST,
    OPEN,
    SEQUENCE,
    STATS,
    TABLE,
    Hand,
    Layout,
    Mapped,
    Segment,
    Table,
    Torn,
)
from detectors.model import Axis, Fleet, FloatArray, MetricKey, Tick

log = logging.getLogger("watchkeeper.history")

Mode = Literal["write", "read"]
#: What pages and fits look back on. Codes and bit masks have no mean; flags show in findings.
KEPT: tuple[MetricKey, ...] = (
    ("gpu", "temperature_c"),
    ("gpu", "memory_temperature_c"),
    ("gpu", "power_w"),
    ("gpu", "sm_clock_mhz"),
    ("gpu", "mem_clock_mhz"),
    ("gpu", "utilisation_pct"),
    ("gpu", "fb_used_mib"),
    ("gpu", "ecc_dbe_volatile"),
    ("gpu", "pcie_replay"),
    ("gpu", "nvlink_bytes"),
    ("node", "node_up"),
    ("node", "node_load1"),
    ("node", "node_procs_running"),
    ("node", "node_interrupts"),
)
#: Cells that a machine may not have had on disk when it went down: the kernel writes back within half a minute.
LOST_AT_BOOT = 2
#: A tick so much older than the newest, in s, was taken before a restart that judges it again, or comes of a clock that
#: was set a little: it is left out. One that is older still comes of a clock that was wrong before.
AGAIN_S = 900.0
#: How long a reader waits between looks while a tick is being written; then it leaves the newest cell out.
WAITS_S = (0.0, 0.001, 0.002, 0.004, 0.008)


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """Cells that lie in what was asked, oldest first, each once, also those in which nothing was heard.

    times: float64[k], when each cell starts (unix s); it holds the ticks after that, up to and with CELL_S later.
    least, mean, most: float32[k], or [k, n] where n devices were asked for; NaN = nothing was heard. older: the part of
    what was asked (unix s) that lies before the first cell there is: it comes by PromQL, or not at all.
    """

    times: NDArray[np.float64]
    least: FloatArray
    mean: FloatArray
    most: FloatArray
    older: tuple[float, float] | None = None


class History:
    """A folder with one file an axis. Nothing is opened before it is needed, and anything that fails is tried again.

    One process writes, from one thread; reading is free to all threads and processes.
    """

    def __init__(self, folder: Path, metrics: Iterable[MetricKey], mode: Mode) -> None:
        self._folder = folder
        self._mode: Mode = mode
        by_axis: dict[str, list[str]] = {}
        for axis, name in metrics:
            by_axis.setdefault(axis, []).append(name)
        self._metrics = {axis: tuple(names) for axis, names in by_axis.items()}
        self._writers: dict[str, _Writer] = {}
        self._readers = {axis: _Reader(folder, axis) for axis in self._metrics}
        self._renamed: dict[str, str] = {}
        self._unlock: weakref.finalize[[int], History] | None = None

    @classmethod
    def open(cls, folder: Path, cluster: str, metrics: Iterable[MetricKey] = KEPT, mode: Mode = "read") -> History:
        """The history of ``cluster`` in the data folder. Never raises: a disk that fails shows at the first use."""
        return cls(folder / "history" / cluster, metrics, mode)

    @property
    def metrics(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the metrics by axis."""
        return self._metrics

    def add(self, tick: Tick, fleet: Fleet) -> None:
        """Take one closed telemetry tick in; its arrays are as long as the axes of ``fleet``.

        Raises OSError where the disk takes no more or another process writes; what stood there before still stands.
        """
        if self._mode != "write":
            raise OSError("this history is only read here")
        try:
            self._lock()
            for axis, names in self._metrics.items():
                arrays = [tick.values.get((axis, name)) for name in names]
                if axis in fleet.axes and any(array is not None for array in arrays):
                    self._writer(axis, names).add(tick.at, arrays, fleet.axes[axis], self._renamed)
        except (OSError, Torn) as error:
            self.close()  # the next tick begins with what is on disk
            raise OSError(f"the history in {self._folder} cannot be written: {error}") from error
        self._renamed = {}

    def rename(self, renamed: Mapping[str, str]) -> None:
        """Devices that go by a better id from the next tick on keep what was recorded under the old one."""
        self._renamed = {**self._renamed, **renamed}

    def read(self, axis: str, id_: str, metric: str, start: float, end: float) -> Range:
        """Cells of one device that touch [start, end) (unix s): arrays of [k]."""
        found = self.read_many(axis, (id_,), metric, start, end)
        return Range(found.times, found.least[:, 0], found.mean[:, 0], found.most[:, 0], found.older)

    def read_many(self, axis: str, ids: Sequence[str], metric: str, start: float, end: float) -> Range:
        """The same of n devices at once: arrays of [k, n]. One that is not known is NaN; so is a metric that is not
        kept. Raises ValueError for times that are no span."""
        if not (math.isfinite(start) and math.isfinite(end) and start <= end):
            raise ValueError(f"cannot read from {start} to {end}")
        reader = self._readers.get(axis)
        return reader.read(ids, metric, start, end) if reader else _nothing(len(ids), start, end)

    def span(self) -> tuple[float, float] | None:
        """From the start of the first cell to the end of the newest one (unix s); None where there is none."""
        spans = [span for reader in self._readers.values() if (span := reader.span()) is not None]
        return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None

    def close(self) -> None:
        """Let another process write."""
        self._writers = {}
        if self._unlock is not None:
            self._unlock()
            self._unlock = None

    def _lock(self) -> None:
        """One writer a cluster. The lock goes with the process, however that ends."""
        if self._unlock is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self._folder / "writer.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise OSError(f"another process writes the history in {self._folder}. Stop one of them.") from error
        self._unlock = weakref.finalize(self, os.close, lock)

    def _writer(self, axis: str, names: tuple[str, ...]) -> _Writer:
        writer = self._writers.get(axis)
        if writer is None or not writer.in_place:
            writer = self._writers[axis] = _Writer(self._folder, axis, names)
        return writer


def _paths(folder: Path, axis: str) -> tuple[Path, Path]:
    return folder / f"{axis}.cells", folder / f"{axis}.ids"


def period_of(at: float) -> int:
    """The cell of a tick, which tells of the time before it: one on the edge belongs to what went before."""
    return math.ceil(at / CELL_S) - 1


# --- writing --------------------------------------------------------------------------------------------------------


class _Cell:
    """The newest cell of one segment in memory: what a tick changes, before it is written.

    values float32[m, STATS, rows]; total float32[m, rows] of what the mean is of; counts uint16[m, rows].
    """

    def __init__(self, values: FloatArray, counts: NDArray[np.uint16]) -> None:
        self.values = values
        self.counts = counts
        self.total: FloatArray = np.where(counts > 0, values[:, MEAN] * counts, 0).astype(np.float32)

    @classmethod
    def empty(cls, segment: Segment) -> _Cell:
        m, rows = segment.counts.shape
        return cls(np.full((m, STATS, rows), np.nan, np.float32), np.zeros((m, rows), np.uint16))

    def take(self, metric: int, came: FloatArray) -> None:
        """One tick of one metric, float32[rows]; NaN changes nothing."""
        good = ~np.isnan(came)
        values, total, counts = self.values[metric], self.total[metric], self.counts[metric]
        np.fmin(values[LEAST], came, out=values[LEAST])
        np.fmax(values[MOST], came, out=values[MOST])
        counts += good
        np.add(total, came, out=total, where=good)
        with np.errstate(invalid="ignore"):
            np.divide(total, counts, out=values[MEAN])


class _Writer:
    """One axis. Values are written first and then said to be there, so that a kill costs the newest cell at most."""

    def __init__(self, folder: Path, axis: str, metrics: tuple[str, ...]) -> None:
        self._path, self._ids_path = _paths(folder, axis)
        self._ids: tuple[str, ...] | None = None
        self._straight = False
        self._slots: NDArray[np.intp] = np.zeros(0, np.intp)
        self._mapped, self._table = self._open(Layout(axis, metrics))
        self._hand = Hand(self._path, self._mapped.layout)
        self._recover()
        self._cells: list[_Cell] = []

    def _open(self, wanted: Layout) -> tuple[Mapped, Table]:
        """What is there, or an empty file: a torn one, and one of other metrics, is moved aside. Raises OSError."""
        if self._path.exists():
            try:
                mapped = Mapped(self._path)
                table = history_file.load_table(self._ids_path, mapped.layout.nonce)
                if mapped.layout.metrics != wanted.metrics:
                    raise Torn("it keeps other metrics")
                if table.generation < mapped.head[TABLE]:
                    raise Torn("its table of ids is older than its cells")
                return mapped, table
            except (Torn, FileNotFoundError) as torn:
                self._move_aside(str(torn) if isinstance(torn, Torn) else "its table of ids is gone")
        table = Table(wanted.nonce)
        history_file.save_table(self._ids_path, table)
        history_file.create(self._path, wanted)
        return Mapped(self._path), table

    def _move_aside(self, why: str) -> None:
        aside = self._path.with_name(f"{self._path.name}.aside")
        log.warning("%s cannot be used: %s. It is kept as %s; the history starts anew.", self._path, why, aside)
        os.replace(self._path, aside)

    def _recover(self) -> None:
        """What a killed writer, or a machine that went down, left half done."""
        mapped, hand, boot = self._mapped, self._hand, history_file.boot_id()
        newest = int(mapped.head[OPEN])
        if newest and mapped.boot != boot:
            lost = np.arange(newest - LOST_AT_BOOT, newest + 1) % CELLS
            for segment in mapped.segments:
                periods = segment.periods.copy()
                periods[lost] = 0
                hand.periods(segment, periods)
        hand.boot(boot)
        hand.head(TABLE, self._table.generation)
        hand.head(SEQUENCE, int(mapped.head[SEQUENCE]) + int(mapped.head[SEQUENCE]) % 2)

    @property
    def in_place(self) -> bool:
        """False where somebody has put the file away."""
        return self._path.exists() and self._path.stat().st_ino == self._mapped.inode

    def add(self, at: float, arrays: Sequence[FloatArray | None], axis: Axis, renamed: Mapping[str, str]) -> None:
        """One tick of one axis. Raises OSError, and Torn where somebody else wrote into the file."""
        self._rename(renamed)
        self._follow(axis)
        if 0 <= int(self._mapped.head[LAST]) - round(at * 1000) <= AGAIN_S * 1000:
            return
        period = period_of(at)
        if int(self._mapped.head[OPEN]) != period or not self._cells:
            self._cells = [self._begun(segment, period) for segment in self._mapped.segments]
        came = np.full(max(len(axis) + 1, self._mapped.rows), np.nan, np.float32)
        for metric, array in enumerate(arrays):
            if array is not None:
                came[: len(axis)] = array
                in_rows = came if self._straight else came[self._slots]
                for segment, cell in zip(self._mapped.segments, self._cells, strict=True):
                    cell.take(metric, in_rows[segment.first : segment.first + segment.rows])
        self._write(period, at)

    def _begun(self, segment: Segment, period: int) -> _Cell:
        """A cell that a restart interrupted goes on; any other begins."""
        cell = period % CELLS
        if segment.periods[cell] == period and segment.counted[0] == period:
            return _Cell(segment.values[cell].copy(), segment.counts.copy())
        return _Cell.empty(segment)

    def _write(self, period: int, at: float) -> None:
        mapped, hand, cell = self._mapped, self._hand, period % CELLS
        writing = int(mapped.head[SEQUENCE]) | 1
        hand.head(SEQUENCE, writing)
        try:
            for segment, newest in zip(mapped.segments, self._cells, strict=True):
                if segment.periods[cell] != period or mapped.head[OPEN] != period:
                    hand.periods(segment, self._without_strays(segment, period))
                hand.cell(segment, cell, newest.values, newest.counts)
                hand.say(segment, cell, period)
            hand.head(OPEN, period)
            hand.head(LAST, round(at * 1000))
        finally:
            hand.head(SEQUENCE, writing + 1)

    def _without_strays(self, segment: Segment, period: int) -> NDArray[np.int64]:
        """What the newest cell's place held 48 h ago goes, and what a wrong clock once wrote ahead of its time."""
        periods = segment.periods.copy()
        periods[(periods > self._mapped.head[OPEN]) & (periods < period)] = 0
        periods[period % CELLS] = 0
        return periods

    # --- rows -------------------------------------------------------------------------------------------------------

    def _rename(self, renamed: Mapping[str, str]) -> None:
        """Rows under better ids; where the better id has a row of its own already, that one stands."""
        known = {old: new for old, new in renamed.items() if old in self._table.rows and new not in self._table.rows}
        if known:
            self._keep(self._table.with_ids([known.get(id_, id_) for id_ in self._table.ids]))

    def _follow(self, axis: Axis) -> None:
        """A row for every id that is live, found again by the id and never by the slot."""
        if axis.ids is self._ids or axis.ids == self._ids:
            return
        live = {id_ for id_, lives in zip(axis.ids, axis.live.tolist(), strict=True) if lives}
        strange = [id_ for id_ in axis.ids if id_ in live and id_ not in self._table.rows]
        if strange:
            self._give_rows(strange, live)
        rows = self._table.rows
        slots = np.full(self._mapped.rows, len(axis), np.intp)
        for slot, id_ in enumerate(axis.ids):
            if (row := rows.get(id_)) is not None:
                slots[row] = slot
        self._slots, self._ids = slots, axis.ids
        self._straight = (
            bool((slots[: len(axis)] == np.arange(len(axis))[: slots.size]).all()) and len(axis) <= slots.size
        )

    def _give_rows(self, strange: Sequence[str], live: set[str]) -> None:
        """Rows that nobody has, then those of devices that are gone and of which no cell tells, then new ones."""
        ids = list(self._table.ids)
        ids += [""] * (self._mapped.rows - len(ids))
        free = [row for row, id_ in enumerate(ids) if not id_]
        if len(free) < len(strange):
            free += [row for row, id_ in enumerate(ids) if id_ and id_ not in live and self._is_blank(row)]
        if (wanted := len(strange) - len(free)) > 0:
            more = max(wanted, len(ids) // GROWTH, LEAST_ROWS)
            more += -more % LEAST_ROWS
            free += range(len(ids), len(ids) + more)
            ids += [""] * more
            self._grow(more)
        for row, id_ in zip(free, strange, strict=False):
            ids[row] = id_
        self._keep(self._table.with_ids(ids))

    def _is_blank(self, row: int) -> bool:
        segment = next(s for s in self._mapped.segments if row < s.first + s.rows)
        held = segment.periods > self._mapped.head[OPEN] - CELLS
        return bool(np.isnan(segment.values[held, :, MOST, row - segment.first]).all())

    def _grow(self, rows: int) -> None:
        self._hand.extend(self._mapped, rows)
        self._mapped = Mapped(self._path)
        if self._cells:
            self._cells.append(_Cell.empty(self._mapped.segments[-1]))

    def _keep(self, table: Table) -> None:
        """On disk before any value of a row that changed hands."""
        history_file.save_table(self._ids_path, table)
        self._table, self._ids = table, None
        self._hand.head(TABLE, table.generation)


# --- reading --------------------------------------------------------------------------------------------------------


class _Reader:
    """One axis, read by whoever likes. It maps anew when the file has grown or was replaced."""

    def __init__(self, folder: Path, axis: str) -> None:
        self._path, self._ids_path = _paths(folder, axis)
        self._lock = threading.Lock()
        self._mapped: Mapped | None = None
        self._table = Table("")

    def read(self, ids: Sequence[str], metric: str, start: float, end: float) -> Range:
        """Tries until no tick was being written meanwhile; at last without the cells that were."""
        with self._lock:
            for wait_s in WAITS_S:
                time.sleep(wait_s)
                if not self._current():
                    return _nothing(len(ids), start, end)
                assert self._mapped is not None
                before = int(self._mapped.head[SEQUENCE])
                found, sure = self._copy(self._mapped, ids, metric, start, end, settled=False)
                if sure and before % 2 == 0 and before == int(self._mapped.head[SEQUENCE]):
                    return found
            assert self._mapped is not None
            found, sure = self._copy(self._mapped, ids, metric, start, end, settled=True)
        return found if sure else _nothing(len(ids), start, end)

    def span(self) -> tuple[float, float] | None:
        with self._lock:
            if not self._current():
                return None
            assert self._mapped is not None
            held = _held(self._mapped)
            return (float(held.min() * CELL_S), float((held.max() + 1) * CELL_S)) if held.size else None

    def _current(self) -> bool:
        """Follow the file and its table. False where there is none that could be read."""
        try:
            mapped = self._mapped
            if mapped is None or mapped.inode != self._path.stat().st_ino or not mapped.whole:
                mapped = self._mapped = Mapped(self._path)
            if self._table.nonce != mapped.layout.nonce or self._table.generation < mapped.head[TABLE]:
                self._table = history_file.load_table(self._ids_path, mapped.layout.nonce)
        except (OSError, Torn):
            self._mapped = None
        return self._mapped is not None

    def _copy(
        self, mapped: Mapped, ids: Sequence[str], metric: str, start: float, end: float, *, settled: bool
    ) -> tuple[Range, bool]:
        """The cells as they are now, and whether rows kept their owners meanwhile. A cell whose period changes under
        the copy is left out; ``settled``: so is the newest."""
        generation, held = int(mapped.head[TABLE]), _held(mapped)
        if not held.size:
            return _nothing(len(ids), start, end), True
        newest = int(mapped.head[OPEN])
        first, last = max(math.floor(start / CELL_S), int(held.min())), min(math.ceil(end / CELL_S) - 1, newest)
        periods = np.arange(first, max(first, last + 1))
        found = np.full((STATS, periods.size, len(ids)), np.nan, np.float32)
        rows = np.array([self._table.rows.get(id_, -1) for id_ in ids], np.int64)
        for segment in mapped.segments if metric in mapped.layout.metrics else ():
            mine = np.flatnonzero((rows >= segment.first) & (rows < segment.first + segment.rows))
            cells, places = periods % CELLS, rows[mine] - segment.first
            right = segment.periods[cells] == periods
            copied = segment.values[cells[:, None], mapped.layout.metrics.index(metric), :, places]
            right &= segment.periods[cells] == periods
            right &= not settled or periods < newest
            found[:, :, mine] = np.where(right[:, None, None], copied, np.float32(np.nan)).transpose(2, 0, 1)
        begin = float(held.min() * CELL_S)
        older = (start, min(end, begin)) if start < begin else None
        made = Range(periods.astype(np.float64) * CELL_S, found[LEAST], found[MEAN], found[MOST], older)
        return made, generation == int(mapped.head[TABLE]) and generation <= self._table.generation


def _held(mapped: Mapped) -> NDArray[np.int64]:
    """Periods that some block holds, within 48 h of the newest."""
    newest = int(mapped.head[OPEN])
    if not mapped.segments:
        return np.zeros(0, np.int64)
    periods = np.concatenate([segment.periods for segment in mapped.segments])
    return periods[(periods > max(0, newest - CELLS)) & (periods <= newest)]


def _nothing(n: int, start: float, end: float) -> Range:
    none = np.zeros((0, n), np.float32)
    return Range(np.zeros(0), none, none, none, (start, end))
