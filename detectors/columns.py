"""Reading one tick by row, safe against columns that are missing, too short or too long."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from detectors.model import BoolArray, FloatArray, MetricKey, Tick


def asked(tick: Tick, key: MetricKey, n: int) -> BoolArray:
    """bool[n]: the rows this tick asked for the metric. Values that came without ``sampled`` count as asked."""
    values = tick.values.get(key)
    if values is None:
        return np.zeros(n, np.bool_)
    sampled = tick.sampled.get(key)
    out = np.zeros(n, np.bool_)
    if sampled is None:
        out[: len(values)] = True
    else:
        out[: len(sampled)] = sampled[:n]
    return out


def column(tick: Tick, key: MetricKey, n: int) -> FloatArray:
    """float32[n]: the metric where it was asked for and is finite, else NaN."""
    out = np.full(n, np.nan, np.float32)
    values = tick.values.get(key)
    if values is not None:
        out[: len(values)] = values[:n]
        out[~asked(tick, key, n) | ~np.isfinite(out)] = np.nan
    return out


def cell(tick: Tick, key: MetricKey, row: int) -> float | None:
    """One value: NaN where it is missing, None where this tick did not ask for it."""
    values, sampled = tick.values.get(key), tick.sampled.get(key)
    if values is None or not 0 <= row < len(values):
        return None
    if sampled is not None and not (row < len(sampled) and sampled[row]):
        return None
    return float(values[row])


def measures(tick: Tick, keys: Iterable[MetricKey]) -> bool:
    """False for an event-only tick: nothing at all was asked for under these keys."""
    return any(key in tick.values and bool(asked(tick, key, len(tick.values[key])).any()) for key in keys)
