"""How far the clocks of hosts stand apart, told from what all ranks pass at about the same time."""

from __future__ import annotations

import time
from calendar import timegm
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from detectors.joblog.lines import NO_YEAR
from detectors.joblog.reading import Sheet

#: Marks that are compared at most: the estimate is a median, more of them change nothing.
MARKS = 400
ROUNDS = 4


def clock_of(sheet: Sheet) -> str:
    """The name of the clock a log was written with: its host's, or its own where no host is known."""
    return sheet.host or f"\0{sheet.path}"


def year_of(sheets: Iterable[Sheet]) -> int:
    """The year that most times of these logs name; NO_YEAR where none names one."""
    years = Counter(
        time.gmtime(at).tm_year
        for sheet in sheets
        for at in (*sheet.marks.values(), *(hit.at for hit in sheet.hits), sheet.last_at)
        if at is not None and 1e9 < at < 1e11
    )
    return max(years, key=lambda year: (years[year], year), default=NO_YEAR)


def placed(at: float, year: int) -> float:
    """A time that named no year, in this year; any other time as it is."""
    said = time.gmtime(at) if 9e8 < at < 1e9 else None
    if said is None or said.tm_year != NO_YEAR or year == NO_YEAR:
        return at
    return timegm((year, *said[1:6])) + at % 1


def offsets(sheets: Sequence[Sheet]) -> dict[str, float]:
    """Seconds by which each clock is ahead of the median clock; 0 for one that shares no mark.

    Rounds of medians: the offset of a clock is the median, over the marks it shares, of its time less the middle of
    the mark's corrected times. A single clock has nothing to compare with.
    """
    times: dict[str, dict[str, float]] = defaultdict(dict)
    year = year_of(sheets)
    for sheet in sorted(sheets, key=lambda one: one.path):
        for mark, at in sheet.marks.items():
            times[mark].setdefault(clock_of(sheet), placed(at, year))
    shared = {mark: by for mark, by in times.items() if len(by) > 1}
    chosen = sorted(shared, key=lambda mark: (-len(shared[mark]), mark))[:MARKS]
    ahead = {clock_of(sheet): 0.0 for sheet in sheets}
    for _ in range(ROUNDS):
        apart: dict[str, list[float]] = defaultdict(list)
        for mark in chosen:
            middle = median(at - ahead[clock] for clock, at in shared[mark].items())
            for clock, at in shared[mark].items():
                apart[clock].append(at - middle)
        ahead.update({clock: median(found) for clock, found in apart.items()})
    return ahead
