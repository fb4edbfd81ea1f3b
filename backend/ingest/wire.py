"""The hot loops of remote write, compiled: a WriteRequest walked, series found by the hash of their labels, samples
sorted out. Whatever is odd is left to ``remote_write``, which says what is wrong at which byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Places = NDArray[np.int64]
Ids = NDArray[np.int32]
Floats = NDArray[np.float64]

#: What becomes of a series. FAST: its samples go by number; SLOW: its labels are read; the others are only counted.
FAST, SLOW, UNKNOWN, NOBODY, INSTANCE = 0, 1, 2, 3, 4
#: How many fates there are.
FATES = 5
#: Places of the counts of ``sort_out``: samples dropped by reason.
NAN, INFINITE, BLANK, OUTSIDE = 0, 1, 2, 3
#: The NaN that Prometheus writes where a series ended.
STALE = 0x7FF0000000000002


def compiled(function: F) -> F:
    """Machine code at the first call, kept on disk where there is a place for it; it runs beside other threads."""
    try:
        return cast(F, njit(cache=True, nogil=True)(function))
    except RuntimeError:  # nowhere to keep it: compiled anew in each process
        return cast(F, njit(nogil=True)(function))


@compiled
def _varint(raw: Bytes, at: int, end: int) -> tuple[int, int]:
    """(value, position after it); position -1 where it is cut off or is none."""
    value: Any = 0
    shift = 0
    while at < end and shift < 63:
        byte = np.int64(raw[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, -1


@compiled
def _skip(raw: Bytes, at: int, end: int, kind: int) -> int:
    """The position after a field that is not ours; -1 for one that is odd."""
    if kind == 0:
        while at < end and raw[at] >= 0x80:
            at += 1
        return at + 1 if at < end else -1
    if kind == 1 or kind == 5:
        at += 8 if kind == 1 else 4
        return at if at <= end else -1
    if kind != 2:
        return -1
    size, at = _varint(raw, at, end)
    return at + size if at >= 0 and size <= end - at else -1


@compiled
def _hashed(words: Words, at: int, end: int, seed: int, out: Words) -> None:
    """Two words of 64 bits of the bytes from ``at`` to ``end`` into ``out``: eight at a time, multiplied and folded.
    ``words``: all bytes, eight by eight, least first, with two words to spare."""
    one, two = np.uint64(seed), np.uint64(seed) ^ np.uint64(0x9E3779B97F4A7C15)
    place, by = np.uint64(at >> 3), np.uint64(8 * (at & 7))
    left, many = np.uint64(64) - by, (end - at) >> 3
    if by == 0:
        left = np.uint64(0)  # the word after is taken whole, and means nothing
    spare = np.uint64(0) if by == 0 else ~np.uint64(0)
    for _ in range(many >> 1):
        first = words[place] >> by | (words[place + np.uint64(1)] << left) & spare
        second = words[place + np.uint64(1)] >> by | (words[place + np.uint64(2)] << left) & spare
        one = (one ^ first) * np.uint64(0xFF51AFD7ED558CCD)
        two = (two ^ second) * np.uint64(0xC4CEB9FE1A85EC53)
        one ^= one >> np.uint64(32)
        two ^= two >> np.uint64(29)
        place += np.uint64(2)
    if many & 1:
        first = words[place] >> by | (words[place + np.uint64(1)] << left) & spare
        one = (one ^ first) * np.uint64(0xFF51AFD7ED558CCD)
        one ^= one >> np.uint64(32)
        place += np.uint64(1)
    rest = np.uint64((end - at) & 7)
    if rest > 0:
        last = words[place] >> by | (words[place + np.uint64(1)] << left) & spare
        last &= (np.uint64(1) << (np.uint64(8) * rest)) - np.uint64(1)
        two = (two ^ last) * np.uint64(0xC4CEB9FE1A85EC53)
        two ^= two >> np.uint64(29)
    one = (one ^ two ^ np.uint64(end - at)) * np.uint64(0x9E3779B97F4A7C15)
    out[0] = one ^ one >> np.uint64(31)
    out[1] = two if two != 0 else np.uint64(1)


@compiled
def count(raw: Bytes) -> int:
    """How many series a request holds; -1 for one that is odd."""
    at, end, found = 0, raw.size, 0
    while at < end:
        tag, at = _varint(raw, at, end)
        if at < 0 or tag >> 3 == 0:
            return -1
        found += tag == 10
        at = _skip(raw, at, end, tag & 7)
        if at < 0:
            return -1
    return found


@compiled
def _sample(raw: Bytes, at: int, end: int, bits: Words, times: Floats, place: int) -> bool:
    """One Sample: value = 1 as eight bytes, time = 2 in ms; what is zero is left out. False for one that is odd."""
    word, time_ms = np.uint64(0), 0
    while at < end:
        tag = raw[at]
        at += 1
        if tag == 9 and end - at >= 8:
            word = np.uint64(0)
            for i in range(8):
                word |= np.uint64(raw[at + i]) << np.uint64(8 * i)
            at += 8
        elif tag == 16:
            time_ms, at = _varint(raw, at, end)
            if at < 0:
                return False
        else:
            return False
    bits[place], times[place] = word, time_ms / 1000.0
    return True


@compiled
def walk(raw: Bytes, words: Words, seed: int, most_labels: int, out: Any) -> int:  # noqa: C901 - one pass over the bytes
    """Every series of a request that ``count`` passed: where it stands (spans int64[m, 2]), the hash of its labels
    (uint64[m, 2]; the second 0 where they do not lie side by side), where its samples begin (firsts int64[m + 1]), and
    all samples, their values as bits. Returns how many samples there are, -1 for what is odd, -2 for no room."""
    spans, hashes, firsts, times, bits = out
    at, end, one, filled = 0, raw.size, 0, 0
    while at < end:
        tag, at = _varint(raw, at, end)
        if tag != 10:
            at = _skip(raw, at, end, tag & 7)
            continue
        size, at = _varint(raw, at, end)
        last = at + size
        spans[one, 0], spans[one, 1], firsts[one] = at, last, filled
        from_, to, labels, side_by_side = at, at, 0, True
        while at < last:
            begin = at
            if side_by_side and raw[at] == 10 and at + 1 < last and raw[at + 1] < 0x80 and (labels == 0 or begin == to):
                at = at + 2 + np.int64(raw[at + 1])  # type: ignore[assignment] # a label as nearly all are
                if at > last:
                    return -1
                from_ = begin if labels == 0 else from_
                to = at
                labels += 1
                continue
            tag, at = _varint(raw, at, last)
            body, at = at, _skip(raw, at, last, tag & 7) if at >= 0 and tag >> 3 != 0 else -1
            if at < 0:
                return -1
            if tag == 10:
                side_by_side = side_by_side and (labels == 0 or begin == to)
                from_ = begin if labels == 0 else from_
                to = at
                labels += 1
            elif tag == 18:
                if filled == times.size:
                    return -2
                size, body = _varint(raw, body, last)
                if not _sample(raw, body, at, bits, times, filled):
                    return -1
                filled += 1
        if labels > most_labels:
            return -1
        hashes[one, 1] = 0  # none yet
        if side_by_side:
            _hashed(words, from_, to, seed, hashes[one])
        one += 1
    firsts[one] = filled
    return filled


@compiled
def labels_in(raw: Bytes, at: int, end: int, spans: Places) -> int:
    """Where the Labels of one series that ``walk`` passed stand, into ``spans`` (int64[k, 2]). Returns how many."""
    found = 0
    while at < end:
        tag, at = _varint(raw, at, end)
        if tag == 10:
            size, at = _varint(raw, at, end)
            spans[found, 0], spans[found, 1] = at, at + size
            found += 1
            at += size
        else:
            at = _skip(raw, at, end, tag & 7)
    return found


# --- tables ---------------------------------------------------------------------------------------------------------


@compiled
def find(keys: Words, numbers: Ids, one: Any, two: Any) -> int:
    """The number under two words in an open table of 2^k places; -1 for none. A second word of 0 is an empty place."""
    mask = np.uint64(numbers.size - 1)
    at = np.uint64(one) & mask
    while keys[at, 1] != 0:
        if keys[at, 0] == one and keys[at, 1] == two:
            return numbers[at]  # type: ignore[no-any-return] # a machine integer
        at = (at + np.uint64(1)) & mask
    return -1


@compiled
def put(keys: Words, numbers: Ids, one: Any, two: Any, number: int) -> None:
    """Set what stands under two words; the table has room."""
    mask = np.uint64(numbers.size - 1)
    at = np.uint64(one) & mask
    while keys[at, 1] != 0 and not (keys[at, 0] == one and keys[at, 1] == two):
        at = (at + np.uint64(1)) & mask
    keys[at, 0], keys[at, 1], numbers[at] = one, two, number


@compiled
def refill(keys: Words, numbers: Ids, new_keys: Words, new_numbers: Ids, renumbered: Ids) -> None:
    """Every entry into another table under its new number (renumbered int32[old]); -1 lets it go."""
    for at in range(numbers.size):
        if keys[at, 1] != 0 and renumbered[numbers[at]] >= 0:
            put(new_keys, new_numbers, keys[at, 0], keys[at, 1], renumbered[numbers[at]])


@compiled
def find_all(keys: Words, numbers: Ids, hashes: Words, out: Ids) -> None:
    """``find`` for each row of ``hashes``; -1 also where there is no hash."""
    for i in range(out.size):
        out[i] = find(keys, numbers, hashes[i, 0], hashes[i, 1]) if hashes[i, 1] != 0 else -1


# --- sorting out ----------------------------------------------------------------------------------------------------


@compiled
def route(
    series: Ids,
    firsts: Places,
    times: Floats,
    now: float,
    stamp: int,
    waits: Floats,
    of_series: tuple[Bytes, Ids, Ids, Floats, Floats],
    of_targets: tuple[Ids, Ids, Places],
    fates: Bytes,
) -> None:
    """What becomes of each series of one push (fates uint8[m]).

    of_series: fate, target, who, last seen, told at; of_targets: who owns it, the series and the number of the last
    push. waits: after how long away, and how long after being told (by fate), a series is read anew, in s. Two label
    sets of one target in one push are read both, and so is one that names it otherwise than before.
    """
    fate, target, who, seen, told = of_series
    owner, last, stamps = of_targets
    for i in range(series.size):
        s = series[i]
        fates[i] = SLOW if s < 0 else fate[s]
        if s < 0:
            continue
        if now - seen[s] > waits[0] or now - told[s] > waits[1 + fate[s]]:
            fates[i] = SLOW
        seen[s] = now
        if fate[s] != FAST:
            continue
        for k in range(firsts[i] + 1, firsts[i + 1]):
            if times[k] <= times[k - 1]:
                fates[i] = SLOW
        t = target[s]
        if owner[t] != who[s] or (stamps[t] == stamp and last[t] != s):
            stamps[t], owner[t], last[t] = stamp, -1, -1  # nobody owns it until its labels were read
            fates[i] = SLOW
        else:
            stamps[t], last[t] = stamp, s
    for i in range(series.size):
        s = series[i]
        if fates[i] == FAST and owner[target[s]] != who[s]:
            fates[i] = SLOW


@compiled
def _blank(value: float) -> bool:
    """DCGM's "no value" numbers, as ``detectors.catalogue.blank`` has them."""
    if value < 2_147_483_632.0:
        return False
    if value >= 9_223_372_036_854_775_792.0:
        return True
    for scale in (1.0, 100.0):
        if 2_147_483_632.0 * scale <= value <= 2_147_483_646.0 * scale:
            return True
        if 140_737_488_355_328.0 * scale <= value <= 140_737_488_355_343.0 * scale:
            return True
    return False


