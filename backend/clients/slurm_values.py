"""Single values in Slurm's JSON and text: numbers with flags, times, lists of names, exit codes; one error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from backend.clients.hostlist import HostlistError, expand

#: What stands for "nothing" in Slurm's text.
NOTHING = frozenset(
    {"", "(null)", "None", "N/A", "n/a", "n/s", "Unknown", "none", "NONE", "None assigned", "NO_VAL", "null"}
)
#: Times beyond this (unix s, year 2100) are Slurm's "never".
NEVER = 4_102_444_800
#: Half a wait status: the signal in its low 7 bits, the exit code above the core bit (man 2 wait).
_SIGNAL, _EXIT = 0x7F, 8
_SPAN = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(?:(\d+):)?(\d+)(?:\.\d+)?")


class RecordError(ValueError):
    """Slurm printed something that cannot be read; says what and where."""


def number(value: Any) -> int | None:
    """A number of Slurm's JSON: plain (to 23.02) or {"set","infinite","number"} (from 23.11); unset gives None."""
    if isinstance(value, Mapping):
        if not value.get("set") or value.get("infinite"):
            return None
        value = value.get("number")
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def time_of(value: Any) -> float | None:
    """Unix seconds, or None for 0, "Unknown", "None", Slurm's never, and a text that is no full time.

    Texts are unix digits, as we ask for them, or ISO 8601; one without an offset is UTC, as our commands run in it.
    """
    if isinstance(value, str) and not value.isdigit():
        if value in NOTHING or len(value) < 10:
            return None
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return None
        value = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    seconds = number(value)
    return float(seconds) if seconds and 0 < seconds < NEVER else None


def span_of(text: str) -> float | None:
    """Seconds of ``3-00:00:00``, ``12:30:00`` or ``5:00`` ([days-][hours:]minutes:seconds); None for no span."""
    found = _SPAN.fullmatch(text.strip())
    if found is None or ":" not in text:
        return None
    days, first, second, seconds = (int(part) if part else 0 for part in found.groups())
    hours, minutes = (first, second) if found[3] else (0, first)
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def names_of(value: Any) -> tuple[str, ...]:
    """Host names of a hostlist, or of a list of names or hostlists. Raises RecordError."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(name for part in value for name in names_of(part))
    text = str(value or "").strip()
    if text in NOTHING:
        return ()
    try:
        return tuple(expand(text))
    except HostlistError as bad:
        raise RecordError(f"node list {text[:80]!r}: {bad}") from bad


def words_of(value: Any) -> tuple[str, ...]:
    """Words of a list, or of a text with commas."""
    parts = value if isinstance(value, list) else str(value or "").split(",")
    return tuple(word for word in (str(part).strip() for part in parts) if word and word not in NOTHING)


def text_of(value: Any) -> str:
    """A text; "" for each of Slurm's words for nothing."""
    text = "" if value is None else str(value).strip()
    return "" if text in NOTHING else text


def exit_of(value: Any) -> tuple[int | None, int | None]:
    """(exit code, signal) of ``0:9``, a wait status (22.05's JSON), or {"return_code","signal"} (from 23.02)."""
    if isinstance(value, str):
        left, _, right = value.partition(":")
        return (int(left) if left.isdigit() else None), (int(right) if right.isdigit() and int(right) else None)
    if isinstance(value, Mapping):
        code, said = number(value.get("return_code")), value.get("signal")
        told = said if isinstance(said, Mapping) else {}
        return code, number(told.get("id", told.get("signal_id"))) or None
    status = number(value)
    return (None, None) if status is None else ((status >> _EXIT) & 0xFF, (status & _SIGNAL) or None)
