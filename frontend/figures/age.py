"""Age of each source's newest row on a log axis, with the age at which it counts as silent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frontend.figures.draw import drawn
from frontend.figures.theme import Theme, axis, font, inert, layout, line

#: Ticks of the log axis in human units, in seconds.
TICKS = ((1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (86_400, "1 day"))
#: Younger is drawn here: a log axis has no zero.
YOUNGEST_S = 0.5


@dataclass(frozen=True, slots=True)
class Age:
    """One source: seconds since its newest row (None = never one), and from when on it is silent (None = it speaks
    only when there is something to say, so quiet is no silence)."""

    name: str
    age_s: float | None
    limit_s: float | None


def ages(rows: Sequence[Age], theme: Theme, narrow: bool) -> dict[str, Any]:
    """One line of dots a source: filled and blue while fresh, an open cross once silent."""
    seen = [row for row in rows if row.age_s is not None]
    top = max([120.0, *(max(row.age_s or 0.0, row.limit_s or 0.0) for row in rows)]) * 1.6
    fresh = [row for row in seen if row.limit_s is None or (row.age_s or 0.0) < row.limit_s]
    silent = [row for row in seen if row not in fresh]
    traces = [
        _dots(fresh, {"size": 9, "color": theme["fig-line"]}),
        _dots(silent, {"size": 9, "symbol": "x", "color": theme["suspect"]}),
        _limits([row for row in rows if row.limit_s is not None], theme),
    ]
    shown = [(s, text) for s, text in TICKS if s <= top]
    every = shown[:: 2 if narrow and len(shown) > 4 else 1]
    return drawn(
        traces,
        layout(
            theme,
            margin={"l": 8, "r": 16, "t": 6, "b": 44},
            xaxis=axis(
                theme,
                type="log",
                range=[math.log10(YOUNGEST_S) - 0.05, math.log10(top)],
                tickvals=[s for s, _ in every],
                ticktext=[text for _, text in every],
                title={"text": "age of the newest row, log axis", "font": font(theme)},
            ),
            yaxis=axis(theme, autorange="reversed", showgrid=False, automargin=True) | {"tickfont": font(theme, "ink")},
            meta={"height": 74 + 30 * len(rows)},
        ),
    )


def _dots(rows: Sequence[Age], marker: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [max(YOUNGEST_S, row.age_s or 0.0) for row in rows],
        "y": [inert(row.name) for row in rows],
        "marker": marker,
        "hovertemplate": "%{y}: %{x:.1f} s<extra></extra>",
    }


def _limits(rows: Sequence[Age], theme: Theme) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [row.limit_s for row in rows],
        "y": [inert(row.name) for row in rows],
        "marker": {"symbol": "line-ns-open", "size": 16, "color": theme["line-firm"], "line": line(theme, "line-firm")},
        "hovertemplate": "silent from %{x:.0f} s<extra></extra>",
    }
