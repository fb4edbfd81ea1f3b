"""Horizontal bars: counts or amounts by name, the largest first; a range that is only known in bounds is outlined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frontend.figures.draw import drawn
from frontend.figures.theme import Theme, axis, font, inert, layout, words


@dataclass(frozen=True, slots=True)
class Bar:
    """``low`` is certain, up to ``high`` is possible. ``text`` stands at its end. ``loud``: in the strong colour;
    ``open``: outlined whole (others, not known)."""

    name: str
    low: float
    high: float
    text: str
    loud: bool = False
    open: bool = False


def bars(rows: Sequence[Bar], theme: Theme, narrow: bool, title: str) -> dict[str, Any]:
    """``title``: what the axis counts, with its unit."""
    top = max((row.high for row in rows), default=1.0) or 1.0
    room = 1.45 if narrow else 1.3
    certain = [0.0 if row.open else row.low for row in rows]
    names = [inert(shortened(row.name, narrow)) for row in rows]
    fills = [theme["fig-bar"] if row.loud else theme["fig-bar-2"] for row in rows]
    said = [inert(f"{row.name}: {row.text}") for row in rows]
    solid = _bar(names, certain, [0.0] * len(rows), said, {"color": fills})
    rest = [row.high - low for row, low in zip(rows, certain, strict=True)]
    outline = {"color": "rgba(0,0,0,0)", "line": {"color": theme["line-firm"], "width": 1}}
    traces = [solid, _bar(names, [x if x > 0 else None for x in rest], certain, said, outline)]
    notes = [
        words(theme, row.text, max(row.high, row.low), place, "ink", xanchor="left", xshift=4)
        for place, row in enumerate(rows)
    ]
    return drawn(
        traces,
        layout(
            theme,
            barmode="overlay",
            bargap=0.3,
            margin={"l": 8, "r": 8, "t": 4, "b": 40},
            annotations=notes,
            xaxis=axis(theme, range=[0, top * room], nticks=4, title={"text": title, "font": font(theme)}),
            yaxis=axis(theme, autorange="reversed", showgrid=False, automargin=True, type="category")
            | {"tickfont": font(theme, "ink")},
            meta={"height": 64 + 26 * max(1, len(rows))},
        ),
    )


def shortened(name: str, narrow: bool) -> str:
    most = 18 if narrow else 30
    return name if len(name) <= most else name[: most - 1] + "…"


def _bar(
    names: Sequence[str], x: Sequence[float | None], base: Sequence[float], said: Sequence[str], marker: dict[str, Any]
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "y": list(names),
        "x": list(x),
        "base": list(base),
        "marker": marker,
        "hovertext": list(said),
        "hoverinfo": "text",
    }
