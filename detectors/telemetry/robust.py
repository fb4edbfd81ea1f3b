"""Median and MAD of many groups at once: the peers a member is measured against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.model import BoolArray, FloatArray, IntArray

#: Makes the median absolute deviation of normal noise its standard deviation: 1 / 0.67449.
MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True, eq=False)
class PeerGroups:
    """For m metrics and g groups: ``median`` and ``mad`` float32[m, g] (NaN where nobody reports) and ``count``
    int[m, g], the members that do, of the whole group."""

    median: FloatArray
    mad: FloatArray
    count: NDArray[np.int64]


def group_statistics(values: FloatArray, starts: IntArray, exact: int) -> PeerGroups:
    """values float32[m, k] with the members of each group next to each other; ``starts`` int[g + 1] ends with k.

    Exact up to ``exact`` members; above it ``exact`` members at an even stride speak for the group. NaN = absent.
    Groups of one size are done together, so the cost is a sort of every member and little for each size.
    """
    metrics, groups = len(values), len(starts) - 1
    median = np.full((metrics, groups), np.nan, np.float32)
    mad = np.full((metrics, groups), np.nan, np.float32)
    sizes = np.diff(starts)
    for size in np.unique(sizes[sizes > 0]):
        which = np.flatnonzero(sizes == size)
        asked = int(min(size, exact))
        picks = starts[which][:, None] + (np.arange(asked, dtype=np.int64) * int(size)) // asked
        members = values[:, picks]
        centre = _middle(np.sort(members, axis=2))
        median[:, which] = centre
        mad[:, which] = _middle(np.sort(np.abs(members - centre[:, :, None]), axis=2))
    return PeerGroups(median, mad, np.stack([per_group(~np.isnan(row), starts) for row in values]))


def per_group(rows: BoolArray, starts: IntArray) -> NDArray[np.int64]:
    """int64[g]: how many rows of each group are set."""
    totals = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(rows, out=totals[1:])
    counts: NDArray[np.int64] = totals[starts[1:]] - totals[starts[:-1]]
    return counts


def _middle(ordered: FloatArray) -> FloatArray:
    """Median along the last axis of sorted values; NaN, sorted last, does not count."""
    count = np.sum(~np.isnan(ordered), axis=2)
    low = np.take_along_axis(ordered, np.maximum((count - 1) // 2, 0)[:, :, None], axis=2)[:, :, 0]
    high = np.take_along_axis(ordered, np.minimum(count // 2, ordered.shape[2] - 1)[:, :, None], axis=2)[:, :, 0]
    middle: FloatArray = (low + high) / np.float32(2)
    return middle
