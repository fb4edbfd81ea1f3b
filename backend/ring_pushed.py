"""Samples that come by number: where each target's go, and those of the ticks that are still open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from backend.columns import Book
from backend.facts import DeviceLabel
from detectors.model import BoolArray, IntArray

Floats = NDArray[np.float64]
Slots = NDArray[np.int64]
#: Axis, metric and part.
TrackKey = tuple[str, str, str]
#: What a target's slot may be beside a row: not asked for yet; nobody's, asked for again with each sample.
UNASKED = -1
Seat = Callable[[str, DeviceLabel, str, int], TrackKey | None]


class Seats:
    """For each target of a book its track and its row, asked for once: a row is never given to another."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.tracks: list[TrackKey] = []
        self._numbers: dict[TrackKey, int] = {}
        self.track: IntArray = np.full(1024, -1, np.int32)
        self.slot: Slots = np.full(1024, UNASKED, np.int64)
        self._order: list[tuple[Slots, Slots]] | None = None

    def settled(self, targets: IntArray, slot_of: Callable[[DeviceLabel], int | None], seat: Seat) -> BoolArray:
        """Which of these have a row (bool[k]); those not asked for yet are."""
        if self.slot.size < self.book.size:
            more = self.book.metric.size - self.slot.size
            self.slot = np.concatenate([self.slot, np.full(more, UNASKED, np.int64)])
            self.track = np.concatenate([self.track, np.full(more, -1, np.int32)])
        known: BoolArray = self.slot[targets] >= 0
        if not known.all():
            for target in np.unique(targets[~known]).tolist():
                self._ask(target, slot_of, seat)
            known = self.slot[targets] >= 0
        return known

    def _ask(self, target: int, slot_of: Callable[[DeviceLabel], int | None], seat: Seat) -> None:
        label = cast(DeviceLabel, self.book.labels[self.book.label[target]])
        slot = slot_of(label)
        key = (
            seat(self.book.metrics[self.book.metric[target]], label, self.book.parts[self.book.part[target]], slot)
            if slot is not None
            else None
        )
        if slot is None or key is None:
            return
        if key not in self._numbers:
            self._numbers[key] = len(self.tracks)
            self.tracks.append(key)
        self.track[target], self.slot[target] = self._numbers[key], slot
        self._order = None

    def order(self) -> list[tuple[Slots, Slots]]:
        """By track: its targets in the order of their rows, and the rows."""
        if self._order is None:
            seated = np.flatnonzero(self.slot >= 0)
            order = seated[np.lexsort((self.slot[seated], self.track[seated]))]
            ends = np.searchsorted(self.track[order], np.arange(len(self.tracks) + 1))
            each = [order[first:last] for first, last in zip(ends[:-1], ends[1:], strict=True)]
            self._order = [(targets, self.slot[targets]) for targets in each]
        return self._order


@dataclass(slots=True, eq=False)
class _Open:
    """What came for one tick from one source: by target its time and value, NaN time for none, and whatever came
    second for a target."""

    times: Floats
    values: Floats
    more: list[tuple[IntArray, Floats, Floats]] = field(default_factory=list)

    def grow(self, size: int) -> None:
        if size > self.times.size:
            more = np.full(size - self.times.size, np.nan)
            self.times, self.values = np.concatenate([self.times, more]), np.concatenate([self.values, more])

    def hold(self, targets: IntArray, times: Floats, values: Floats) -> None:
        free = np.isnan(self.times[targets])
        self.times[targets[free]], self.values[targets[free]] = times[free], values[free]
        second = ~free | (self.times[targets] != times)  # also of those that came together
        if second.any():
            self.more.append((targets[second], times[second], values[second]))


class Pushed:
    """Everything that came by number for ticks that are open."""

    def __init__(self) -> None:
        self._seats: dict[Book, Seats] = {}
        self._open: dict[int, dict[tuple[Book, int], _Open]] = {}

    def seats(self, book: Book) -> Seats:
        if book not in self._seats:
            self._seats[book] = Seats(book)
        return self._seats[book]

    def unseat(self) -> None:
        """Rows have moved: every target is asked for anew. Nothing is open."""
        self._seats = {}

    def ticks(self) -> list[int]:
        return sorted(self._open)

    def hold(self, seats: Seats, ticks: Slots, targets: IntArray, times: Floats, values: Floats, source: int) -> None:
        """Samples of targets that have a row, in the ticks they belong to."""
        if not ticks.size:
            return
        first = int(ticks[0])
        if (ticks == first).all():
            self._window(seats, first, source).hold(targets, times, values)
            return
        for tick in np.unique(ticks).tolist():
            here = ticks == tick
            self._window(seats, tick, source).hold(targets[here], times[here], values[here])

    def _window(self, seats: Seats, tick: int, source: int) -> _Open:
        key, size = (seats.book, source), seats.slot.size
        held = self._open.setdefault(tick, {})
        if key not in held:
            held[key] = _Open(np.full(size, np.nan), np.full(size, np.nan))
        held[key].grow(size)
        return held[key]

    def poured(self, tick: int) -> Iterator[tuple[TrackKey, int, Slots, Floats, Floats]]:
        """What came for a tick, let go of here: track, source, rows, times and values; rows rise but where a target
        came twice."""
        for (book, source), held in self._open.pop(tick, {}).items():
            seats = self._seats[book]
            for key, (targets, slots) in zip(seats.tracks, seats.order(), strict=True):
                times = held.times[targets[targets < held.times.size]]
                came = np.flatnonzero(~np.isnan(times))
                if came.size:
                    yield key, source, slots[came], times[came], held.values[targets[came]]
            for these, times, values in held.more:
                for number in np.unique(seats.track[these]).tolist():
                    here = seats.track[these] == number
                    rows = seats.slot[these[here]]
                    yield seats.tracks[number], source, rows, times[here], values[here]
