"""Where in a line the message begins, and who said it: what stands before it is time, host and program, in many ways.

A program that quotes the kernel (a shell's history, a job's output, an audit record) is not the kernel; its line has
no beginning here that a rule of the kernel would look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

#: Whose lines count as the kernel's own.
KERNEL = frozenset({"", "kernel"})
#: <prio>, a raw record of /dev/kmsg, dmesg --decode.
_RECORD = re.compile(
    r"<\d{1,3}>(?:\d{1,2}\s)?|\d{1,3},\d{1,20},\d{1,20},[^;\s]{0,80};"
    r"|(?:kern|user|daemon|syslog)\s{0,4}:(?:emerg|alert|crit|err|warn|notice|info|debug)\s{0,4}:"
)
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?\s?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?:[A-Z][a-z]{2},?\s)?[A-Z][a-z]{2}\s{1,2}\d{1,2}\s(?:\d{4}\s)?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:\s\d{4}\b)?"
    r"|\d{9,11}(?:\.\d{1,9})?(?=\s)|\d{13,19}(?=\s)"
)
#: A time of dmesg, a thread, a level: ``[   12.345678]``, ``[T1234]``, ``[ERROR]``. Quotes never stand in one.
_BRACKET = re.compile(r"\[(?!drm)[^\]\n\"'`]{0,60}\]:?")
_UPTIME = re.compile(r"\[\s{0,12}\d{1,10}\.\d{3,6}\]")
_WORD = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_.:@%/+\-]{0,254}(?<!:)(?=\s)")
_TAG = re.compile(r"([A-Za-z_][A-Za-z0-9_./@\-]{0,63})(?:\[\d{1,10}\])?:(?=\s|\Z)")
#: Also what broken encodings and marks of byte order leave behind.
_SPACE = re.compile(r"[\s\x00-\x1f\ufffd\ufeff]{0,8}")
#: What may stand between the host and the message of the kernel, other than its name with a colon.
_FILLER = re.compile(r"kernel|-|kern\.[a-z]{2,8}|stdout|stderr|[FP]|[A-Z]{4,8}")
#: Words between the time and the message: host, facility, the dashes of RFC 5424.
_MOST_WORDS = 5


@lru_cache(maxsize=16)
def starts(line: str) -> tuple[tuple[int, str], ...]:
    """(offset, program) of each place where the message may begin; program is empty where none is named.

    At most a dozen; what it costs does not depend on the length of the line. Several readers ask of one line.
    """
    return tuple(_starts(line))


def _starts(line: str) -> Iterator[tuple[int, str]]:
    at, timed = _stamps(line, 0)
    yield at, ""
    place, plain = at, timed
    for words in range(_MOST_WORDS):
        tag = _TAG.match(line, place)
        if tag is not None:
            behind = _spaced(line, tag.end())
            inner, _ = _stamps(line, behind)
            # An untimed "node7: [ 12.345678] ..." is dmesg gathered from many hosts.
            gathered = not timed and _UPTIME.match(line, behind) is not None
            yield inner, "" if gathered else tag[1]
            # What a service wrote into the kernel's ring carries its own name behind the kernel's.
            if tag[1] == "kernel" and (own := _TAG.match(line, inner)) is not None:
                yield _spaced(line, own.end()), own[1]
        word = _WORD.match(line, place) if timed or place == at else None
        if word is None:
            return
        place, _ = _stamps(line, _spaced(line, word.end()))
        plain = plain and (words == 0 or _FILLER.fullmatch(word[0]) is not None)
        if plain:
            yield place, ""


def _stamps(line: str, at: int) -> tuple[int, bool]:
    """Behind all that is record mark, time or bracket; and whether a time was among it."""
    at, timed = _spaced(line, at), False
    for _ in range(6):
        time = _TIME.match(line, at)
        found = time or _RECORD.match(line, at) or _BRACKET.match(line, at)
        if found is None or not found[0]:
            break
        at, timed = _spaced(line, found.end()), timed or time is not None
    return at, timed


def _spaced(line: str, at: int) -> int:
    if " " < line[at : at + 1] < "\x7f":
        return at
    found = _SPACE.match(line, at)
    return found.end() if found is not None else at
