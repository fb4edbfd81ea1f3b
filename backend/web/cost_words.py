"""What the pages about cost have in common: a figure with its label, twin and drawing; numbers with n and interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from backend.web.base import Visit
from frontend.contexts import Figure, Told, Twin
from frontend.contexts_cost import Measure, Plot
from frontend.figures.theme import Theme
from frontend.words import NB, number

#: Rows of a twin on a page; the CSV has all.
MOST_ROWS = 60
Draw = Callable[[Theme, bool], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Drawing:
    """One figure: what it is called, how it is drawn, and the same as rows. ``absent``: why there is none."""

    title: str
    note: str
    defined: str
    label: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    draw: Draw
    absent: tuple[str, str] | None = None
    size: str = ""


def plot_of(seen: Visit, name: str, made: Drawing, path: str, **query: str) -> Plot:
    """``path``: the figure's own address, without its ending."""
    absent = Told(False, made.absent[0], (made.absent[1],)) if made.absent is not None else None
    figure = Figure(
        id=name,
        url=seen.link(f"{path}.json", **query),
        size=made.size,
        label=made.label,
        caption=made.caption,
        twin=Twin(made.columns, made.rows[:MOST_ROWS], seen.link(f"{path}.csv", **query)),
        absent=absent,
    )
    return Plot(made.title, made.note, figure, seen.link(f"/definitions#{made.defined}") if made.defined else "")


def measure(seen: Visit, label: str, value: str, unit: str, note: str, defined: str) -> Measure:
    return Measure(label, value, unit, note, f"/definitions#{defined}")


def twin_of(made: Drawing) -> Twin:
    return Twin(made.columns, made.rows, "")


# --- numbers --------------------------------------------------------------------------------------------------------


def amount(value: float | None, places: int | None = None) -> str:
    """``4,096``, ``5.2``, ``0.912``: three digits that matter; ``not known`` where nobody knows."""
    if value is None:
        return "not known"
    if places is not None:
        return f"{value:,.{places}f}"
    size = abs(value)
    return number(round(value)) if size >= 100 or value == 0 else f"{value:,.1f}" if size >= 1 else f"{value:,.2f}"


def bounds(pair: Sequence[float | None] | None, places: int | None = None) -> str:
    """``12``, or ``3 to 12`` where the sources leave it open."""
    if pair is None or pair[0] is None or pair[1] is None:
        return "not known"
    low, high = amount(pair[0], places), amount(pair[1], places)
    return low if low == high else f"{low} to {high}"


def interval(pair: Sequence[float | None] | None, places: int | None = None, times: float = 1.0) -> str:
    """``95 % 4.5 to 5.9``; a side without a bound is said."""
    if pair is None:
        return "no interval"
    low = amount(pair[0] * times, places) if pair[0] is not None else "0"
    high = f"to {amount(pair[1] * times, places)}" if pair[1] is not None else "or more"
    return f"95{NB}% {low} {high}"


def share(pair: Sequence[float | None] | None) -> str:
    """ETTR: ``0.912``, or ``0.31 to 0.98``."""
    if pair is None or pair[0] is None or pair[1] is None:
        return "not known"
    low, high = pair[0], pair[1]
    return f"{(low + high) / 2:.3f}" if high - low <= 0.01 else f"{low:.2f} to {high:.2f}"


def percent(value: float | None) -> str:
    return "not known" if value is None else f"{100 * value:.0f}{NB}%"


def cut(name: str, most: int = 40) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def pick(document: Mapping[str, Any], *path: str) -> Any:
    """A value of a document of an older release that may lack it; None where it does. Any: it is JSON."""
    found: Any = document
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def run_path(name: str) -> str:
    """The page of a run, or of the run of a job."""
    return f"/runs/{quote(name, safe='')}"
