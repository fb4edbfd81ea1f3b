"""OpenMetrics text as scraped: series get numbers, and blocks of lines become arrays of samples."""

from __future__ import annotations

import re
import sys
from array import array
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from backend.ingest.bundle.reading import MAX_LINE_BYTES, BadRows, too_long
from backend.ingest.rows import EARLIEST, LATEST

Floats = NDArray[np.float64]
Ids = NDArray[np.int32]
Places = NDArray[np.int64]

_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PAIR = rb'%s[a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"%s(?:[^"\\]|\\.)*)"\s*'
_EACH = re.compile(_PAIR % (b"(", b"("))
_LABELS = re.compile(rb"\{\s*(?:" + _PAIR % (b"(?:", b"(?:") + rb"(?:,\s*|(?=\})))*\}")
_ESCAPED = re.compile(r'\\([\\"n])')
#: What numbers that JSON shares with OpenMetrics are made of, and what parts them.
_PLAIN = b"0123456789+-.eE \n"
_COMMAS = bytes.maketrans(b" \n", b",,")
#: Why a sample is left out that no metric of the catalogue is made of.
UNKNOWN = "metric not in the catalogue"
#: A tail of a line this long holds no two numbers.
_MAX_NUMBER = 64


class Samples(NamedTuple):
    """Series numbers, times (unix s) and values in the order of their lines."""

    ids: Ids
    times: Floats
    values: Floats


class Book:
    """Every wanted series of a bundle by number, in the order of their first lines; each label set is kept once.

    ``wanted``: raw metric names that are kept; ``unwanted``: how the others are called where they are counted.
    """

    def __init__(self, wanted: frozenset[str], unwanted: str = UNKNOWN) -> None:
        self.unwanted = unwanted
        self.names: tuple[str, ...] = tuple(sorted(wanted))
        self.label_sets: list[Mapping[str, str]] = []
        self.name_of = array("i")
        self.set_of = array("i")
        self.replaced = 0
        self._names = {name.encode(): number for number, name in enumerate(self.names)}
        self._sets: dict[bytes, int] = {}
        self._ids: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.name_of)

    def wants(self, name: bytes) -> bool:
        return name in self._names

    def number(self, name: bytes, labels: bytes) -> int:
        """The series of a wanted name and ``{...}`` (or nothing). Raises ValueError for labels that cannot be read."""
        which = self._sets.get(labels)
        if which is None:
            which = self._learn(labels)
        key = self._names[name] << 32 | which
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self.name_of)
            self.name_of.append(self._names[name])
            self.set_of.append(which)
        return found

    def _learn(self, labels: bytes) -> int:
        match = _LABELS.fullmatch(labels)
        if match is None and labels:
            raise ValueError("the labels cannot be read")
        text = labels.decode(errors="replace")
        self.replaced += "\ufffd" in text and b"\xef\xbf\xbd" not in labels
        self._sets[labels] = len(self.label_sets)
        self.label_sets.append(labels_in(labels))
        return self._sets[labels]

    def labels(self, series: int) -> dict[str, str]:
        """All labels of a series, with ``__name__``."""
        return {"__name__": self.names[self.name_of[series]], **self.label_sets[self.set_of[series]]}


def labels_in(labels: bytes) -> dict[str, str]:
    """The pairs in ``{...}``; none in nothing."""
    return {sys.intern(name.decode()): unescaped(value) for name, value in _EACH.findall(labels)}


def unescaped(value: bytes) -> str:
    text = value.decode(errors="replace")
    return _ESCAPED.sub(lambda m: "\n" if m[1] == "n" else m[1], text) if "\\" in text else text


class Stretch(NamedTuple):
    """Lines of one series that follow each other: the first, how many, where their numbers begin, and the series."""

    line: int
    lines: int
    skip: int
    series: int


