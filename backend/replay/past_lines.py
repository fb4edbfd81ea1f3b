"""Kernel logs as people keep them: one line of dmesg, syslog or the journal (text or JSON) to when, where and what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

import orjson
from pydantic import ValidationError

from backend.ingest.logs import LogRow
from backend.ingest.rows import EARLIEST, LATEST, is_host, problem_of
from backend.replay.boots import SINCE_BOOT

KERNEL = "kernel"
#: ``2026-02-03T11:38:06,123456+01:00 rest``: dmesg --time-format iso, journalctl -o short-iso, rsyslog.
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?\s+(.*)", re.DOTALL)
#: ``Feb  3 11:38:06 rest``: syslog and journalctl, which leave the year out.
_SYSLOG = re.compile(r"([A-Z][a-z]{2}\s{1,2}\d{1,2} \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\s+(.*)", re.DOTALL)
#: ``[Tue Feb  3 11:38:06 2026] rest``: dmesg -T.
_DMESG = re.compile(r"\[[A-Z][a-z]{2} ([A-Z][a-z]{2}\s{1,2}\d{1,2} \d\d:\d\d:\d\d \d{4})\] ?(.*)", re.DOTALL)
#: ``gpu-0001 kernel: rest``, ``gpu-0001 sshd[77]: rest``; without a number it may also be dmesg's ``pci 0000:9b:00.0``.
_SPEAKER = re.compile(r"(\S{1,255}) ([^\s:\[\]]{1,64})(\[[^\]]{0,20}\])?: ?.*", re.DOTALL)
#: A line that seems to come from this much after now is of the year before: its year is not said.
_AHEAD_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Place:
    """What lines leave out: the host of a dmesg, the zone of times that name none, now (unix s) for the year, and when
    the host booted (unix s), None where nobody knows."""

    host: str
    zone: tzinfo
    now: float
    boot: float | None = None


def row_of(line: str, place: Place) -> LogRow | None:
    """The row of one line; None for a line of another program than the kernel. Raises ValueError: why it is none."""
    if line.startswith("{"):
        return _of_json(line)
    at, rest = _moment(line, place)
    spoken = _SPEAKER.fullmatch(rest)
    if spoken is not None and is_host(spoken[1]):
        if spoken[2] == KERNEL:
            return _row(at, spoken[1], line)
        if not line.startswith(("[", "<")) and (spoken[3] or not place.host or spoken[1] == place.host):
            return None
    if not place.host:
        raise ValueError("names no host: say it with --host")
    return _row(at, place.host, line)


def _row(at: float, host: str, line: str) -> LogRow:
    if not EARLIEST <= at <= LATEST:
        raise ValueError("its time lies outside the years 2000 to 2100")
    if not is_host(host):
        raise ValueError(f"{host[:60]!r} is no host name")
    return LogRow.model_construct(ts=at, host=host, source=KERNEL, line=line, job="", rank=None)


def _moment(line: str, place: Place) -> tuple[float, str]:
    """(unix s, what stands behind the time)."""
    try:
        if iso := _ISO.fullmatch(line):
            at = datetime.fromisoformat(f"{iso[1]}{(iso[3] or '')}")
            return _unix(at, place.zone) + _fraction(iso[2]), iso[4]
        if dmesg := _DMESG.fullmatch(line):
            return _unix(datetime.strptime(dmesg[1], "%b %d %H:%M:%S %Y"), place.zone), dmesg[2]  # noqa: DTZ007 - below
        if syslog := _SYSLOG.fullmatch(line):
            return _latest(syslog[1], place) + _fraction(syslog[2]), syslog[3]
    except (ValueError, OverflowError):
        raise ValueError(f"begins with a time that there is not: {line[:32]!r}") from None
    if since := SINCE_BOOT.fullmatch(line):
        if place.boot is None:
            raise ValueError(
                "tells the time since boot only, and no line of its boot tells when that was: "
                "say it with --boot, or write it with dmesg --time-format iso"
            )
        return place.boot + float(since[1]), since[2]
    raise ValueError("begins with no time: dmesg --time-format iso or journalctl -k -o short-iso or -o json write one")


def _unix(at: datetime, zone: tzinfo) -> float:
    return (at if at.tzinfo else at.replace(tzinfo=zone)).timestamp()


def _fraction(digits: str | None) -> float:
    return float(f"0.{digits}") if digits else 0.0


def _latest(text: str, place: Place) -> float:
    """The last time that this day and hour has been; the 29th of February reaches back to a leap year."""
    year = datetime.fromtimestamp(place.now + _AHEAD_S, place.zone).year
    for back in range(9):
        try:
            at = _unix(datetime.strptime(f"{year - back} {text}", "%Y %b %d %H:%M:%S"), place.zone)  # noqa: DTZ007 - zone given
        except ValueError:
            continue
        if at <= place.now + _AHEAD_S:
            return at
    raise ValueError(text)


# --- JSON -----------------------------------------------------------------------------------------------------------


def _of_json(line: str) -> LogRow | None:
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if "__REALTIME_TIMESTAMP" in document:
        return _of_journal(document)
    try:
        row = LogRow.model_validate(document)
    except ValidationError as error:
        raise ValueError(": ".join(problem_of(error))) from None
    return row


def _of_journal(document: Mapping[str, Any]) -> LogRow | None:
    """``journalctl -o json``: times in microseconds, a message with odd bytes as a list of them."""
    if document.get("_TRANSPORT") != KERNEL and document.get("SYSLOG_IDENTIFIER") != KERNEL:
        return None
    said, when = document.get("MESSAGE"), str(document["__REALTIME_TIMESTAMP"])
    if isinstance(said, list) and all(isinstance(b, int) and 0 <= b < 256 for b in said):
        said = bytes(said).decode(errors="replace")
    if not isinstance(said, str) or not (when.isascii() and when.isdigit() and len(when) < 20):
        raise ValueError("is a journal entry without MESSAGE or time")
    return _row(int(when) / 1e6, str(document.get("_HOSTNAME", "")), said)
