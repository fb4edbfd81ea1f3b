"""Rates with their intervals: over time as a band, by size of job beside the model; curves of plans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frontend.figures.draw import drawn
from frontend.figures.theme import Theme, axis, font, layout, line, time_axis, words

#: Ticks of a log axis of hours, in human units.
HOURS = ((0.25, "15 min"), (1, "1 h"), (6, "6 h"), (24, "1 day"), (168, "1 week"), (720, "30 days"), (4320, "180 days"),
         (26_280, "3 years"))  # fmt: skip
MINUTES = (
    (1 / 60, "1 min"),
    (5 / 60, "5 min"),
    (0.25, "15 min"),
    (1, "1 h"),
    (4, "4 h"),
    (24, "1 day"),
    (168, "1 week"),
)
#: A log axis spans at least this factor: one point alone must still be read.
LEAST_SPAN = 30.0
#: Ticks of a log axis of sizes.
DOUBLES = tuple((float(2**k), f"{2**k:,}") for k in range(21))


@dataclass(frozen=True, slots=True)
class Point:
    """At x (unix s, or a size): value None = not known; low, high its interval."""

    x: float
    value: float | None
    low: float | None
    high: float | None


def trend(points: Sequence[Point], theme: Theme, narrow: bool, unit: str, top: float | None = None) -> dict[str, Any]:
    """A line with its band over time; gaps stay gaps. ``top``: where the axis ends (a share ends at 1)."""
    x = [p.x * 1000 for p in points]
    edge = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    band = theme["fig-band"]
    low = {**edge, "x": x, "y": [p.low for p in points]}
    high = {**edge, "x": x, "y": [p.high for p in points], "fill": "tonexty", "fillcolor": band}
    middle = {
        "type": "scatter",
        "mode": "lines+markers" if len(points) <= 120 else "lines",
        "x": x,
        "y": [p.value for p in points],
        "line": line(theme),
        "marker": {"size": 5, "color": theme["fig-line"]},
        "hovertemplate": "%{x|%d %b}: %{y:.3~g}<extra></extra>",
    }
    most = max([0.0, *(v for p in points for v in (p.value, p.high) if v is not None and math.isfinite(v))])
    return drawn(
        [low, high, middle],
        layout(
            theme,
            margin={"l": 44, "r": 12, "t": 10, "b": 28},
            yaxis=axis(theme, range=[0, top or (most * 1.08 or 1.0)], nticks=5,
                       title={"text": unit, "font": font(theme)} if unit else None),
            xaxis=time_axis(theme, 4 if narrow else 7, points[0].x, points[-1].x) | {"tickformat": "%d %b"}
            if points
            else axis(theme),
        ),
    )  # fmt: skip


def by_size(
    points: Sequence[Point], model: Sequence[tuple[float, float]], theme: Theme, narrow: bool
) -> dict[str, Any]:
    """Hours between failures by size of job (GPUs): measured points with whiskers, an open triangle "at least" where
    nothing failed, and the model's dashed line."""
    seen = [p for p in points if p.value is not None]
    free = [p for p in points if p.value is None and p.low]
    whisker = {
        "type": "data",
        "symmetric": False,
        "array": [min(p.high or 0.0, 1e6) - (p.value or 0.0) if p.high else 0.0 for p in seen],
        "arrayminus": [(p.value or 0.0) - (p.low or 0.0) for p in seen],
        "color": theme["fig-line"],
        "thickness": 1.5,
        "width": 5,
    }
    traces = [
        {"type": "scatter", "mode": "lines", "x": [x for x, _ in model], "y": [y for _, y in model],
         "line": line(theme, "fig-line-2", dash="dash"), "hoverinfo": "skip"},
        {"type": "scatter", "mode": "markers", "x": [p.x for p in seen], "y": [p.value for p in seen],
         "marker": {"size": 9, "color": theme["fig-line"]}, "error_y": whisker,
         "hovertemplate": "%{x:,.0f} GPUs: %{y:,.1f} h<extra></extra>"},
        {"type": "scatter", "mode": "markers", "x": [p.x for p in free], "y": [p.low for p in free],
         "marker": {"size": 10, "symbol": "triangle-up-open", "color": theme["ink-2"]},
         "hovertemplate": "%{x:,.0f} GPUs: no failure, at least %{y:,.1f} h<extra></extra>"},
    ]  # fmt: skip
    heights = [v for p in points for v in (p.value, p.low, p.high) if v] + [y for _, y in model]
    sizes = [p.x for p in points]
    return drawn(
        traces,
        layout(
            theme,
            margin={"l": 64, "r": 16, "t": 10, "b": 44},
            xaxis=_log_axis(theme, sizes, DOUBLES, "job size, GPUs, log axis", 6 if narrow else 11),
            yaxis=_log_axis(theme, heights, HOURS, "", 9) | {"showgrid": True},
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Curve:
    """Shares (0 to 1) over sizes or intervals; ``at``: the point of the plan, ``text`` at it."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    at: tuple[float, float]
    text: str


def curve(found: Curve, theme: Theme, narrow: bool, title: str, *, hours: bool) -> dict[str, Any]:
    """ETTR over a log axis of nodes, or (``hours``) of time between saves."""
    ticks = MINUTES if hours else [(float(4**k), f"{4**k:,}") for k in range(11)]
    low = min([*found.y, found.at[1]])
    traces = [
        {"type": "scatter", "mode": "lines", "x": list(found.x), "y": list(found.y),
         "line": line(theme, "fig-line-2", dash="dash"), "hovertemplate": "%{x:,.3~g}: %{y:.3f}<extra></extra>"},
        {"type": "scatter", "mode": "markers", "x": [found.at[0]], "y": [found.at[1]],
         "marker": {"size": 11, "color": theme["fig-line"]}, "hovertemplate": "%{y:.3f}<extra></extra>"},
    ]  # fmt: skip
    x = math.log10(found.at[0])
    left = x > (math.log10(found.x[0]) + math.log10(found.x[-1])) / 2
    note = words(
        theme, found.text, x, found.at[1], "ink", xanchor="right" if left else "left", xshift=-10 if left else 10
    )
    return drawn(
        traces,
        layout(
            theme,
            margin={"l": 44, "r": 12, "t": 12, "b": 44},
            annotations=[note],
            xaxis=_log_axis(theme, found.x, ticks, title, 5 if narrow else 9),
            yaxis=axis(theme, range=[max(0.0, low - 0.05) if low > 0.3 else 0, 1.02], nticks=5, tickformat=".2f"),
        ),
    )


def _log_axis(
    theme: Theme, values: Sequence[float], ticks: Sequence[tuple[float, str]], title: str, most: int
) -> dict[str, Any]:
    held = [v for v in values if v and math.isfinite(v) and v > 0] or [1.0]
    low, high = min(held) / 1.5, max(held) * 1.5
    if high / low < LEAST_SPAN:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(LEAST_SPAN), middle * math.sqrt(LEAST_SPAN)
    shown = [(v, text) for v, text in ticks if low <= v <= high]
    every = shown[:: max(1, -(-len(shown) // most))]
    return axis(
        theme,
        type="log",
        range=[math.log10(low), math.log10(high)],
        tickvals=[v for v, _ in every],
        ticktext=[text for _, text in every],
        showgrid=False,
        title={"text": title, "font": font(theme)} if title else None,
    )
