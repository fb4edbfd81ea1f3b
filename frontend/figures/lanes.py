"""Evidence lanes: one time axis, a lane a source, the first cause as one dotted line through all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frontend.figures.draw import drawn
from frontend.figures.encode import milliseconds, typed
from frontend.figures.theme import Theme, axis, inert, layout, line, time_axis, words
from frontend.words import shorten

#: Height of one lane with its title, and of what stands above and below them, in pixels.
LANE_PX = 62
EDGE_PX = 56
#: Share of a lane that its title takes.
TITLE = 0.36
#: Share of its height that a line leaves free above it.
HEADROOM = 0.12
#: Characters that fit across the figure at 12 px, beside the decision at 1280 and on a phone.
WIDE_CHARS, NARROW_CHARS = 84, 42
#: Beyond this a moment is told with its day, in s.
LONG_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at ``at`` (unix s)."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Level:
    """Something that held from ``start`` to ``end`` (unix s). ``absent`` is drawn grey: nothing could be seen.
    ``tone``: the state whose tint it has; ``quiet`` is the ground on which trouble stands out."""

    start: float
    end: float
    text: str
    absent: bool = False
    tone: str = "suspect"


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Samples at ``times`` (unix s, float64[n], rising); ``low`` and ``high`` band its peers; NaN is a gap."""

    times: NDArray[np.float64]
    values: NDArray[np.float32]
    low: NDArray[np.float32] | None = None
    high: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    title: str
    events: tuple[Event, ...] = ()
    levels: tuple[Level, ...] = ()
    series: Series | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Story:
    """The span shown (unix s), when the first cause came (None = unknown), and the lanes from the top."""

    start: float
    end: float
    cause_at: float | None
    lanes: tuple[Lane, ...] = field(default=())


def lanes(story: Story, theme: Theme, narrow: bool) -> dict[str, Any]:
    """The figure; ``layout.meta.height`` says how tall it wants to be."""
    count = max(1, len(story.lanes))
    traces: list[dict[str, Any]] = []
    shapes = _cause(story, theme)
    notes: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    for i, lane in enumerate(story.lanes):
        bottom, top = 1 - (i + 1) / count, 1 - i / count
        ceiling = bottom + (top - bottom) * (1 - TITLE)
        y = "y" if i == 0 else f"y{i + 1}"
        axes["yaxis" if i == 0 else f"yaxis{i + 1}"] = _lane_axis(lane, bottom, ceiling, theme)
        traces += _traces(lane, story, y, theme)
        shapes += [_block(level, story, y, theme) for level in lane.levels]
        notes += [_title(lane, ceiling, theme, narrow), *_said(lane, story, y, theme, narrow)]
    last = "y" if count == 1 else f"y{count}"
    xaxis = time_axis(theme, 4 if narrow else 9, story.start, story.end, anchor=last)
    return drawn(
        traces,
        layout(
            theme,
            margin={"l": 40, "r": 14, "t": 8, "b": 30},
            hovermode="closest",
            xaxis=xaxis,
            shapes=shapes,
            annotations=notes,
            meta={"height": EDGE_PX + LANE_PX * count + 20 * sum(lane.series is not None for lane in story.lanes)},
            **axes,
        ),
    )


def _lane_axis(lane: Lane, bottom: float, ceiling: float, theme: Theme) -> dict[str, Any]:
    plain = axis(theme, domain=[bottom, ceiling], fixedrange=True)
    if lane.series is None:
        return plain | {"range": [0, 1], "showticklabels": False, "showgrid": False}
    return plain | {"nticks": 3, "range": _reach(lane.series)}


def _reach(series: Series) -> list[float]:
    """From zero, or from what is below it, to a little above the highest: no line runs along the edge of its lane."""
    edges = [edge for edge in (series.values, series.low, series.high) if edge is not None]
    told = np.concatenate([edge[np.isfinite(edge)] for edge in edges])
    low, high = min(0.0, float(told.min(initial=0.0))), float(told.max(initial=0.0))
    return [low, high + (high - low or 1.0) * HEADROOM]


