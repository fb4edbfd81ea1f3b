"""The usual high of many rows, learnt from their own past in O(1) a sample: what a value must exceed to be unusual."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detectors.model import BoolArray, FloatArray

#: How far one look moves the estimate, in the unit of the values (logarithms here: 5 %).
STEP = np.float32(0.05)
#: Share of the looks that lie below the usual high. What recurs more often than that, a checkpoint say, is usual.
BELOW = np.float32(0.98)


def learn(high: FloatArray, looks: NDArray[np.int32], values: FloatArray, which: BoolArray, warm: int) -> None:
    """Fold one look of the rows ``which`` into ``high`` (in place), a quantile by stochastic approximation (Robbins and
    Monro): up by STEP x BELOW where the value lies above, down by STEP x (1 - BELOW) where below.

    In its first ``warm`` looks a row takes the highest value it sees. ``values`` are logarithms; NaN is not learnt.
    """
    rows = which & ~np.isnan(values)
    if not rows.any():
        return
    above = rows & (values > high)
    fresh = rows & (looks < warm)
    with np.errstate(invalid="ignore"):
        moved = np.where(above, high + STEP * BELOW, high - STEP * (1 - BELOW))
        high[:] = np.where(rows & ~fresh, moved, high)
        high[:] = np.where(fresh, np.fmax(high, values), high)
    looks[rows] = np.minimum(looks[rows] + 1, 30_000)


def over(high: FloatArray, looks: NDArray[np.int32], values: FloatArray, warm: int, by: float) -> BoolArray:
    """Rows that are known well enough and lie ``by`` above their usual high."""
    found: BoolArray = (looks >= warm) & (values > high + np.float32(by))
    return found


def leaky(total: FloatArray, rates: FloatArray, gap_s: NDArray[np.float64], over_s: float) -> FloatArray:
    """A total that forgets: what came in ``gap_s`` is added, what is old fades over ``over_s``. NaN adds nothing."""
    added = np.nan_to_num(np.maximum(rates, 0.0)) * gap_s
    found: FloatArray = (total * np.exp(-gap_s / over_s) + added).astype(np.float32)
    return found
