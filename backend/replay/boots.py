"""When a host booted, for kernel logs that tell only the time since: what their own lines say of the wall clock."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

#: ``[  123.456789] rest``: seconds since a boot that the line does not tell.
SINCE_BOOT = re.compile(r"(?:<\d{1,3}>)?\[\s*(\d{1,10}\.\d{1,9})\] ?(.*)", re.DOTALL)
#: ``rtc_cmos 00:01: setting system clock to 2026-02-03T11:38:06 UTC (1770118686)``, once a boot, to the second.
_CLOCK = re.compile(r"setting system clock to [^(]{10,40}\((\d{9,11})\)")
#: ``audit: type=2000 audit(1770118686.123:1): state=initialized``: every record of audit says when it was made.
_AUDIT = re.compile(r"audit\((\d{9,11}\.\d{3}):\d{1,10}\)")
#: Time since boot that falls by more than this is that of another boot; two processors never differ so much.
BACK_S = 1.0
#: A file that begins with so many lines without a time since boot is no such log.
LOOK = 200


@dataclass(frozen=True, slots=True)
class Boots:
    """Boots in the order of a file: ``begins``: where the first line of each ends in bytes; ``at``: when each was
    (unix s), None where nothing tells."""

    begins: tuple[int, ...] = ()
    at: tuple[float | None, ...] = ()

    def of(self, position: int) -> float | None:
        """The boot that the line which ends at ``position`` counts from."""
        place = bisect_right(self.begins, position) - 1
        return self.at[place] if place >= 0 else None


def boots_in(lines: Iterator[tuple[int, int, bytes | None]], told: float | None) -> Boots:
    """The boots of one log. lines: (number, where the next line begins, line). ``told``: what a person says of the only
    boot that the log does not tell itself (unix s)."""
    begins: list[int] = []
    at: list[float | None] = []
    rough: float | None = None
    last = 0.0
    for number, position, raw in lines:
        match = SINCE_BOOT.match(raw.decode(errors="replace")) if raw else None
        if match is None:
            if not begins and number >= LOOK:
                break
            continue
        since = float(match[1])
        if not begins or since < last - BACK_S:
            if begins and at[-1] is None:
                at[-1] = rough
            begins.append(position)
            at.append(None)
            rough = None
        last = since
        if clock := _CLOCK.search(match[2]):
            at[-1] = float(clock[1]) - since
        elif rough is None and (record := _AUDIT.search(match[2])):
            rough = float(record[1]) - since
    if begins and at[-1] is None:
        at[-1] = rough
    if told is not None and at.count(None) == 1:
        at[at.index(None)] = told
    return Boots(tuple(begins), tuple(at))
