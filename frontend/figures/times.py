"""Where the time of a run went: a waterfall of its losses, and its attempts on one time axis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from frontend.figures.bars import shortened
from frontend.figures.draw import drawn
from frontend.figures.theme import Theme, axis, font, inert, layout, time_axis, words

Tone = Literal["productive", "queue", "start", "lost", "hang", "other", "open", "sum"]


@dataclass(frozen=True, slots=True)
class Loss:
    """One part of the time, hours: equal bounds where it is known."""

    name: str
    low: float
    high: float
    tone: Tone
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """One attempt: pieces (from, to, tone) in unix s, and a word at its end."""

    name: str
    pieces: tuple[tuple[float, float, Tone], ...]
    text: str


def waterfall(losses: Sequence[Loss], theme: Theme, narrow: bool, title: str) -> dict[str, Any]:
    """Losses one after the other from zero, and their sum. Where a part is only bounded each starts at zero."""
    exact = all(loss.low == loss.high for loss in losses)
    starts, at = [], 0.0
    for loss in losses:
        starts.append(at if exact else 0.0)
        at += loss.high if exact else 0.0
    total = at if exact else max((loss.high for loss in losses), default=0.0)
    rows = [*losses, *([Loss("Not productive", total, total, "sum", f"{total:,.1f} h")] if exact else [])]
    starts = [*starts, 0.0][: len(rows)]
    names = [inert(shortened(row.name, narrow)) for row in rows]
    traces = []
    for place, row in enumerate(rows):
        said = inert(f"{row.name}: {row.text}")
        if row.low > 0:
            traces.append(_piece(names[place], starts[place], row.low, _marker(theme, row.tone), said))
        if row.high > row.low:
            traces.append(
                _piece(names[place], starts[place] + row.low, row.high - row.low, _marker(theme, "open"), said)
            )
    notes = [
        words(theme, row.text, starts[place] + row.high, place, "ink", xanchor="left", xshift=5)
        for place, row in enumerate(rows)
    ]
    return drawn(
        traces or [_piece(names[0] if names else "", 0, 0, _marker(theme, "open"), "")],
        layout(
            theme,
            barmode="overlay",
            bargap=0.32,
            margin={"l": 8, "r": 8, "t": 4, "b": 40},
            annotations=notes,
            xaxis=axis(
                theme, range=[0, (total or 1.0) * (1.5 if narrow else 1.3)], nticks=4,
                title={"text": title, "font": font(theme)},
            ),
            yaxis=axis(theme, type="category", categoryorder="array", categoryarray=names, autorange="reversed",
                       showgrid=False, automargin=True) | {"tickfont": font(theme, "ink")},
            meta={"height": 64 + 30 * max(1, len(rows))},
        ),
    )  # fmt: skip


def gantt(rows: Sequence[Row], start: float, end: float, theme: Theme, narrow: bool) -> dict[str, Any]:
    """Attempts from the top, UTC from ``start`` to ``end`` (unix s)."""
    parts: defaultdict[Tone, list[tuple[int, float, float]]] = defaultdict(list)
    for place, row in enumerate(rows):
        for low, high, tone in row.pieces:
            if high > low:
                parts[tone].append((place, low, high))
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [place for place, _, _ in pieces],
            "x": [(high - low) * 1000 for _, low, high in pieces],
            "base": [low * 1000 for _, low, _ in pieces],
            "marker": _marker(theme, tone),
            "hoverinfo": "skip",
            "width": 0.62,
        }
        for tone, pieces in parts.items()
    ]
    room = (end - start) * (0.42 if narrow else 0.2)
    ends = [max((high for _, high, _ in row.pieces), default=start) for row in rows]
    notes = [
        words(theme, row.text, end_ * 1000, place, xanchor="left", xshift=6)
        for place, (row, end_) in enumerate(zip(rows, ends, strict=True))
    ]
    names = {"tickvals": list(range(len(rows))), "ticktext": [inert(row.name) for row in rows]}
    places = axis(theme, range=[len(rows) - 0.4, -0.6], showgrid=False, automargin=True, **names)
    return drawn(
        traces or [{"type": "bar", "orientation": "h", "y": [0], "x": [0]}],
        layout(
            theme,
            barmode="overlay",
            margin={"l": 8, "r": 8, "t": 4, "b": 28},
            annotations=notes,
            xaxis=time_axis(theme, 4 if narrow else 8, start, end + room) | {"showgrid": True},
            yaxis=places | {"tickfont": font(theme, "ink")},
            meta={"height": 48 + 28 * max(1, len(rows))},
        ),
    )  # fmt: skip


def _piece(name: str, base: float, x: float, marker: dict[str, Any], said: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "y": [name],
        "x": [x],
        "base": [base],
        "marker": marker,
        "hovertext": [said],
        "hoverinfo": "text",
    }


def _marker(theme: Theme, tone: Tone) -> dict[str, Any]:
    """Fill of a part; lost and hang are told by their hatch too."""
    outline = {"color": theme["line-firm"], "width": 1}
    if tone in ("queue", "open"):
        return {"color": "rgba(0,0,0,0)", "line": outline}
    if tone in ("lost", "hang"):
        ink = theme["failed" if tone == "lost" else "suspect"]
        shape = "/" if tone == "lost" else "|"
        hatch = {"shape": shape, "fgcolor": ink, "bgcolor": theme["panel"], "size": 5, "solidity": 0.5}
        return {"color": ink, "pattern": hatch, "line": {"color": ink, "width": 1}}
    fill = {"productive": "fig-bar", "sum": "line-firm"}.get(tone, "fig-bar-2")
    return {"color": theme[fill]}