class Scanner:
    """Reads one file block by block. Bad lines go to ``bad``; ``left_out`` counts what nobody asked for."""

    def __init__(self, file: str, book: Book, bad: BadRows, left_out: Counter[str]) -> None:
        self._file = file
        self._book = book
        self._bad = bad
        self._left_out = left_out
        self._lines = 0

    def feed(self, block: bytes) -> Samples:
        """The samples of whole lines; b"" is one line that was too long."""
        if not block:
            self._refuse(0, too_long())
            self._lines += 1
            return _samples([], [], [])
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
        starts = np.concatenate([[0], ends[:-1] + 1])
        stretches, odd = self._stretches(block, starts, ends)
        found, lines, more = self._numbers(block, starts, ends, stretches)
        odd += more
        if odd:
            found, lines = self._with_odd(block, starts, ends, odd, found, lines)
        good = (found.times >= EARLIEST) & (found.times <= LATEST)
        if not good.all():
            for line in lines[~good]:
                self._refuse(int(line), "its time lies outside the years 2000 to 2100: write unix seconds")
            found = Samples(found.ids[good], found.times[good], found.values[good])
        self._lines += ends.size
        return found

    def _refuse(self, line: int, why: str) -> None:
        self._bad.add(self._file, self._lines + line + 1, why)

    # --- which lines are whose --------------------------------------------------------------------------------------

    def _stretches(self, block: bytes, starts: Places, ends: Places) -> tuple[list[Stretch], list[int]]:
        """Stretches of wanted series, and the lines that must be looked at one by one."""
        stretches: list[Stretch] = []
        odd: list[int] = []
        line, lines = 0, ends.size
        while line < lines:
            start, end = starts.item(line), ends.item(line)
            count = 1
            if start < end and block[start] != 35:  # '#'
                name = _NAME.match(block, start, end)
                if name is None or end - start > MAX_LINE_BYTES:
                    odd.append(line)
                elif not self._book.wants(name.group()):
                    count = _follow(block, starts, ends, line, block[start : name.end() + 1])
                    self._left_out[self._book.unwanted] += count
                else:
                    stretch = self._stretch(block, starts, ends, line, name)
                    count = stretch.lines
                    if stretch.series < 0:
                        odd.append(line)
                    else:
                        stretches.append(stretch)
            line += count
        return stretches, odd

    def _stretch(self, block: bytes, starts: Places, ends: Places, line: int, name: re.Match[bytes]) -> Stretch:
        """The series that begins in a line; number -1 where the line has not the usual form."""
        start, end = starts.item(line), ends.item(line)
        time_at = block.rfind(b" ", start, end)
        value_at = block.rfind(b" ", start, time_at) if time_at > 0 else -1
        if value_at < name.end():
            return Stretch(line, 1, 0, -1)
        try:
            series = self._book.number(name.group(), block[name.end() : value_at])
        except ValueError:
            return Stretch(line, 1, 0, -1)
        prefix = block[start : value_at + 1]
        return Stretch(line, _follow(block, starts, ends, line, prefix), len(prefix), series)

    # --- numbers ----------------------------------------------------------------------------------------------------

    def _numbers(
        self, block: bytes, starts: Places, ends: Places, stretches: list[Stretch]
    ) -> tuple[Samples, Places, list[int]]:
        """Samples of all stretches, their lines, and the lines whose numbers must be looked at one by one."""
        first, counts, skips, series = np.array(stretches, np.int64).reshape(-1, 4).T
        lines = _ranges(first, counts)
        begin, stop = starts[lines] + np.repeat(skips, counts), ends[lines] + 1
        bytes_of = np.frombuffer(block, np.uint8)
        if lines.size and int((stop - begin).max()) <= _MAX_NUMBER:
            pairs = _pairs(bytes_of[_ranges(begin, stop - begin)].tobytes(), lines.size)
            if pairs is not None:
                return Samples(np.repeat(series, counts).astype(np.int32), pairs[:, 0], pairs[:, 1]), lines, []
        return self._by_stretch(block, starts, ends, stretches)

    def _by_stretch(
        self, block: bytes, starts: Places, ends: Places, stretches: list[Stretch]
    ) -> tuple[Samples, Places, list[int]]:
        """The same, stretch by stretch: one that holds something strange costs only itself."""
        kept: list[tuple[Stretch, Floats]] = []
        odd: list[int] = []
        for one in stretches:
            places = range(one.line, one.line + one.lines)
            tails = [block[starts.item(line) + one.skip : ends.item(line) + 1] for line in places]
            pairs = _pairs(b"".join(tails), one.lines)
            if pairs is None:
                odd += places
            else:
                kept.append((one, pairs))
        both = np.concatenate([np.empty((0, 2)), *(pairs for _, pairs in kept)])
        counts = np.array([one.lines for one, _ in kept], np.int64)
        ids = np.repeat(np.array([one.series for one, _ in kept], np.int32), counts)
        lines = _ranges(np.array([one.line for one, _ in kept], np.int64), counts)
        return Samples(ids, both[:, 0], both[:, 1]), lines, odd

    def _with_odd(
        self, block: bytes, starts: Places, ends: Places, odd: list[int], found: Samples, lines: Places
    ) -> tuple[Samples, Places]:
        """Lines of unusual form read one by one and put in their places among the others."""
        kept: list[int] = []
        ids: list[int] = []
        times: list[float] = []
        values: list[float] = []
        for line in sorted(odd):
            try:
                if ends[line] - starts[line] > MAX_LINE_BYTES:
                    raise ValueError(too_long())
                name, labels, value, time = sample_of(block[starts.item(line) : ends.item(line)])
                if self._book.wants(name):
                    ids.append(self._book.number(name, labels))
                    times.append(time)
                    values.append(value)
                    kept.append(line)
                else:
                    self._left_out[self._book.unwanted] += 1
            except ValueError as error:
                self._refuse(line, str(error))
        every = np.concatenate([lines, np.array(kept, np.int64)])
        order = np.argsort(every, kind="stable")
        more = _samples(ids, times, values)
        both = (np.concatenate([found[i], more[i]])[order] for i in range(3))
        return Samples(*both), every[order]


