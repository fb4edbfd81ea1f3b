"""How a run trains: curves above each other on one time axis, and maps of ranks and layers over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frontend.figures.decimate import kept
from frontend.figures.draw import drawn
from frontend.figures.encode import milliseconds, typed
from frontend.figures.theme import Theme, axis, font, inert, layout, line, time_axis, words

#: Height of one curve with its name, and of what is below all, in pixels.
CURVE_PX, EDGE_PX = 128, 44
#: Share of a curve's height that its name takes.
TITLE = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One curve: ``at`` unix s in order. log: where it spans decades."""

    name: str
    at: NDArray[np.float64]
    values: NDArray[np.float64]
    log: bool = False
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment (unix s) through all curves. what: incident, attempt, rollback or save."""

    at: float
    what: str
    text: str


def curves(
    panels: Sequence[Panel], marks: Sequence[Mark], span: tuple[float, float], theme: Theme, narrow: bool
) -> dict[str, Any]:
    """Curves from the top on one axis of UTC time; every spike is drawn, whatever is left out."""
    traces: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    notes = []
    share = 1.0 / max(1, len(panels))
    for place, panel in enumerate(panels):
        name = "" if place == 0 else str(place + 1)
        top = 1.0 - place * share
        axes[f"yaxis{name}"] = _heights(theme, panel) | {"domain": [top - share * (1 - TITLE), top - share * TITLE]}
        traces += _traces(theme, panel, f"y{name}")
        said = f"{panel.name}, {panel.unit}" if panel.unit else panel.name
        notes.append(
            words(theme, said, 0, top, "ink", xref="paper", yref="paper", xanchor="left", yanchor="top", align="left")
        )
    found = [line_ for mark in marks if span[0] <= mark.at <= span[1] for line_ in [_rule(theme, mark)]]
    last = "" if len(panels) <= 1 else str(len(panels))
    across = time_axis(theme, 4 if narrow else 8, *span) | {"anchor": f"y{last}"}
    return drawn(
        traces,
        layout(
            theme,
            margin={"l": 52, "r": 12, "t": 4, "b": 28},
            annotations=notes,
            shapes=found,
            hovermode="closest",
            meta={"height": EDGE_PX + CURVE_PX * len(panels)},
            xaxis=across,
            **axes,
        ),
    )


def _traces(theme: Theme, panel: Panel, y: str) -> list[dict[str, Any]]:
    """Its line, and what is no number as marks at its top."""
    places = kept(panel.values)
    at, values = panel.at[places], panel.values[places]
    broken = ~np.isfinite(values)
    shown = np.where(broken | ((values <= 0) & panel.log), np.nan, values)
    found: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines" if len(at) > 60 else "lines+markers",
            "x": milliseconds(at),
            "y": typed(shown),
            "yaxis": y,
            "line": line(theme, width=1.25),
            "marker": {"size": 4, "color": theme["fig-line"]},
            "hovertemplate": "%{x|%d %b %H:%M:%S}: %{y:.4~g}<extra></extra>",
        }
    ]
    good = shown[np.isfinite(shown)]
    if broken.any():
        found.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": milliseconds(at[broken]),
                "y": typed(np.full(int(broken.sum()), good.max() if good.size else 1.0)),
                "yaxis": y,
                "marker": {"size": 8, "symbol": "x", "color": theme["failed"]},
                "hovertext": [inert(f"{value}") for value in values[broken]],
                "hoverinfo": "text",
            }
        )
    return found


def _heights(theme: Theme, panel: Panel) -> dict[str, Any]:
    good = panel.values[np.isfinite(panel.values) & ((panel.values > 0) | (not panel.log))]
    low, high = (float(good.min()), float(good.max())) if good.size else (0.0, 1.0)
    if panel.log:
        low, high = np.log10(max(low, 1e-30)), np.log10(max(high, 1e-30))
    room = max((high - low) * 0.08, abs(high) * 0.01, 1e-9)
    spread = [float(low - room), float(high + room)]
    kind = {"type": "log", "dtick": 1} if panel.log and high - low > 1 else {"type": "log"} if panel.log else {}
    return axis(theme, range=spread, nticks=3, tickformat=".3~g", **kind)


def _rule(theme: Theme, mark: Mark) -> dict[str, Any]:
    ink, dash = {
        "incident": (theme["failed"], "solid"),
        "rollback": (theme["suspect"], "dash"),
        "attempt": (theme["line-firm"], "solid"),
    }.get(mark.what, (theme["line-firm"], "dot"))
    at = mark.at * 1000
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": at,
        "x1": at,
        "y0": 0,
        "y1": 1,
        "line": {"color": ink, "width": 1, "dash": dash},
    }


def heat(
    cells: NDArray[np.float32],
    names: Sequence[str],
    span: tuple[float, float],
    theme: Theme,
    narrow: bool,
    limits: tuple[float, float],
    unit: str,
) -> dict[str, Any]:
    """A map [rows, columns] over time, the first row on top; NaN is left open. High is what asks."""  # fmt: skip
    height, width = cells.shape
    edges = np.linspace(span[0], span[1], width + 1)
    middle = (edges[:-1] + edges[1:]) / 2
    every = max(1, -(-height // (12 if narrow else 20)))
    scale = [[0.0, theme["panel"]], [0.5, theme["fig-bar"]], [1.0, theme["failed"]]]
    trace = {
        "type": "heatmap",
        "x": milliseconds(middle),
        "y": list(range(height)),
        "z": typed(np.clip(cells, *limits)),
        "zmin": limits[0],
        "zmax": limits[1],
        "colorscale": scale,
        "hoverongaps": False,
        "text": [[inert(name)] * width for name in names] if height * width <= 20_000 else None,
        "hovertemplate": "%{text} %{x|%d %b %H:%M}: %{z:.3~g}<extra></extra>"
        if height * width <= 20_000
        else "row %{y} %{x|%d %b %H:%M}: %{z:.3~g}<extra></extra>",
        "colorbar": {
            "thickness": 10,
            "len": 1,
            "outlinewidth": 0,
            "tickfont": font(theme),
            "nticks": 4,
            "title": {"text": unit, "font": font(theme), "side": "right"},
        },
        "showscale": not narrow,
    }
    rows = axis(theme, tickvals=list(range(0, height, every)), ticktext=[inert(n) for n in names[::every]],
                range=[height - 0.5, -0.5], showgrid=False, automargin=True)  # fmt: skip
    return drawn(
        [trace],
        layout(
            theme,
            margin={"l": 8, "r": 8, "t": 6, "b": 28},
            xaxis=time_axis(theme, 4 if narrow else 8, *span),
            yaxis=rows,
            meta={"height": 60 + min(360, max(90, 16 * height))},
        ),
    )
