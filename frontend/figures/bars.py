"""Horizontal bars: counts or amounts by name, the largest first; a range that is only known in bounds is outlined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frontend.figures.draw import drawn
from frontend.figures.theme import Theme, axis, font, inert, layout, words

#: Of a bar's panel, in px: what is left for bars and text at the least, and one character of 12 px.
WIDTH_PX, TEXT_PX = 165, 6.4


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
    top = room_for(rows)
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
            xaxis=axis(theme, range=[0, top], nticks=4, title={"text": title, "font": font(theme)}),
            yaxis=axis(theme, autorange="reversed", showgrid=False, automargin=True, type="category")
            | {"tickfont": font(theme, "ink")},
            meta={"height": 64 + 26 * max(1, len(rows))},
        ),
    )


def room_for(rows: Sequence[Bar]) -> float:
    """Where the axis ends, so that each text fits behind its bar."""
    ends = [row.high / max(0.25, 1 - TEXT_PX * len(row.text) / WIDTH_PX) for row in rows]
    return max(ends, default=0.0) or 1.0


def shortened(name: str, narrow: bool) -> str:
    most = 16 if narrow else 24
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
