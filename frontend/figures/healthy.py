"""Healthy GPUs in the last 24 h: one step line, exact at every change."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from frontend.figures.draw import drawn
from frontend.figures.encode import milliseconds, typed
from frontend.figures.theme import Theme, axis, layout, line, time_axis


def healthy(times: NDArray[np.float64], counts: NDArray[np.float32], theme: Theme, narrow: bool) -> dict[str, Any]:
    """``times`` unix s and ``counts`` from each time on, both [n], n >= 1; the last point is now."""
    trace = {
        "type": "scatter",
        "mode": "lines",
        "x": milliseconds(times),
        "y": typed(np.asarray(counts, np.float32)),
        "line": line(theme, shape="hv"),
        "hovertemplate": "%{x|%H:%M} UTC: %{y:,} healthy<extra></extra>",
    }
    low, high = floor(counts), float(np.nanmax(counts))
    room = max(1.0, (high - low) * 0.08)
    return drawn(
        [trace],
        layout(
            theme,
            margin={"l": 44, "r": 12, "t": 10, "b": 26},
            yaxis=axis(theme, range=[low, high + room], nticks=4, tickformat=",d", rangemode="nonnegative"),
            xaxis=time_axis(theme, 4 if narrow else 6, float(times[0]), float(times[-1])),
        ),
    )


def floor(counts: NDArray[np.float32]) -> float:
    """Where the axis starts: low enough that a change of one GPU is seen, never below zero; the caption says it."""
    low, high = float(np.nanmin(counts)), float(np.nanmax(counts))
    step = max(1.0, high - low, high * 0.01)
    return max(0.0, float(np.floor((low - step) / 5) * 5))
