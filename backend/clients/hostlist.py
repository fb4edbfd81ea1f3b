"""Hostlists as Slurm writes them: ``gpu-[0001-0004,0007],login1`` to names and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby, islice, product

#: A hostlist may name this many hosts; Slurm refuses larger ranges (MAX_RANGE, 64K).
MAX_HOSTS = 65_536
#: Longest hostlist that is read, in characters: MAX_HOSTS names, each written out.
MAX_TEXT = 2_000_000
#: Longest host name, in characters (RFC 1035).
MAX_NAME = 255

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_TAIL = re.compile(r"(?P<stem>.*?)(?P<digits>[0-9]{0,18})", re.DOTALL)
_SEPARATORS = ", \t\r\n"


class HostlistError(ValueError):
    """A hostlist that cannot be read. ``position`` counts characters from 0; ``fix`` says how to mend it."""

    def __init__(self, what: str, position: int, fix: str) -> None:
        super().__init__(f"Hostlist, character {position}: {what}. {fix}")
        self.position = position
        self.fix = fix


def expand(text: str) -> list[str]:
    """The names of a hostlist, in the order written, repeats kept.

    Commas and white space outside brackets part the items; several brackets in one item multiply in Slurm's own order:
    the last one turns fastest, then the first, the second and so on. The zero padding of a range's first number is
    kept. A name may go on after its brackets, which Slurm itself does not take. Raises HostlistError.
    """
    if len(text) > MAX_TEXT:
        raise HostlistError(f"more than {MAX_TEXT} characters", MAX_TEXT, "Split it into smaller lists.")
    names: list[str] = []
    for position, item in _items(text):
        parts = list(_parts(item, position))
        count = 1
        for choices in parts:
            count *= sum(len(span) for span, _ in choices)
        if len(names) + count > MAX_HOSTS:
            raise HostlistError(f"more than {MAX_HOSTS} hosts", position, "Split it into smaller lists.")
        last = max((i for i, choices in enumerate(parts) if choices[0][1].startswith("{")), default=0)
        found = _multiplied([list(_texts(choices)) for choices in parts], last)
        _check_names(found, position)
        names.extend(found)
    return names


def _multiplied(parts: list[list[str]], last: int) -> list[str]:
    """Every name that the pieces of one item make, in Slurm's order (seen of scontrol show hostnames, 22.05). ``last``:
    place of the last bracket."""
    turning = [*reversed(range(last)), last, *range(last + 1, len(parts))]  # slowest first
    back = sorted(range(len(parts)), key=turning.__getitem__)
    return ["".join(pieces[i] for i in back) for pieces in product(*(parts[i] for i in turning))]


def render(names: Iterable[str]) -> str:
    """The shortest usual hostlist of the names: unique, in numeric order, ranges folded, padding kept.

    Only the last number of a name is folded, as Slurm does. Raises HostlistError for a name that is none.
    """
    unique = list(names)
    _check_names(unique, 0)
    ordered = sorted(set(unique), key=natural)
    return ",".join(_folded(stem, [d for _, d in members]) for stem, members in groupby(map(_split, ordered), _stem))


@lru_cache(maxsize=MAX_HOSTS)  # the same names are sorted in every answer to a scheduler
def natural(name: str) -> tuple[tuple[tuple[str, int, int], ...], int, int]:
    """Sort key: numbers inside a name compare as numbers, so ``n9 < n10``; equal numbers by their padding."""
    stem, digits = _split(name)
    chunks = re.findall(r"[^0-9]+|[0-9]+", stem)
    key = tuple(("", int(c), len(c)) if c[0] in "0123456789" else (c, -1, 0) for c in chunks)
    return key, int(digits) if digits else -1, len(digits)


def is_host(name: str) -> bool:
    """Whether this is one plain host name: no brackets, commas, blanks or leading dash."""
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def _check_names(names: list[str], position: int) -> None:
    for name in names:
        if not is_host(name):
            raise HostlistError(
                f"{name[:40]!r} is not a host name",
                position,
                f"Use letters, digits, '-', '_' and '.', at most {MAX_NAME} characters.",
            )


def _items(text: str) -> Iterator[tuple[int, str]]:
    """The items between separators that stand outside brackets, each with its position."""
    start, opened = 0, -1
    for i, c in enumerate(text + ","):
        if c == "[":
            if opened >= 0:
                raise HostlistError("'[' inside brackets", i, "Close the first bracket before the next one opens.")
            opened = i
        elif c == "]":
            if opened < 0:
                raise HostlistError("']' without '['", i, "Remove it, or open the bracket first.")
            opened = -1
        elif c in _SEPARATORS and (opened < 0 or i == len(text)):
            if opened >= 0:
                raise HostlistError("'[' is never closed", opened, "Add the missing ']'.")
            if i > start:
                yield start, text[start:i]
            start = i + 1


def _parts(item: str, position: int) -> Iterator[list[tuple[range, str]]]:
    """The pieces of one item: each a list of (numbers, format); plain text is one number with itself as format."""
    at = 0
    while at < len(item):
        if item[at] == "[":
            end = item.index("]", at)
            pieces = list(islice(_pieces(item[at + 1 : end], position + at + 1), MAX_HOSTS + 1))
            if len(pieces) > MAX_HOSTS:
                raise HostlistError(f"more than {MAX_HOSTS} hosts", position, "Split it into smaller lists.")
            yield [_range(*piece) for piece in pieces]
            at = end + 1
            continue
        plain = _PLAIN.match(item, at)
        if plain is None:
            raise HostlistError(
                f"{item[at]!r} cannot stand in a host name", position + at, "Use letters, digits, '-', '_' and '.'."
            )
        yield [(range(1), plain.group())]
        at = plain.end()


def _pieces(inside: str, position: int) -> Iterator[tuple[str, int]]:
    for piece in inside.split(","):
        yield piece, position
        position += len(piece) + 1


def _range(piece: str, position: int) -> tuple[range, str]:
    found = _RANGE.fullmatch(piece)
    if found is None:
        raise HostlistError(f"{piece[:40]!r} is not a number or a range", position, "Write it as 7 or 001-016.")
    low = found.group(1)
    high = found.group(2) or low
    if int(high) < int(low):
        raise HostlistError(f"the range {piece} runs backwards", position, f"Write {high}-{low}.")
    if int(high) - int(low) >= MAX_HOSTS:
        raise HostlistError(f"the range {piece} has more than {MAX_HOSTS} hosts", position, "Split the range.")
    return range(int(low), int(high) + 1), f"{{:0{len(low)}d}}"


def _texts(choices: list[tuple[range, str]]) -> Iterator[str]:
    for numbers, form in choices:
        for number in numbers:
            yield form.format(number)


@lru_cache(maxsize=MAX_HOSTS)
def _split(name: str) -> tuple[str, str]:
    """(stem, last number as written, at most 18 digits, or "")."""
    found = _TAIL.fullmatch(name)
    assert found is not None  # the pattern takes every text
    return found["stem"], found["digits"]


def _stem(pair: tuple[str, str]) -> str:
    return pair[0]


def _folded(stem: str, digits: list[str]) -> str:
    """One stem with its sorted numbers: ``gpu-[0001-0003,7]``, without brackets where there is only one name."""
    if len(digits) == 1:
        return stem + digits[0]
    runs: list[tuple[str, str]] = []
    for text in digits:
        if runs and text and runs[-1][1] and _follows(runs[-1][0], runs[-1][1], text):
            runs[-1] = (runs[-1][0], text)
        else:
            runs.append((text, text))
    bare = [stem] if runs[0][0] == "" else []
    inside = ",".join(low if low == high else f"{low}-{high}" for low, high in runs if low)
    return ",".join([*bare, f"{stem}[{inside}]"])


def _follows(first: str, last: str, text: str) -> bool:
    """Whether ``text`` is the next number after ``last`` in a range padded as ``first``."""
    return int(text) == int(last) + 1 and text == f"{int(text):0{len(first)}d}"
