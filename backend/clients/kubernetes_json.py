"""Reads into Kubernetes JSON that may be odd anywhere: what is not of the awaited shape counts as not said."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

#: Times outside these (unix s, years 2000 and 2100) are nobody's: a clock that was never set, or "never".
EARLIEST, LATEST = 946_684_800.0, 4_102_444_800.0
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,2})|(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)")
_FACTORS: Mapping[str, float] = {"": 1, "m": 0.001} | {
    letter + binary: (1024 if binary else 1000) ** power
    for power, letters in enumerate(("kK", "M", "G", "T", "P", "E"), 1)
    for letter in letters
    for binary in ("", "i")
}


def dig(value: Any, *path: str) -> Any:
    """What stands at ``path``; None where anything on the way is missing or no object."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def text(value: Any, *path: str) -> str:
    found = dig(value, *path)
    return found if isinstance(found, str) else ""


def table(value: Any, *path: str) -> Mapping[str, Any]:
    """An object; {} where there is none."""
    found = dig(value, *path)
    return found if isinstance(found, Mapping) else {}


def texts(value: Any, *path: str) -> dict[str, str]:
    """The entries of an object that are texts: labels, annotations."""
    return {key: said for key, said in table(value, *path).items() if isinstance(said, str)}


def objects(value: Any, *path: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a list."""
    found = dig(value, *path)
    if isinstance(found, Sequence) and not isinstance(found, str | bytes):
        yield from (one for one in found if isinstance(one, Mapping))


def words(value: Any, *path: str) -> Iterator[str]:
    """The texts of a list."""
    found = dig(value, *path)
    if isinstance(found, Sequence) and not isinstance(found, str | bytes):
        yield from (one for one in found if isinstance(one, str))


def whole(value: Any, *path: str) -> int | None:
    """A whole number; also one that was written as text, as labels and annotations hold it."""
    found = dig(value, *path)
    if isinstance(found, str) and re.fullmatch(r"-?[0-9]{1,18}", found):
        return int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def flag(value: Any, *path: str) -> bool:
    return dig(value, *path) is True


def at(value: Any, *path: str) -> float | None:
    """Unix seconds of a time as the API writes it (RFC 3339 with a zone); None for anything else."""
    found = dig(value, *path)
    if not isinstance(found, str) or len(found) > 40:
        return None
    try:
        moment = datetime.fromisoformat(found)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None  # a bare time could be anybody's
    seconds = moment.astimezone(UTC).timestamp() if 1 < moment.year < 9999 else math.inf
    return seconds if EARLIEST <= seconds < LATEST else None


def quantity(value: Any) -> float | None:
    """A resource quantity (``8``, ``"500m"``, ``"80Gi"``) as a number; None for what is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) and value >= 0 else None
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) and len(value) < 40 else None
    if found is None:
        return None
    number, power, unit = found.groups()
    return float(number) * (10.0 ** int(power) if power else _FACTORS[unit or ""])