def _samples(ids: list[int], times: list[float], values: list[float]) -> Samples:
    return Samples(np.array(ids, np.int32), np.array(times, np.float64), np.array(values, np.float64))


def _ranges(first: Places, counts: Places) -> Places:
    """first[0], first[0] + 1 ... (counts[0] of them), first[1] ..."""
    total = np.cumsum(counts)
    steps = np.arange(int(total[-1]) if total.size else 0, dtype=np.int64)
    found: Places = steps + np.repeat(first - (total - counts), counts)
    return found


def _follow(block: bytes, starts: Places, ends: Places, line: int, prefix: bytes) -> int:
    """How many lines from ``line`` on begin with ``prefix``: leaps, then halves, then counts to be sure."""
    lines, low, leap = starts.size, line, 1
    while low + leap < lines and block.startswith(prefix, starts.item(low + leap)):
        low += leap
        leap *= 2
    high = min(low + leap, lines)
    while high - low > 1:
        middle = (low + high) // 2
        if block.startswith(prefix, starts.item(middle)):
            low = middle
        else:
            high = middle
    count = low - line + 1
    if count > 2 and block.count(b"\n" + prefix, starts.item(line), ends.item(low)) != count - 1:
        count = 1
        while block.startswith(prefix, starts.item(line + count)):
            count += 1
    return count


def _pairs(text: bytes, lines: int) -> Floats | None:
    """(time, value) of ``lines`` lines ``value time``: float64[lines, 2]; None where any line is something else.

    The numbers are read as one JSON list, which rounds as correctly as float() does and is five times as fast.
    """
    gaps = np.frombuffer(text, np.uint8)
    gaps = gaps[gaps <= 32]
    if gaps.size != 2 * lines or (gaps[::2] != 32).any() or (gaps[1::2] != 10).any():
        return None
    found = _plain(text) if not text.translate(None, _PLAIN) else None
    if found is None:
        try:
            found = [number(word) for word in text.split()]
        except ValueError:
            return None
    if len(found) != 2 * lines:
        return None
    return np.array(found, np.float64).reshape(-1, 2)[:, ::-1]


def _plain(text: bytes) -> list[float] | None:
    try:
        found: list[float] = orjson.loads(b"[" + text[:-1].translate(_COMMAS) + b"]")
    except orjson.JSONDecodeError:
        return None
    return found


def number(word: bytes) -> float:
    """A number as OpenMetrics writes it. Raises ValueError."""
    if b"_" in word or not word.isascii():  # float() would take both
        raise ValueError(f"{shown(word)} is no number")
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"{shown(word)} is no number") from None


def shown(raw: bytes) -> str:
    return repr(raw[:40].decode(errors="replace"))


def sample_of(line: bytes) -> tuple[bytes, bytes, float, float]:
    """(name, ``{...}`` or nothing, value, time) of one line; exemplars are let pass. Raises ValueError: why not."""
    line = line.strip()
    name = _NAME.match(line)
    if name is None:
        raise ValueError(f"{shown(line)} begins with no metric name")
    at = name.end()
    while line[at : at + 1] in (b" ", b"\t"):
        at += 1
    labels = b""
    if line[at : at + 1] == b"{":
        match = _LABELS.match(line, at)
        if match is None:
            raise ValueError(f"the labels of {shown(name.group())} cannot be read")
        labels, at = match.group(), match.end()
    words = line[at:].split()
    if len(words) < 2:
        raise ValueError(f"a sample of {shown(name.group())} needs a value and a time")
    if len(words) > 2 and not words[2].startswith(b"#"):
        raise ValueError(f"{shown(words[2])} stands behind a sample of {shown(name.group())}")
    return name.group(), labels, number(words[0]), number(words[1])