def _traces(lane: Lane, story: Story, y: str, theme: Theme) -> list[dict[str, Any]]:
    found = _line(lane.series, y, theme) if lane.series is not None else []
    stamp = "%d %b %H:%M" if story.end - story.start > LONG_S else "%H:%M:%S"
    first = [e for e in lane.events if e.at == story.cause_at]
    later = [e for e in lane.events if e.at != story.cause_at]
    if later:
        marker = {"symbol": "line-ns-open", "size": 12, "color": theme["ink-2"], "line": {"width": 1.5}}
        found.append(_marks(later, y, marker, stamp))
    if first:
        found.append(_marks(first[:1], y, {"symbol": "x", "size": 10, "color": theme["failed"]}, stamp))
    if not found:
        found.append({"type": "scatter", "x": [story.start * 1000], "y": [None], "yaxis": y, "hoverinfo": "skip"})
    return found


def _marks(events: Sequence[Event], y: str, marker: dict[str, Any], stamp: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": milliseconds(np.array([e.at for e in events])),
        "y": typed(np.full(len(events), 0.5, np.float32)),
        "yaxis": y,
        "marker": marker,
        "text": [inert(shorten(e.text, 90)) for e in events],
        "hovertemplate": f"%{{x|{stamp}}} UTC: %{{text}}<extra></extra>",
    }


def _line(series: Series, y: str, theme: Theme) -> list[dict[str, Any]]:
    base = {"type": "scatter", "mode": "lines", "x": milliseconds(series.times), "yaxis": y}
    told = "%{x|%H:%M:%S} UTC: %{y:.4~r}<extra></extra>"
    own = {"y": typed(series.values), "line": line(theme), "hovertemplate": told}
    if series.low is None or series.high is None:
        return [base | own]
    none = {"line": {"width": 0}, "hoverinfo": "skip"}
    band = {"fill": "tonexty", "fillcolor": theme["fig-band"]}
    return [base | none | {"y": typed(series.low)}, base | none | band | {"y": typed(series.high)}, base | own]


def _block(level: Level, story: Story, y: str, theme: Theme) -> dict[str, Any]:
    """A level as a block across its lane: grey for absence, else the tint of its tone."""
    quiet = level.tone == "quiet"
    return {
        "type": "rect",
        "layer": "below",
        "x0": max(level.start, story.start) * 1000,
        "x1": min(level.end, story.end) * 1000,
        "yref": f"{y} domain",
        "y0": 0.06,
        "y1": 0.94,
        "fillcolor": theme["fig-grid" if level.absent else "fig-band" if quiet else f"{level.tone}-tint"],
        "line": {"width": 0 if level.absent or quiet else 1, "color": theme["suspect" if quiet else level.tone]},
    }


def _title(lane: Lane, ceiling: float, theme: Theme, narrow: bool) -> dict[str, Any]:
    text = shorten(lane.title, 44 if narrow else 96)
    place = {
        "xref": "paper",
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "xshift": -2,
        "bgcolor": theme["panel"],
    }
    return words(theme, text, 0, ceiling, "ink", **place)


def _said(lane: Lane, story: Story, y: str, theme: Theme, narrow: bool) -> list[dict[str, Any]]:
    """Words inside a lane: on each level, and beside the first cause."""
    first = [e for e in lane.events if e.at == story.cause_at][:1]
    lined = lane.series is not None
    return [
        *(
            _beside(level.text, max(level.start, story.start), story, y, theme, "ink-2", narrow, lined)
            for level in lane.levels
            if level.text
        ),
        *(_beside(event.text, event.at, story, y, theme, "ink", narrow) for event in first),
    ]


def _beside(
    text: str, at: float, story: Story, y: str, theme: Theme, ink: str, narrow: bool, inside: bool = False
) -> dict[str, Any]:
    """Words right of a moment, or left of it where they do not fit there and have more room; no longer than the room.
    ``inside``: never left, where a line may run."""
    share = (at - story.start) / (story.end - story.start)
    chars = NARROW_CHARS if narrow else WIDE_CHARS
    left = share > 0.6 and len(text) > int((1 - share) * chars) - 3 and not inside
    room = int((share if left else 1 - share) * chars) - 3
    side = {"xanchor": "right", "xshift": -12} if left else {"xanchor": "left", "xshift": 12}
    place = {"yref": f"{y} domain", "yanchor": "middle", **side}
    return words(theme, shorten(text, max(8, room)), at * 1000, 0.5, ink, **place)


def _cause(story: Story, theme: Theme) -> list[dict[str, Any]]:
    if story.cause_at is None:
        return []
    at = story.cause_at * 1000
    dotted = {"color": theme["failed"], "width": 1.25, "dash": "dot"}
    return [{"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": dotted}]
