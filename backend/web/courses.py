"""Series lanes of an incident: temperature, power and clock of its GPU with the band of its peers, and their words."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from backend.answers.incident_story import IncidentStory
from backend.answers.telemetry import Course, Telemetry, telemetry
from backend.clock import unix, utc
from backend.history_file import CELL_S
from backend.web.base import Visit
from frontend.figures.lanes import Lane, Level, Series
from frontend.words import capital, clock, count

NAMES = {"temperature_c": "temperature", "power_w": "power", "sm_clock_mhz": "SM clock"}
#: Where the corners of one cell's line are, in shares of the cell: its mean all along, and in its middle a whisker from
#: the highest sample to the lowest, so that a spike of one sample shows.
CORNERS = (0.0, 0.5, 0.5, 0.5, 0.5, 1.0)


def read(seen: Visit, story: IncidentStory, start: datetime, end: datetime, *, ask: bool) -> Telemetry:
    """``ask``: also from whoever keeps older numbers, which may take its time; else it is only said that they do."""
    watch = seen.watch
    with watch.lock:
        fleet = watch.inventory.fleet
    past = seen.parts.past.get(watch.cluster)
    span = (unix(start), unix(end))
    return telemetry(watch.history, past, fleet, watch.catalogue, story.incident, *span, beside=story.beside, ask=ask)


def lanes(found: Telemetry, start: datetime, end: datetime) -> list[Lane]:
    """One lane a metric; what nobody kept, and what stopped to come, is a grey block."""
    made = []
    for place, course in enumerate(found.courses):
        levels = [*unkept(found, start, end, words=place == 0), *silent(course, end)]
        made.append(Lane(title(course, found), levels=tuple(levels), series=series(course, unix(end))))
    return made


def title(course: Course, found: Telemetry) -> str:
    of = "" if found.gpus == 1 else f" of {count(found.gpus, 'GPU')}"
    band = f" · band: {count(found.peers, 'peer')} {found.among}" if found.peers else ""
    return f"{capital(NAMES[course.metric])}{of}, {course.unit}{band}"


def series(course: Course, end: float) -> Series:
    """The line cell by cell; the newest cell ends now."""
    own = course.own
    length = np.minimum(own.times + CELL_S, max(end, 0.0)) - own.times
    times = own.times[:, None] + np.maximum(length, 0.0)[:, None] * np.array(CORNERS)
    values = np.stack([own.mean, own.mean, own.most, own.least, own.mean, own.mean], axis=1)
    low, high = (np.repeat(edge, len(CORNERS)) for edge in (course.low, course.high))
    banded = not np.isnan(course.low).all()
    return Series(times.ravel(), values.ravel(), low if banded else None, high if banded else None)


def unkept(found: Telemetry, start: datetime, end: datetime, *, words: bool) -> list[Level]:
    """The part before the history that nobody gave; a piece of one cell is not worth a word."""
    first = min(found.begin if found.begin is not None else unix(end), unix(end))
    if found.older in ("", "past") or first - unix(start) <= CELL_S:
        return []
    said = "not kept" if found.older == "absent" else "Prometheus did not answer"
    return [Level(unix(start), first, said if words else "", absent=True)]


def silent(course: Course, end: datetime) -> list[Level]:
    """From the end of the last cell in which anything was heard, where a cell without followed."""
    heard = np.flatnonzero(~np.isnan(course.own.mean))
    if not heard.size:
        return [Level(float(course.own.times[0]), unix(end), "no data", absent=True)]
    if heard[-1] == course.own.times.size - 1:
        return []
    since = float(course.own.times[heard[-1]]) + CELL_S
    return [Level(since, unix(end), f"no data since {clock(utc(since), end)}", absent=True)]


def caption(found: Telemetry, now: datetime) -> str:
    """How to read the lines, and where older ones are."""
    if not found.gpus:
        return ""
    if found.begin is None and not found.courses:
        return " No temperature, power or clock is kept yet; the history starts with the first telemetry."
    said = " Lines are means of 5\u00a0min, each with a whisker from its lowest to its highest sample"
    said += "; the band holds nine in ten of the peers." if found.peers else "."
    begin = clock(utc(found.begin), now) if found.begin is not None else "now"
    match found.older:
        case "":
            return said
        case "past":
            return f"{said} Before {begin} they come from Prometheus, in the figure and the CSV."
        case "absent":
            return f"{said} They begin at {begin}; nothing older is kept, and no Prometheus is configured to be asked."
    return f"{said} Before {begin} there are none: {found.older}"


def rows(found: Telemetry) -> list[tuple[datetime, str, str]]:
    """One row a cell: when it started, and all metrics with their extremes and the band."""
    said: dict[float, list[str]] = {}
    for course in found.courses:
        own = course.own
        whole = zip(own.times, own.mean, own.least, own.most, course.low, course.high, strict=True)
        for at, mean, least, most, low, high in whole:
            if mean != mean and low != low:
                continue
            peers = f", peers {reading(low)} to {reading(high)}" if low == low else ""
            mine = f"{reading(mean)} {course.unit} ({reading(least)} to {reading(most)})" if mean == mean else "no data"
            said.setdefault(float(at), []).append(f"{NAMES[course.metric]} {mine}{peers}")
    return [(utc(at), "Telemetry, 5 min", "; ".join(parts)) for at, parts in sorted(said.items())]


def reading(value: float) -> str:
    """As fine as a sensor tells: a tenth below a hundred."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}".removesuffix(".0")
