"""A log line as its template: numbers, paths, addresses, ids and hosts are masked, words stay."""

from __future__ import annotations

import re

#: Characters of a line that are looked at.
MOST_CHARS = 400
# Every repeat below is bounded or ends where nothing has to follow, so that the time is linear in the line.
_MASKS = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,12}://[^\s'\"<>)\]]+", re.IGNORECASE), "<url>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"(?<![\w.])/?(?:[\w.@%+~=-]{1,100}/){1,40}[\w.@%+~=-]*"), "<path>"),
    (re.compile(r"(?<![\w/])/[\w.@%+~=-]{1,100}"), "<path>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b"), "<address>"),
    (re.compile(r"\b(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{1,4}\b(?:\.[0-9a-f])?", re.IGNORECASE), "<address>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\b(?=[a-f]{0,40}\d)[0-9a-f]{8,64}\b", re.IGNORECASE), "<id>"),
    # A host: a name with digits and, perhaps, its domain (gpu-0412.cluster.local). Module names carry no digits first.
    (re.compile(r"\b[a-z][a-z-]{0,30}\d{1,8}(?:[a-z-]{1,12}\d{1,8}){0,3}(?:\.[a-z][\w-]{0,30}){1,5}\b"), "<host>"),
)
#: Small numbers that are words: which error, signal or code it was. Others only count.
_CODE = re.compile(
    r"\b(errno|error|code|status|signal|exit(?:code)?|rc|xid|vendor err|opcode)([ :=(#\]]{1,3})(-?\d{1,3})\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+(?:[.,:-]\d+)*")


def masked(line: str) -> str:
    """The template of a line; lines that only differ in what they count or where they stand have the same."""
    text = line[:MOST_CHARS].strip()
    codes: list[str] = []

    def keep(match: re.Match[str]) -> str:
        codes.append(match[3])
        return f"{match[1]}{match[2]}\x01{chr(0xE000 + len(codes) - 1)}\x01"

    for pattern, mark in _MASKS:
        text = pattern.sub(mark, text)
    text = _CODE.sub(keep, text)
    text = _NUMBER.sub("#", text)
    for place, code in enumerate(codes):
        text = text.replace(f"\x01{chr(0xE000 + place)}\x01", code)
    return " ".join(text.split())
