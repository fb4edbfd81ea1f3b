"""Tick assembly: lateness, counters to rates, "not due" against "missing"."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.columns import Columns
from backend.facts import Batch, DeviceLabel, Series
from backend.ring_pushed import Pushed, TrackKey
from backend.ring_window import Window, levels, numbers, rates, remember
from detectors.catalogue import Metric
from detectors.model import BoolArray, Fleet, FloatArray, MetricKey, Tick

Floats = NDArray[np.float64]
Slots = NDArray[np.int64]

#: Samples and reads from further ahead than this are a wrong clock, and would hold memory for ticks to come.
MAX_AHEAD_S = 300.0
#: How far before ``now`` the first batch may begin: what a restart catches up with, and no more.
MAX_BACK_S = 300.0
#: After a longer silence than this many ticks, empty ticks are skipped instead of yielded one by one.
GAP_TICKS = 20
#: Samples held for ticks that are still open; at 16 bytes of numbers and 8 of slot each some 1.2 GB.
MAX_HELD = 50_000_000
#: Part of a cadence by which a sample may come early or late and still count as the expected one.
JITTER = 0.1

#: Most parts of one metric (controllers, sensors, kinds of error) that are kept apart until a tick joins them.
MOST_PARTS = 64
#: What a track remembers of each slot, float64 with NaN for never.
PER_SLOT = ("time", "value", "gap", "cadence", "source")
#: Of these, what only counters need.
OF_COUNTERS = frozenset({"value"})


class _Track:
    """One metric of one axis: per slot the last sample of closed ticks, how far apart samples come, and from whom."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.windows: dict[int, Window] = {}
        self.time = np.zeros(0)
        self.value = np.zeros(0)
        self.gap = np.zeros(0)
        self.cadence = np.zeros(0)
        self.source = np.zeros(0)

    def grow(self, size: int) -> None:
        more = size - self.time.size
        if more > 0:
            none = np.full(more, np.nan)
            for name in PER_SLOT:
                setattr(self, name, np.concatenate([getattr(self, name), none]))

    def move(self, old: Slots, new: Slots, size: int) -> None:
        """Rows ``old`` become rows ``new`` of ``size``; open windows follow, rows that are gone are let go."""
        for name in PER_SLOT:
            rows = np.full(size, np.nan)
            rows[new] = getattr(self, name)[old]
            setattr(self, name, rows)
        to = np.full(int(max(old.max(initial=-1), self._highest())) + 1, -1, np.int64)
        to[old] = new
        for window in self.windows.values():
            for i, slots in enumerate(window.slots):
                kept = to[slots] >= 0
                window.slots[i] = to[slots][kept]
                window.times[i], window.values[i] = window.times[i][kept], window.values[i][kept]

    def _highest(self) -> int:
        return max((int(s.max(initial=-1)) for w in self.windows.values() for s in w.slots), default=-1)


