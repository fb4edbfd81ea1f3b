"""The one look of all figures: colours from tokens.css in both themes, axes, lines and words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal

Name = Literal["light", "dark"]
#: Colour of each token, by its name without the dashes.
Theme = Mapping[str, str]

_PAIR = re.compile(r"--([\w-]+):\s*light-dark\(\s*(#\w+|rgb\([^)]*\)),\s*(#\w+|rgb\([^)]*\))\s*\)")
#: Axis text is 12 px in the reader's own font.
FONT_PX = 12
FONT = 'system-ui, -apple-system, "Segoe UI", Inter, "Noto Sans", "Liberation Sans", "DejaVu Sans", sans-serif'


def tokens() -> str:
    """The text of tokens.css."""
    return files("frontend").joinpath("static", "tokens.css").read_text("utf-8")


def themes(css: str) -> dict[Name, Theme]:
    """Both themes; raises ValueError where a colour is no ``light-dark(light, dark)`` pair of plain colours."""
    pairs = _PAIR.findall(css)
    if not pairs:
        raise ValueError("tokens.css holds no light-dark() colour")
    return {"light": {n: light for n, light, _ in pairs}, "dark": {n: dark for n, _, dark in pairs}}


def font(theme: Theme, ink: str = "ink-2") -> dict[str, Any]:
    return {"family": FONT, "size": FONT_PX, "color": theme[ink]}


def axis(theme: Theme, **more: Any) -> dict[str, Any]:
    """Horizontal grid only, no zero line, no ticks; what differs comes by keyword."""
    return {
        "gridcolor": theme["fig-grid"],
        "linecolor": theme["line"],
        "zeroline": False,
        "ticks": "",
        "tickfont": font(theme),
        "ticklabelstandoff": 4,
        **more,
    }


def time_axis(theme: Theme, most: int, start: float, end: float, **more: Any) -> dict[str, Any]:
    """UTC from ``start`` to ``end`` (unix s), with at most so many ticks: a narrow page loses ticks, not points."""
    span_s = end - start
    form = "%H:%M:%S" if span_s < 900 else "%H:%M" if span_s < 129_600 else "%d %b %H:%M"
    ticks = most if 900 <= span_s < 129_600 else max(3, most - 2)
    span = [start * 1000, end * 1000]
    return axis(theme, type="date", tickformat=form, nticks=ticks, tickangle=0, showgrid=False, range=span, **more)


def layout(theme: Theme, **more: Any) -> dict[str, Any]:
    """No title, no legend, no toolbar; ``uirevision`` stays, so a refresh keeps the reader's zoom."""
    base: dict[str, Any] = {
        "font": font(theme),
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": "zoom",
        "uirevision": "keep",
        "margin": {"l": 48, "r": 12, "t": 8, "b": 32},
        "hoverlabel": {
            "bgcolor": theme["raised"],
            "bordercolor": theme["line-firm"],
            "font": font(theme, "ink"),
        },
    }
    return base | more


def line(theme: Theme, token: str = "fig-line", **more: Any) -> dict[str, Any]:
    return {"color": theme[token], "width": 1.75, **more}


def words(theme: Theme, text: str, x: Any, y: Any, ink: str = "ink-2", **more: Any) -> dict[str, Any]:
    """An annotation without an arrow. Text is made inert: Plotly would read tags in it."""
    return {"text": inert(text), "x": x, "y": y, "showarrow": False, "font": font(theme, ink), **more}


def inert(text: str) -> str:
    """Plotly draws a few HTML tags and entities in text; ours never holds any."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
