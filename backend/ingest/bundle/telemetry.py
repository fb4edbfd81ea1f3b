"""The telemetry of a bundle: one pass that sorts all samples by time, then scrapes as batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.facts import Batch
from backend.ingest.bundle.assembly import Assembly
from backend.ingest.bundle.folder import PartFile
from backend.ingest.bundle.openmetrics import UNKNOWN, Book, Samples, Scanner
from backend.ingest.bundle.reading import Reading
from backend.ingest.bundle.spill import MAX_ROWS, Column, Sorted, Spill
from backend.ingest.samples import UP
from detectors.catalogue import Catalogue
from detectors.model import Need

SOURCE = "prometheus"
#: Why a sample is left out that live would not be asked for either.
UNASKED = "metric that no detector asks for"
#: What its darkness is called.
PART = "telemetry"
#: The distance of ticks where the telemetry does not tell (the default of the settings), in seconds.
USUAL_INTERVAL_S = 15.0
#: A median gap this close to whole seconds is that: scrapes begin some milliseconds early or late (part of the gap).
JITTER = 0.01
#: No sample at all for this long, and for twice the interval: nobody scraped, so nothing is missing (as in prometheus).
STOPPED_S = 60.0


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Sorted samples with what their series numbers mean. ``left_out`` counts samples and series, by reason."""

    book: Book
    catalogue: Catalogue
    rows: Sorted
    interval_s: float
    left_out: Counter[str]

    @property
    def longest_s(self) -> float:
        """Without any sample for longer than this nobody scraped."""
        return max(STOPPED_S, 2 * self.interval_s)

    def shaded(self, begin: float, end: float, dark: Sequence[str], round_s: float) -> Iterator[tuple[float, Batch]]:
        """The batches, and word of when nobody scraped between ``begin`` and ``end`` (unix s): then telemetry is dark
        besides ``dark``, as live a source is that does not answer."""
        last, more = begin, tuple(sorted({*dark, PART}))
        for arrival, batch in self.batches(round_s):
            if arrival - last > self.longest_s:
                yield last + self.longest_s, Batch("sources", last, last + self.longest_s, dark=more)
                yield arrival, Batch("sources", arrival, arrival, dark=tuple(dark))
            yield arrival, batch
            last = arrival
        if end - last > self.longest_s:
            yield last + self.longest_s, Batch("sources", last, last + self.longest_s, dark=more)

    def batches(self, round_s: float = 0.0) -> Iterator[tuple[float, Batch]]:
        """(arrival, Batch) by time: one for each instant, or one for all of a round.

        round_s: samples in (k * round_s, (k + 1) * round_s] come together, when the last of them came; 0 = every
        instant by itself. A batch covers the time since the one before, unless nobody scraped meanwhile.
        """
        assembly = Assembly(self.book, self.catalogue)
        before: float | None = None
        for times, ids, values in _rounds(self.rows, round_s):
            arrival = float(times[-1])
            series, dropped = assembly.series(ids, times, values)
            start = before if before is not None and arrival - before <= self.longest_s else float(times[0])
            yield arrival, Batch(SOURCE, start, arrival, series, dropped=dropped)
            before = arrival


def _rounds(rows: Sorted, round_s: float) -> Iterator[tuple[Column, ...]]:
    """Columns of one round after the other, the times in each rising."""
    held: tuple[Column, ...] | None = None
    for block in rows.blocks():
        whole = block if held is None else tuple(np.concatenate(pair) for pair in zip(held, block, strict=True))
        times = whole[0]
        turn = np.ceil(times / round_s) if round_s > 0 else times
        edges = [0, *(np.flatnonzero(turn[1:] != turn[:-1]) + 1).tolist()]
        for begin, end in zip(edges, edges[1:], strict=False):
            yield tuple(column[begin:end] for column in whole)
        held = tuple(column[edges[-1] :] for column in whole)
    if held is not None:
        yield held


def read_telemetry(
    files: tuple[PartFile, ...],
    reading: Reading,
    work: Path,
    catalogue: Catalogue,
    needs: Set[Need] | None = None,
    max_rows: int = MAX_ROWS,
) -> Telemetry:
    """One pass over the files. Only metrics of the catalogue are kept, and of these, where ``needs`` says so, only
    those that are needed, and ``up``. Raises BundleError."""
    book = Book(wanted_names(catalogue, needs), UNKNOWN if needs is None else UNASKED)
    spill = Spill(work, "telemetry", (np.int32, np.float64), max_rows)
    left_out: Counter[str] = Counter()
    gaps = Gaps()
    for file in files:
        scanner = Scanner(file.name, book, reading.bad, left_out)
        for _, block in reading.blocks(file):
            found = scanner.feed(block)
            gaps.add(found, len(book))
            spill.add(found.times, found.ids, found.values)
    if book.replaced:
        left_out["label sets with bytes that are no UTF-8"] += book.replaced
    return Telemetry(book, catalogue, spill.finish(), gaps.interval_s(), left_out)


def wanted_names(catalogue: Catalogue, needs: Set[Need] | None) -> frozenset[str]:
    """The raw names of what is needed, as a Prometheus would be asked for them; all of the catalogue for None."""
    wanted = set(catalogue.metrics) if needs is None else {need[1] for need in needs if isinstance(need, tuple)} | {UP}
    return frozenset(raw for raw, name in catalogue.alias.items() if name in wanted)


class Gaps:
    """How far apart the samples of a series stand, of all series together, in memory of fixed size per series.

    Counted to the millisecond up to a minute, to the second above, and up to a day.
    """

    FINE, COARSE = 60_000, 86_400

    def __init__(self) -> None:
        self._counts = np.zeros(self.FINE + self.COARSE + 1, np.int64)
        self._last = np.zeros(0)

    def add(self, found: Samples, series: int) -> None:
        """Samples in the order of a file; ``series`` numbers were given so far."""
        if not found.ids.size:
            return
        if series > self._last.size:
            self._last = np.concatenate([self._last, np.full(series + self._last.size, np.nan)])
        ids, times = found.ids, found.times
        if (ids[1:] < ids[:-1]).any():
            order = np.argsort(ids, kind="stable")
            ids, times = ids[order], times[order]
        first = np.concatenate([[True], ids[1:] != ids[:-1]])
        before = np.where(first, self._last[ids], np.concatenate([[np.nan], times[:-1]]))
        self._last[ids[np.concatenate([first[1:], [True]])]] = times[np.concatenate([first[1:], [True]])]
        self._count(times - before)

    def _count(self, gaps: NDArray[np.float64]) -> None:
        gaps = gaps[gaps > 0]  # NaN is not above 0
        fine = np.rint(gaps * 1000)
        place = np.where(fine < self.FINE, fine, self.FINE + np.minimum(np.rint(gaps), self.COARSE))
        self._counts += np.bincount(place.astype(np.int64), minlength=self._counts.size)

    def interval_s(self) -> float:
        """The median gap, at least 1 s (contracts: order and ticks); to whole seconds where jitter alone parts them."""
        total = int(self._counts.sum())
        if not total:
            return USUAL_INTERVAL_S
        place = int(np.searchsorted(np.cumsum(self._counts), (total + 1) // 2))
        median = place / 1000 if place < self.FINE else float(place - self.FINE)
        whole = float(round(median))
        return max(1.0, whole if abs(median - whole) <= JITTER * median else median)
