"""How far the clocks of hosts stand apart, told from what all ranks pass at about the same time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from detectors.joblog.reading import Sheet

#: Marks that are compared at most: the estimate is a median, more of them change nothing.
MARKS = 400
ROUNDS = 4


def clock_of(sheet: Sheet) -> str:
    """The name of the clock a log was written with: its host's, or its own where no host is known."""
    return sheet.host or f"\0{sheet.path}"


def offsets(sheets: Sequence[Sheet]) -> dict[str, float]:
    """Seconds by which each clock is ahead of the median clock; 0 for one that shares no mark.

    Rounds of medians: the offset of a clock is the median, over the marks it shares, of its time less the middle of
    the mark's corrected times. A single clock has nothing to compare with.
    """
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for sheet in sorted(sheets, key=lambda one: one.path):
        for mark, at in sheet.marks.items():
            times[mark].setdefault(clock_of(sheet), at)
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
