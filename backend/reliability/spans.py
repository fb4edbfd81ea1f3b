"""Sets of time: arrays [k, 2] of disjoint, rising spans (unix s), and their sums."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Spans = NDArray[np.float64]

NONE: Spans = np.zeros((0, 2))
NONE.setflags(write=False)


def spans(pairs: Iterable[tuple[float, float]]) -> Spans:
    """The union of ``pairs``; those without a length say nothing."""
    found = np.array([pair for pair in pairs if pair[1] > pair[0]], np.float64).reshape(-1, 2)
    if len(found) < 2:
        return found
    found = found[np.argsort(found[:, 0], kind="stable")]
    ends = np.maximum.accumulate(found[:, 1])
    first = np.concatenate([[True], found[1:, 0] > ends[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.column_stack([found[first, 0], ends[last]])


def union(*sets: Spans) -> Spans:
    return spans((float(a), float(b)) for part in sets for a, b in part)


def within(these: Spans, low: float, high: float) -> Spans:
    """What of ``these`` lies from ``low`` to ``high``."""
    if high <= low:
        return NONE
    cut = np.clip(these, low, high)
    return cut[cut[:, 1] > cut[:, 0]]


def without(low: float, high: float, taken: Spans) -> Spans:
    """What ``taken`` leaves of the span from ``low`` to ``high``."""
    if high <= low:
        return NONE
    inner = within(taken, low, high)
    edges = np.concatenate([[low], inner.ravel(), [high]]).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]


def minus(these: Spans, taken: Spans) -> Spans:
    """``these`` without ``taken``."""
    parts = [without(float(low), float(high), taken) for low, high in these]
    return np.concatenate(parts) if parts else NONE


def length(these: Spans) -> float:
    """Seconds in all."""
    return float((these[:, 1] - these[:, 0]).sum())


def until(these: Spans, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds of ``these`` before each of ``at`` (rising or not): overlaps are differences of it."""
    if not len(these):
        return np.zeros(len(at))
    sums = np.concatenate([[0.0], np.cumsum(these[:, 1] - these[:, 0])])
    before: NDArray[np.float64] = np.interp(at, these.ravel(), np.repeat(sums, 2)[1:-1])
    return before
