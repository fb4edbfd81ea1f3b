"""Figures as pages hold them: label, caption and table twin; and words for a piece of evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backend.answers.fleet_state import Sight
from backend.answers.healthy_day import Step
from backend.answers.pulse import Pulse
from backend.web.base import Visit
from frontend.contexts import Figure, Told, Twin
from frontend.figures.age import Age
from frontend.figures.healthy import floor
from frontend.words import age, clock, count, number, shorten, span


def sight(seen: Visit) -> Sight:
    """What was not heard for four intervals, and at least a minute, is unknown. Samples are known where a ring is."""
    watch = seen.watch
    stale_s = max(60.0, 4.0 * watch.ring.interval_s)
    with watch.lock:
        times, axis = watch.ring.last_seen("gpu"), watch.inventory.fleet.axes.get("gpu")
    if axis is None or not times.size or np.isnan(times).all():
        return Sight(stale_s)
    return Sight(stale_s, {id_: at for id_, at in zip(axis.ids, times.tolist(), strict=False) if at == at})


def day_figure(steps: Sequence[Step], seen: Visit) -> Figure:
    """Healthy GPUs of the last 24 h."""
    rows = tuple((clock(s.at, seen.now), number(s.healthy), shorten(s.why, 60)) for s in steps)
    absent = Told(False, "No GPU is known yet", ("The line starts with the first node.",)) if not steps else None
    return Figure(
        id="day",
        url=seen.link("/figures/healthy.json"),
        size="fig-s",
        label=day_label(steps),
        caption=day_caption(steps, seen),
        twin=Twin(("Time, UTC", "#Healthy", "Why"), rows[-40:], seen.link("/figures/healthy.csv")),
        absent=absent,
    )


def day_label(steps: Sequence[Step]) -> str:
    if not steps:
        return "Healthy GPUs over 24 hours: none is known."
    return f"Healthy GPUs over 24 hours: from {steps[0].healthy:,} to {steps[-1].healthy:,}."


def day_caption(steps: Sequence[Step], seen: Visit) -> str:
    if not steps:
        return ""
    first, last = steps[0], steps[-1]
    low = int(floor(np.array([s.healthy for s in steps], np.float32)))
    change = last.healthy - first.healthy
    moved = f"{'Down' if change < 0 else 'Up'} {abs(change):,}" if change else "The same as"
    whole = (seen.now - first.at).total_seconds() > 23 * 3600
    when = "yesterday" if whole else f"{clock(first.at, seen.now)}, when the first node was heard"
    joined = f"{moved} since {when}" if change else f"{moved} {'at this time ' if whole else 'at '}{when}"
    return f"{joined}. The axis starts at {number(low)}."


def ages(sources: Sequence[Pulse]) -> tuple[Age, ...]:
    return tuple(Age(p.name, p.age_s, p.limit_s) for p in sources)


def age_figure(sources: Sequence[Pulse], seen: Visit) -> Figure:
    rows = tuple(
        (
            p.name,
            age(p.age_s) if p.age_s is not None else "never heard",
            span(p.limit_s) if p.limit_s is not None else "no limit",
        )
        for p in sources
    )
    timed = [p for p in sources if p.limit_s is not None]
    worst = max(timed, key=lambda p: p.age_s if p.age_s is not None else float("inf"), default=None)
    oldest = "" if worst is None else age(worst.age_s) if worst.age_s is not None else "unknown: it was never heard"
    absent = (
        Told(False, "No source has spoken", ("There is no row whose age could be shown.",)) if not sources else None
    )
    return Figure(
        id="age",
        url=seen.link("/figures/sources.json"),
        size="",
        label=f"Age of the newest row of {count(len(sources), 'source')}."
        + (f" Oldest: {worst.name}, {oldest}." if worst else ""),
        caption="Log axis. A source is silent from its upright mark on (a cross); one without speaks when it has news.",
        twin=Twin(("Source", "#Newest row", "#Silent from"), rows, seen.link("/figures/sources.csv")),
        absent=absent,
    )


def evidence_words(piece: Mapping[str, Any]) -> str:
    """``Series that arrive: 0 of 20``: one piece of evidence in a few words."""
    value = value_words(piece)
    what = str(piece.get("what", ""))
    return f"{what}: {value}" if value and value not in what else what


def value_words(piece: Mapping[str, Any], key: str = "value") -> str:
    """A value with its unit."""
    value, unit = str(piece.get(key, "")), str(piece.get("unit", ""))
    return f"{value} {unit}".strip() if value else ""
