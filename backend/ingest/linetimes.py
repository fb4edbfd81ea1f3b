"""Times as log lines bear them: with and without a year, an offset, a date; never raises for what is none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

#: A time without its year may lie this far ahead of the clock that reads it before it is taken for last year's, in s.
AHEAD_S = 86_400.0
#: Times before 2000 come from clocks that were never set.
EARLIEST = 946_684_800.0
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


@dataclass(frozen=True, slots=True)
class Origin:
    """What a line leaves unsaid: the host that it was found on, when it was read (unix s), the zone of its clock (None:
    this machine's), and the boot of its host (unix s, id) where that is known."""

    host: str
    now: float
    zone: tzinfo | None = None
    boot_at: float | None = None
    boot_id: str = ""


def from_iso(text: str, origin: Origin) -> float | None:
    """RFC 3339 and its kin: a space for the T, a comma before the fraction, nine digits, an offset without a colon, or
    none at all: then it is a local time."""
    text = text.strip().replace(",", ".")
    dot = text.find(".", 19)
    if dot >= 0:
        end = dot + 1
        while end < len(text) and text[end].isdigit():
            end += 1
        text = text[: min(end, dot + 7)] + text[end:]
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _unix(at, origin)


def from_parts(origin: Origin, month: str, day: str, clock: str, year: str = "", fraction: str = "") -> float | None:
    """``Mar``, ``2``, ``10:11:12``: local time, of the latest year in which it is not ahead."""
    if month[:3].lower() not in MONTHS:
        return None
    number = MONTHS.index(month[:3].lower()) + 1
    this = datetime.fromtimestamp(origin.now, origin.zone or UTC).year
    years = (int(year),) if year else (this + 1, this, this - 1)
    found: float | None = None
    for one in years:
        try:
            hour, minute, second = (int(part) for part in clock.split(":"))
            at = datetime(one, number, int(day), hour, minute, min(second, 59))  # noqa: DTZ001 - made aware below
        except ValueError:  # the 29th of February
            continue
        found = _unix(at, origin)
        if found is not None and found <= origin.now + AHEAD_S:
            break
    if found is None or not fraction:
        return found
    return found + float(f"0.{fraction[:9]}")


def from_seconds(text: str) -> float | None:
    """Unix seconds, milliseconds, microseconds or nanoseconds, by their size."""
    try:
        value = float(text)
    except ValueError:
        return None
    for unit in (1.0, 1e3, 1e6, 1e9):
        if EARLIEST <= value / unit <= 4_102_444_800.0:
            return value / unit
    return None


def since_boot(seconds: str, origin: Origin) -> float | None:
    """Seconds since the boot of the host; None where its boot is not known."""
    return None if origin.boot_at is None else origin.boot_at + float(seconds)


def _unix(at: datetime, origin: Origin) -> float | None:
    try:
        if at.tzinfo is None:
            at = _local(at, origin)
        found = at.timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return found if math.isfinite(found) and found >= EARLIEST else None


def _local(at: datetime, origin: Origin) -> datetime:
    """Local time made aware. Of an hour that comes twice the later one is taken, unless it is ahead."""
    both = [_aware(at.replace(fold=fold), origin.zone) for fold in (1, 0)]
    now = datetime.fromtimestamp(origin.now, UTC) + timedelta(minutes=1)
    return next((one for one in both if one <= now), both[0])


def _aware(at: datetime, zone: tzinfo | None) -> datetime:
    return at.astimezone() if zone is None else at.replace(tzinfo=zone)