class Ring:
    """Samples in, telemetry ticks out. In memory; what a crash loses is read again or stays dark.

    Ticks stand on multiples of ``interval_s`` and close at ``at + lateness_s``. Arrays are as long as the highest slot
    heard of; ``fit`` brings a tick to the length of a fleet.
    """

    def __init__(self, metrics: Mapping[str, Metric], interval_s: float, lateness_s: float) -> None:
        self.interval_s = interval_s
        self.lateness_s = lateness_s
        self.late = 0
        self.skipped = 0
        self.dropped: Counter[str] = Counter()
        self._metrics = metrics
        self._tracks: dict[TrackKey, _Track] = {}
        self._parts: dict[str, set[str]] = {}
        self._sizes: dict[str, int] = {}
        self._closed: int | None = None
        self._covered: dict[int, list[tuple[float, float]]] = {}
        self._sources: dict[str, int] = {}
        self._held = 0
        self._started = False
        self._behind: set[int] = set()
        self._wait = (-math.inf, -math.inf)
        self._pushed = Pushed()

    # --- in ---------------------------------------------------------------------------------------------------------

    def accept(self, batch: Batch, slot_of: Callable[[DeviceLabel], int | None], now: float) -> None:
        """Take the samples of one read in. ``slot_of`` gives the row of a device; ``now`` in unix s.

        What belongs to a closed tick counts as late; what belongs to no row, or to the far future, as dropped.
        """
        by_metric: dict[TrackKey, tuple[list[int], list[Series]]] = {}
        known: dict[int, int | None] = {}  # the metrics of a device share its label
        for series in batch.series:
            metric, label = self._metrics.get(series.metric), series.label
            if metric is None or metric.axis != label.axis:
                self.dropped["metric not in the catalogue"] += series.times.size
                continue
            if id(label) not in known:
                known[id(label)] = slot_of(label)
            slot = known[id(label)]
            if slot is None:
                self.dropped["device or node not in the inventory"] += series.times.size
                continue
            if series.part and not self._has_room(metric, series.part):
                self.dropped["more parts of one metric than are kept apart"] += series.times.size
                continue
            slots, listed = by_metric.setdefault((*metric.key, series.part), ([], []))
            slots.append(slot)
            listed.append(series)
        columns = batch.columns
        firsts = [float(one.times[0]) for _, listed in by_metric.values() for one in listed if one.times.size]
        self._begin(firsts if columns is None else [*firsts, float(columns.times.min(initial=math.inf))], now)
        source = self._sources.setdefault(batch.source, len(self._sources))
        self._behind.discard(source if batch.series or columns else -1)
        self._cover(source, batch, now)
        for key, (slots, listed) in by_metric.items():
            self._take(key, slots, listed, source, now)
        if columns and self._closed is not None:
            self._take_columns(columns, source, slot_of, now)

    def _take_columns(
        self, columns: Columns, source: int, slot_of: Callable[[DeviceLabel], int | None], now: float
    ) -> None:
        """Samples by number: most are the only ones of their target in their tick, and only take their place."""
        targets, times, values = columns.targets, columns.times, columns.values
        seats = self._pushed.seats(columns.book)
        known = seats.settled(targets, slot_of, self._seat)
        if not known.all():
            self._drop("device or node not in the inventory", int(np.count_nonzero(~known)))
            targets, times, values = targets[known], times[known], values[known]
        assert self._closed is not None
        ahead = times > now + MAX_AHEAD_S
        ticks = np.where(ahead, self._closed, np.ceil(times / self.interval_s)).astype(np.int64)
        beside = ticks <= self._closed
        if beside.any():
            self._drop("from the future", int(np.count_nonzero(ahead)))
            self.late += int(np.count_nonzero(beside & ~ahead))
            targets, times, values, ticks = targets[~beside], times[~beside], values[~beside], ticks[~beside]
        room = max(0, MAX_HELD - self._held)
        self._drop("the ring is full", times.size - room)
        self._held += min(room, times.size)
        self._pushed.hold(seats, ticks[:room], targets[:room], times[:room], values[:room], source)

    def _seat(self, metric: str, label: DeviceLabel, part: str, slot: int) -> TrackKey | None:
        """The track of a target that has a row; None where there is no room for its part."""
        known = self._metrics.get(metric)
        if known is None or known.axis != label.axis or (part and not self._has_room(known, part)):
            return None
        key = (*known.key, part)
        self._tracks.setdefault(key, _Track(known))
        self._sizes[known.axis] = max(self._sizes.get(known.axis, 0), slot + 1)
        return key

    def _has_room(self, metric: Metric, part: str) -> bool:
        known = self._parts.setdefault(metric.name, set())
        if part not in known and len(known) < MOST_PARTS:
            known.add(part)
        return part in known

    def last_seen(self, axis: str) -> Floats:
        """Per row of an axis the time (unix s) of its newest sample in a closed tick, of whatever metric; NaN = never.
        Empty before the first tick closed."""
        tracks = [track.time for (kind, _, _), track in self._tracks.items() if kind == axis]
        seen = np.full(max((times.size for times in tracks), default=0), np.nan)
        for times in tracks:
            seen[: times.size] = np.fmax(seen[: times.size], times)
        return seen

    def _begin(self, firsts: list[float], now: float) -> None:
        """The first samples say where time begins, though not further back than MAX_BACK_S; every tick that could not
        have closed yet is open, so that the order of the first batches does not matter."""
        if self._closed is not None:
            return
        firsts = [first for first in firsts if math.isfinite(first)]
        if firsts:
            first = math.ceil(max(min(firsts), now - MAX_BACK_S) / self.interval_s)
            self._closed = min(first - 1, self._closable(now))

    def live(self, now: float) -> None:
        """Let time begin by ``now`` (unix s), also where no sample ever comes: who waits for a step needs ticks."""
        self._begin([now], now)
        self._started = True

    def _closable(self, now: float) -> int:
        """The last tick that has closed by ``now``."""
        return math.floor((now - self.lateness_s) / self.interval_s + 1e-9)

    def _take(self, key: TrackKey, slots: list[int], listed: list[Series], source: int, now: float) -> None:
        lengths = np.fromiter((one.times.size for one in listed), np.int64, len(listed))
        rows = np.repeat(np.array(slots, np.int64), lengths)
        if not rows.size or self._closed is None:
            return
        times = np.concatenate([one.times for one in listed])
        values = np.concatenate([one.values for one in listed])
        if self._metrics[key[1]].kind == "since":
            values = times - values
        track = self._tracks.setdefault(key, _Track(self._metrics[key[1]]))
        size = self._sizes[key[0]] = max(self._sizes.get(key[0], 0), int(rows.max()) + 1)
        track.grow(size)
        good = np.isfinite(times)
        ahead = good & (times > now + MAX_AHEAD_S)
        with np.errstate(invalid="ignore"):
            ticks = np.where(good & ~ahead, np.ceil(times / self.interval_s), self._closed).astype(np.int64)
        late = good & ~ahead & (ticks <= self._closed)
        self.late += int(np.count_nonzero(late))
        self._drop("from the future", int(np.count_nonzero(ahead)))
        self._drop("time that is no number", int(np.count_nonzero(~good)))
        kept = np.flatnonzero(ticks > self._closed)
        room = max(0, MAX_HELD - self._held)
        self._drop("the ring is full", kept.size - room)
        self._hold(track, source, ticks, (rows, times, values), kept[:room])

    def _hold(
        self, track: _Track, source: int, ticks: Slots, samples: tuple[Slots, Floats, Floats], kept: NDArray[np.intp]
    ) -> None:
        self._held += kept.size
        rows, times, values = samples
        values = np.where(np.isinf(values), np.nan, values)
        for tick in np.unique(ticks[kept]):
            here = kept[ticks[kept] == tick]
            window = track.windows.setdefault(int(tick), Window())
            window.sources.append(source)
            window.slots.append(rows[here])
            window.times.append(times[here])
            window.values.append(values[here])

    def _drop(self, reason: str, count: int) -> None:
        if count > 0:
            self.dropped[reason] += count

    def _cover(self, source: int, batch: Batch, now: float) -> None:
        """Remember which time a reading source has seen whole; spans that touch become one."""
        start, end = batch.start, min(batch.end, now + MAX_AHEAD_S)
        if not (math.isfinite(start) and start < end):
            return
        spans = sorted([*self._covered.get(source, ()), (start, end)])
        joined = [spans[0]]
        for first, last in spans[1:]:
            if first <= joined[-1][1] + 1e-3:
                joined[-1] = (joined[-1][0], max(joined[-1][1], last))
            else:
                joined.append((first, last))
        self._covered[source] = joined[-GAP_TICKS:]

    # --- out --------------------------------------------------------------------------------------------------------

    def due(self, now: float) -> Iterator[Tick]:
        """Telemetry ticks that have closed by ``now`` (unix s), in order, each once. Nothing before the first sample.

        A silence of more than GAP_TICKS is skipped, but for its last GAP_TICKS; ``skipped`` counts the ticks.
        """
        if self._closed is None or (self._behind and self._wait[0] <= now < self._wait[1]):
            return
        self._behind.clear()
        last = self._closable(now)
        while self._closed < last:
            tick = self._closed + 1
            if last - self._closed > GAP_TICKS and (to := self._next(tick, last)) > tick:
                self.skipped += to - tick
                tick = to
            self._closed = tick
            self._pour(tick)
            self._started = self._started or any(tick in track.windows for track in self._tracks.values())
            if self._started:
                yield self._tick(tick)

    def _next(self, tick: int, last: int) -> int:
        """The next tick that holds something, or the first of the last GAP_TICKS."""
        held = [index for track in self._tracks.values() for index in track.windows if tick <= index]
        held += [index for index in self._pushed.ticks() if tick <= index]
        return max(tick, min([last - GAP_TICKS + 1, *held]))

    def _pour(self, index: int) -> None:
        """What came by number for a tick becomes chunks of its windows, by row."""
        for key, source, slots, times, values in self._pushed.poured(index):
            track = self._tracks[key]
            track.grow(self._sizes[key[0]])
            if track.metric.kind == "since":
                values = times - values
            window = track.windows.setdefault(index, Window())
            window.sources.append(source)
            window.slots.append(slots)
            window.times.append(times)
            window.values.append(values)

    def _tick(self, index: int) -> Tick:
        at = index * self.interval_s
        values: dict[MetricKey, FloatArray] = {}
        sampled: dict[MetricKey, BoolArray] = {}
        for (axis, name, _), track in self._tracks.items():
            track.grow(self._sizes[axis])
            key, column, asked = (axis, name), *self._close(track, index, at)
            if key in values:
                column, asked = _joined(track.metric, values[key], column), sampled[key] | asked
            values[key], sampled[key] = column, asked
        for source, spans in self._covered.items():
            self._covered[source] = [span for span in spans if span[1] > at]
        return Tick(at, values, sampled)

    def _close(self, track: _Track, index: int, at: float) -> tuple[FloatArray, BoolArray]:
        """Values and sampled of one metric at one tick; the track moves on to it."""
        size = track.time.size
        values, came = np.full(size, np.nan), np.zeros(size, np.bool_)
        expected = self._expected(track, at)
        window = track.windows.pop(index, Window())
        reach = self._reach(track, window, at)
        if window.size:
            self._held -= window.size
            slots, times, raw = window.sorted()
            if track.metric.kind == "counter":
                slots, times, raw = numbers(slots, times, raw)
                rates(track, slots, times, raw, values)
            else:
                levels(slots, raw, values)
            came[slots] = True
            self._remember(track, window, slots, times, raw)
        seen = np.isfinite(track.time)
        with np.errstate(invalid="ignore"):
            missing = np.where(came, seen & (track.metric.kind != "counter"), expected <= reach)
        return values.astype(np.float32), np.isfinite(values) | missing

    def _remember(self, track: _Track, window: Window, slots: Slots, times: Floats, raw: Floats) -> None:
        remember(track, slots, times, raw, self.interval_s)
        for source, rows in zip(window.sources, window.slots, strict=True):
            track.source[rows] = source

    def _expected(self, track: _Track, at: float) -> Floats:
        """When each row's next sample should have come, where that lies in this tick; NaN for rows not due.

        A little of a cadence early, so that a sample on a tick's edge is asked for in the tick after it.
        """
        known = track.cadence[np.isfinite(track.cadence)]
        usual = float(np.median(known)) if known.size else math.nan
        cadence = np.where(np.isfinite(track.cadence), track.cadence, usual)
        with np.errstate(invalid="ignore"):
            slack = JITTER * cadence
            nth = np.floor((at - slack - track.time) / cadence)
            before = np.floor((at - self.interval_s - slack - track.time) / cadence)
            due = (nth >= 1) & (nth > before)
            return np.where(due, track.time + nth * cadence - slack, np.nan)

    def _reach(self, track: _Track, window: Window, at: float) -> Floats:
        """Per row, up to where in this tick its source looked: a row that should have spoken before that is missing,
        one that should have spoken after it is unseen. A source looked where a read says so, or where samples came.
        """
        begin, newest = at - self.interval_s, window.newest()
        by_source = np.full(len(self._sources) + 1, -math.inf)
        for source in self._sources.values():
            ends = [end for start, end in self._covered.get(source, ()) if start <= begin + 1e-3]
            by_source[source] = max([newest.get(source, -math.inf), *ends])
        return by_source[np.nan_to_num(track.source, nan=-1).astype(np.int64)]

    # --- restarts -----------------------------------------------------------------------------------------------------

    def saved(self, at: float | None = None) -> dict[str, NDArray[Any]]:
        """What a restart needs to go on as if nothing had been: the last closed tick and what every track remembers.
        Metrics that are scraped together share their arrays. Samples of open ticks are not in it: they are read again.

        at: the tick that is being judged (unix s), where that is not the last one.
        """
        if self._closed is None:
            return {}
        closed = self._closed if at is None else min(self._closed, round(at / self.interval_s))
        distinct: list[Floats] = []
        tracks = sorted(self._tracks.items())
        which = np.full((len(tracks), len(PER_SLOT)), -1, np.int32)
        for row, (_, track) in enumerate(tracks):
            for column, name in enumerate(PER_SLOT):
                if track.metric.kind == "counter" or name not in OF_COUNTERS:
                    which[row, column] = _place_of(getattr(track, name), distinct)
        return {
            "closed": np.array([closed, self._started], np.int64),
            "sources": np.array(list(self._sources), np.str_),
            "metrics": np.array([" ".join(key) for key, _ in tracks], np.str_),
            "which": which,
            **{f"array{place}": array for place, array in enumerate(distinct)},
        }

    def restore(self, saved: Mapping[str, NDArray[Any]], now: float) -> bool:
        """Go on behind what ``saved`` gave; False, and nothing done, for a ring that has begun. ``now`` in unix s.

        No tick closes until every source of samples has brought some, or for one interval and one lateness: first comes
        what was missed (``behind_since``). A ring of the future is one of a wrong clock, and is let go.
        """
        if self._closed is not None or "closed" not in saved or int(saved["closed"][0]) > self._closable(now) + 1:
            return False
        self._closed, self._started = int(saved["closed"][0]), bool(saved["closed"][1])
        self._sources = {str(source): place for place, source in enumerate(saved["sources"])}
        self._wait = (now, now + self.interval_s + self.lateness_s)
        for key, places in zip(saved["metrics"].tolist(), saved["which"].tolist(), strict=True):
            axis, name, part = (*key.split(" ", 2), "")[:3]
            metric = self._metrics.get(name)
            if metric is not None and metric.axis == axis:
                arrays = {n: saved[f"array{at}"].copy() for n, at in zip(PER_SLOT, places, strict=True) if at >= 0}
                self._tracks[(*metric.key, part)] = _restored(metric, arrays)
                self._parts.setdefault(name, set()).add(part)
                self._behind |= {int(source) for source in np.unique(arrays["source"]) if source >= 0}
                self._sizes[axis] = max(self._sizes.get(axis, 0), arrays["time"].size)
        return True

    def behind_since(self) -> float | None:
        """Up to where (unix s) a restored ring had seen all, while it waits for what came since; else None."""
        return self._closed * self.interval_s if self._behind and self._closed is not None else None

    # --- fleets -----------------------------------------------------------------------------------------------------

    def move(self, old: Fleet, new: Fleet) -> None:
        """Rows follow their ids into another fleet; open ticks follow too."""
        for index in self._pushed.ticks():
            self._pour(index)
        self._pushed.unseat()
        for key, track in self._tracks.items():
            before, after = old.axes.get(key[0]), new.axes.get(key[0])
            if before is None or after is None or before.ids == after.ids[: len(before)]:
                continue  # rows were only added, at the end
            track.grow(max(len(before), track.time.size))
            pairs = [(i, to) for i, id_ in enumerate(before.ids) if (to := new.slots.get((key[0], id_))) is not None]
            pairs += [(i, i) for i in range(len(before), track.time.size) if i < len(after)]
            both = np.array(pairs, np.int64).reshape(-1, 2)
            track.move(both[:, 0], both[:, 1], max(len(after), int(both[:, 1].max(initial=-1)) + 1))
        for kind, axis in new.axes.items():
            self._sizes[kind] = max(len(axis), self._sizes.get(kind, 0))


