"""What training rows say of one attempt: when steps were finished, how long a step and a row are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.reliability.history import Floats, Ints, StepTable

#: A row may take this many times the usual distance of rows before it is missed.
ROW_SLACK = 1.25


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """Finished steps of one attempt in order of time: several ranks and repeated rows are one row.

    at, step, step_s, weight are of one length: weight is the share of replicas that lived, 1 where not said.
    stride: steps a row, 0 = one row alone does not say. gap_s: the median distance of rows; pace_s: the median length
    of a step; both NaN where nothing says it.
    """

    at: Floats
    step: Ints
    step_s: Floats
    weight: Floats
    stride: int
    gap_s: float
    pace_s: float

    def own_s(self, first: int, before: int | None) -> float:
        """Seconds of the own steps of row ``first``, the first one after a start or a load. ``before``: the step that
        was loaded, None = not said."""
        steps = max(self.stride, 1)
        if before is not None and 0 < self.step[first] - before < steps:
            steps = int(self.step[first] - before)
        length = self.step_s[first] if np.isfinite(self.step_s[first]) else self.pace_s
        return float(steps * length) if np.isfinite(length) else 0.0

    @property
    def hang_after_s(self) -> float:
        """Silence longer than this is a hang: max(3 x median step, 60 s) by contracts.md, and never less than a row
        takes at its slowest: until then none was due."""
        told = [3 * self.pace_s, ROW_SLACK * self.gap_s]
        return max([60.0, *(t for t in told if np.isfinite(t))])


def progress(rows: StepTable, loads: Floats) -> Progress:
    """Of the rows of one attempt in any order. ``loads``: when loads ended; the same step after a load is a new one."""
    if not len(rows):
        return Progress(rows.at, rows.step, rows.step_s, rows.at, 0, float("nan"), float("nan"))
    rows = rows.take(_one_a_step(rows, loads))
    gaps, strides = np.diff(rows.at), np.diff(rows.step)
    rising = strides[strides > 0]
    stride = max(int(np.median(rising)), 1) if len(rising) else 0
    told = rows.step_s[np.isfinite(rows.step_s) & (rows.step_s > 0)]
    gap_s = float(np.median(gaps)) if len(gaps) else float("nan")
    pace_s = float(np.median(told)) if len(told) else gap_s / max(stride, 1)
    return Progress(rows.at, rows.step, rows.step_s, _weight(rows), stride, gap_s, pace_s)


def _one_a_step(rows: StepTable, loads: Floats) -> NDArray[np.int64]:
    """Places of one row a step, rising in time: of several the middle one, which one wrong clock does not move."""
    part = np.searchsorted(np.sort(loads), rows.at, side="left")
    order = np.lexsort((rows.at, rows.step, part))
    new = np.concatenate([[True], (np.diff(rows.step[order]) != 0) | (np.diff(part[order]) != 0)])
    starts = np.flatnonzero(new)
    sizes = np.diff(np.concatenate([starts, [len(order)]]))
    middle = order[starts + (sizes - 1) // 2]
    kept: NDArray[np.int64] = middle[np.argsort(rows.at[middle], kind="stable")]
    return kept


def _weight(rows: StepTable) -> Floats:
    """The share of the work that was merged, by tokens where rows of the whole run tell how many there are, else by
    replicas; 1 where neither is said."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share = rows.live / rows.total
    weight: Floats = np.where(np.isfinite(share), np.clip(share, 0.0, 1.0), 1.0)
    full = rows.tokens[(share >= 1) & (rows.tokens > 0)]
    if len(full):  # what was merged says more than who was there: one that joins late or lags brings nothing yet
        merged = np.clip(rows.tokens / float(np.median(full)), 0.0, 1.0)
        weight = np.where(np.isfinite(share) & (weight > 0) & np.isfinite(merged), merged, weight)
    return weight
