"""Samples of one metric that fall into one tick: levels, rates, and what is remembered of each row."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from detectors.model import BoolArray

Floats = NDArray[np.float64]
Slots = NDArray[np.int64]

#: A counter that was not seen for this long, and for four of its cadences, starts anew: a rate over the gap would be
#: old news, and a reset inside it could not be seen.
REBASE_S = 300.0


@dataclass(slots=True)
class Window:
    """What came for one metric and one tick that is still open: chunks of slots, times and values, by source."""

    sources: list[int] = field(default_factory=list)
    slots: list[Slots] = field(default_factory=list)
    times: list[Floats] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(chunk.size for chunk in self.times)

    def newest(self) -> dict[int, float]:
        """Time of the newest sample by source."""
        found: dict[int, float] = {}
        for source, times in zip(self.sources, self.times, strict=True):
            found[source] = max(found.get(source, -math.inf), float(times.max(initial=-math.inf)))
        return found

    def sorted(self) -> tuple[Slots, Floats, Floats]:
        """All samples by slot, then time, each instant of a slot once: the same whatever the order of arrival."""
        if len(self.slots) == 1 and np.all(self.slots[0][1:] > self.slots[0][:-1]):
            return self.slots[0], self.times[0], self.values[0]
        slots, times = np.concatenate(self.slots), np.concatenate(self.times)
        values = np.concatenate(self.values)
        order = np.lexsort((values, times, slots))
        slots, times, values = slots[order], times[order], values[order]
        first = np.ones(slots.size, np.bool_)
        first[1:] = (slots[1:] != slots[:-1]) | (times[1:] != times[:-1])
        return slots[first], times[first], values[first]


class Track(Protocol):
    """What is remembered of each row: float64[n], NaN for never."""

    time: Floats
    value: Floats
    gap: Floats
    cadence: Floats


def numbers(slots: Slots, times: Floats, values: Floats) -> tuple[Slots, Floats, Floats]:
    good = np.isfinite(values)
    return slots[good], times[good], values[good]


def _last_of_slot(slots: Slots) -> BoolArray:
    last = np.ones(slots.size, np.bool_)
    last[:-1] = slots[1:] != slots[:-1]
    return last


def levels(slots: Slots, raw: Floats, values: Floats) -> None:
    """Gauges, codes and masks: the last sample; NaN where that says that there is nothing to report."""
    last = _last_of_slot(slots)
    values[slots[last]] = raw[last]


def rates(track: Track, slots: Slots, times: Floats, raw: Floats, values: Floats) -> None:
    """Counters: what was added since the last sample of the tick before, per second of the samples' own time.

    A decrease is a reset, after which the new value is what was added: never negative, never a wrap of 2^64. Without
    a sample to count from there is no rate yet, which is not the same as missing.
    """
    if not slots.size:
        return
    first = np.ones(slots.size, np.bool_)
    first[1:] = slots[1:] != slots[:-1]
    longest = np.fmax(REBASE_S, 4 * np.nan_to_num(track.cadence[slots], nan=0.0))
    with np.errstate(invalid="ignore"):
        known = np.isfinite(track.value[slots]) & (times - track.time[slots] <= longest)
    since = np.where(first, np.where(known, track.time[slots], times), np.roll(times, 1))
    base = np.where(first, np.where(known, track.value[slots], raw), np.roll(raw, 1))
    added = np.where(raw >= base, raw - base, np.fmax(raw, 0.0))
    added = np.where(added < 2.0**63, added, 0.0)  # an unsigned counter that stepped back below zero
    starts = np.flatnonzero(first)
    total, span = np.add.reduceat(added, starts), np.add.reduceat(times - since, starts)
    counted = span > 0
    values[slots[starts][counted]] = total[counted] / span[counted]


def remember(track: Track, slots: Slots, times: Floats, raw: Floats, interval_s: float) -> None:
    """Last sample and cadence per row. The cadence is the shorter of the last two gaps, so that one lost sample does
    not double it, and at least one interval, as a tick shows no more than one sample."""
    good = np.isfinite(raw)
    slots, times, raw = slots[good], times[good], raw[good]
    if not slots.size:
        return
    before = np.where(np.r_[True, slots[1:] != slots[:-1]], track.time[slots], np.roll(times, 1))
    last = _last_of_slot(slots)
    rows, gap = slots[last], (times - before)[last]
    with np.errstate(invalid="ignore"):
        shorter = np.fmin(track.gap[rows], gap)
        track.cadence[rows] = np.where(np.isfinite(shorter), np.fmax(shorter, interval_s), np.nan)
    track.gap[rows] = np.where(np.isfinite(gap), gap, track.gap[rows])
    track.time[rows], track.value[rows] = times[last], raw[last]