@compiled
def _wrong(value: float, low: float, high: float, of_gpu: int) -> int:
    """Why a value means nothing; -1 for one that does, and for NaN, which says that there was none."""
    if np.isnan(value):
        return -1
    if np.isinf(value):
        return INFINITE
    if of_gpu and _blank(value):
        return BLANK
    return OUTSIDE if value < low or value > high else -1


@compiled
def sort_out(
    series: Ids,
    fates: Bytes,
    samples: tuple[Places, Floats, Words],
    of_series: tuple[Ids, Ids],
    of_targets: tuple[Ids, Floats, Floats, Bytes],
    of_nodes: tuple[Ids, Floats, float, float],
    out: tuple[Ids, Floats, Floats, Ids],
    counts: Places,
) -> tuple[int, int]:
    """The samples of FAST series: target, time and value, those that mean something, as ``samples.readable`` has it.

    Returns how many, and how many nodes (the fourth of ``out``) were not heard of for ``hear_s``. ``counts``: dropped
    by reason, then samples by fate.
    """
    firsts, times, bits = samples
    target, who = of_series
    node_of, heard, now, hear_s = of_nodes
    metric, low, high, of_gpu = of_targets
    targets, at, values, nodes = out
    raw = bits.view(np.float64)
    kept, told = 0, 0
    for i in range(series.size):
        counts[4 + fates[i]] += firsts[i + 1] - firsts[i]
        if fates[i] != FAST:
            continue
        s = series[i]
        node = node_of[who[s]]
        if now - heard[node] > hear_s:
            heard[node] = now
            nodes[told] = node
            told += 1
        t = target[s]
        m = metric[t]
        for k in range(firsts[i], firsts[i + 1]):
            value = raw[k]
            reason = _wrong(value, low[m], high[m], of_gpu[m])
            if reason >= 0:
                counts[reason] += 1
                continue
            counts[NAN] += np.isnan(value) and bits[k] != STALE
            targets[kept], at[kept], values[kept] = t, times[k], value
            kept += 1
    return kept, told
