"""Fewer points for the same line: of every stretch its lowest and its highest, so that no spike is lost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Points of a line that a page draws at most: about two for each pixel it is wide.
MOST_POINTS = 2_400


def kept(values: NDArray[np.float64], most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Places of at most ``most`` (>= 8) of ``values`` [n], in order: the first and the last, and of each of equal
    stretches its lowest, its highest, and its first NaN and infinity, as a line has gaps there. O(n)."""
    size = len(values)
    if size <= most:
        return np.arange(size)
    stretches = (most - 2) // 4
    width = -(-size // stretches)
    padded = np.full(stretches * width, np.nan)
    padded[:size] = values
    rows = padded.reshape(stretches, width)
    finite = np.isfinite(rows)
    low = np.argmin(np.where(finite, rows, np.inf), axis=1)
    high = np.argmax(np.where(finite, rows, -np.inf), axis=1)
    gap, endless = np.argmax(np.isnan(rows), axis=1), np.argmax(np.isinf(rows), axis=1)
    starts = np.arange(stretches) * width
    found = np.concatenate([starts + low, starts + high, starts + gap, starts + endless])
    true = [finite.any(axis=1), finite.any(axis=1), np.isnan(rows).any(axis=1), np.isinf(rows).any(axis=1)]
    found = np.concatenate([found[np.concatenate(true)], [0, size - 1]])
    return np.unique(found[found < size]).astype(np.int64)


def binned(
    rows: NDArray[np.int64],
    at: NDArray[np.float64],
    values: NDArray[np.float64],
    shape: tuple[int, int],
    start: float,
    end: float,
) -> NDArray[np.float32]:
    """The highest value of each cell of a map: ``rows`` [n] place from the top, ``at`` [n] from ``start`` to ``end``
    over the columns of ``shape``. NaN where there is none."""  # fmt: skip
    height, width = shape
    found = np.full(height * width, -np.inf)
    good = np.isfinite(values) & (rows >= 0) & (rows < height) & (at >= start) & (at <= end)
    columns = np.minimum((at[good] - start) / max(end - start, 1e-9) * width, width - 1).astype(np.int64)
    np.maximum.at(found, rows[good] * width + columns, values[good])
    return np.where(np.isfinite(found), found, np.nan).astype(np.float32).reshape(height, width)