def fit(tick: Tick, fleet: Fleet) -> Tick:
    """The tick with arrays as long as the axes of ``fleet``: rows that came after it were not sampled in it."""
    if all(array.size == len(fleet.axes[key[0]]) for key, array in tick.values.items()):
        return tick
    values: dict[MetricKey, FloatArray] = {}
    sampled: dict[MetricKey, BoolArray] = {}
    for key, array in tick.values.items():
        size = len(fleet.axes[key[0]])
        shared = min(size, array.size)
        values[key], sampled[key] = np.full(size, np.nan, np.float32), np.zeros(size, np.bool_)
        values[key][:shared] = array[:shared]
        sampled[key][:shared] = tick.sampled[key][:shared]
    return Tick(tick.at, values, sampled, tick.events)


def _joined(metric: Metric, one: FloatArray, other: FloatArray) -> FloatArray:
    """Two parts of each row as one; a part that is missing adds nothing."""
    if metric.join == "max":
        larger: FloatArray = np.fmax(one, other)
        return larger
    total: FloatArray = np.where(np.isnan(one), other, one + np.nan_to_num(other))
    return total


# --- saved tracks ---------------------------------------------------------------------------------------------------


def _place_of(array: Floats, distinct: list[Floats]) -> int:
    """Where an array of the very same bits stands in ``distinct``, which it joins if there is none."""
    bits = array.view(np.uint64)
    for place, known in enumerate(distinct):
        if np.array_equal(known.view(np.uint64), bits):
            return place
    distinct.append(array)
    return len(distinct) - 1


def _restored(metric: Metric, arrays: Mapping[str, Floats]) -> _Track:
    track = _Track(metric)
    size = arrays["time"].size
    for name in PER_SLOT:
        array = arrays.get(name)
        setattr(track, name, array if array is not None and array.size == size else np.full(size, np.nan))
    return track
