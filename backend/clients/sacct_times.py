"""Times of one row of sacct, whatever clock printed them: unix digits, ISO with an offset, local time through DST."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import product

from backend.clients.slurm_values import NEVER, NOTHING, span_of

FIELDS = ("Submit", "Eligible", "Start", "End")
#: Wall and elapsed time may differ by the rounding of both.
ROUNDING_S = 2.0
#: How much it costs, in seconds, to take the second of two moments that a clock shows alike.
_SECOND = 0.001


@dataclass(frozen=True, slots=True)
class Times:
    """Unix s. ``said``: at least one of the four was a time. ``unread``: texts that are times but name no day."""

    submit: float | None = None
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    said: bool = False
    unread: int = 0


def times_of(cells: Mapping[str, str], zone: tzinfo = UTC, now: float | None = None) -> Times:
    """The four times of a row. Where a clock went back (DST), the moment is taken that keeps their order and the
    elapsed time (until ``now``, unix s, where it still runs); where nothing tells, the first of the two. A time that
    names no day is left out, and counted."""
    choices = [moments(cells.get(name, ""), zone) for name in FIELDS]
    unread = sum(one is None for one in choices)
    known = [one or () for one in choices]
    if all(len(one) <= 1 for one in known):
        best = [one[0] if one else None for one in known]
    else:
        elapsed = _elapsed(cells)
        best = list(min(product(*(one or (None,) for one in known)), key=lambda four: _cost(four, known, elapsed, now)))
    submit, eligible, start, end = best
    return Times(submit, eligible, start, end, said=any(best), unread=unread)


def moments(text: str, zone: tzinfo = UTC) -> tuple[float, ...] | None:
    """The unix times that a text may mean: none for "Unknown", two where a local clock showed it twice, None where it
    is no full time (``16:10:48``, ``Ystday 12:00``)."""
    text = text.strip()
    if text in NOTHING:
        return ()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        at = float(text)
        return (at,) if 0 < at < NEVER else ()
    if len(text) < 10:
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    if read.tzinfo is not None:
        return (read.timestamp(),)
    return (
        tuple(dict.fromkeys(read.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1)))
        if _twice(read, zone)
        else (read.replace(tzinfo=zone).timestamp(),)
    )


def _twice(read: datetime, zone: tzinfo) -> bool:
    """Whether a local clock showed this time twice: it went back in between. A time that it skipped was shown never,
    and is read as if the clock had not jumped."""
    first, second = (read.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    before, after = first.utcoffset(), second.utcoffset()
    return before is not None and after is not None and before > after


def _elapsed(cells: Mapping[str, str]) -> float | None:
    """Seconds between start and end as sacct counted them, suspended time included."""
    raw = cells.get("ElapsedRaw", "").strip()
    elapsed = float(raw) if raw.isascii() and raw.isdigit() else span_of(cells.get("Elapsed", ""))
    suspended = span_of(cells.get("Suspended", "")) or 0.0
    return None if elapsed is None else elapsed + suspended


def _cost(
    four: Iterable[float | None], known: list[tuple[float, ...]], elapsed: float | None, now: float | None
) -> float:
    """How little four moments fit together: seconds out of order, seconds off the elapsed time."""
    four = tuple(four)
    told = [at for at in four if at is not None]
    cost = sum(max(0.0, before - after) for before, after in zip(told, told[1:], strict=False))
    start, end = four[2], four[3] if known[3] else now
    if elapsed is not None and start is not None and end is not None:
        cost += max(0.0, abs(end - start - elapsed) - ROUNDING_S)
    return cost + sum(_SECOND for at, one in zip(four, known, strict=True) if len(one) > 1 and at != one[0])
