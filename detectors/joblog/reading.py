"""One log, fed in chunks of bytes, folded into a sheet: what rules name, signs of life, who speaks and when."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from detectors.joblog.excerpt import Window
from detectors.joblog.lines import NO_YEAR, Line, expanded, gpu_in, host_in, is_address, rank_in, read_line
from detectors.joblog.marks import Root, Seen, Watchdog, mark_of, root_of, watchdog_of
from detectors.joblog.names import host_of, rank_of
from detectors.joblog.phrases import (
    CHAIN_LITERALS,
    IGNORED,
    chains,
    ended,
    kept,
    quoted,
    step_of,
    tried_again,
)
from detectors.joblog.rules import Hit, Progress, Table
from detectors.scan import Scanner

#: Hits of one rule and rank that are kept: the first ones, because the first cause is looked for.
KEPT_OF_A_RULE = 3
#: Hits and marks of one log that are kept at all.
KEPT_HITS = 400
#: Of a log that finds the room of all used up only the first so many: the first cause is among them.
LEAST_HITS = 8
KEPT_MARKS = 96
#: Lines at the head of a log, at the tail of each block, and behind a hit, that are looked at for signs of life,
#: hosts and times.
HEADS, TAILS, BEHIND = 64, 24, 24
#: A line longer than this is read in pieces; a block without a newline is cut there.
PIECE, OVERLAP, UNCUT = 4096, 300, 262_144
#: Pieces of one line that a terminal cut.
JOINED = 100
#: Bytes from which encoding and wrapping are told.
HEAD = 65_536
_ANSI = re.compile(rb"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])")
_DATE = re.compile(rb"(?<![\d.\-])(20[1-9]\d)[-/][01]\d[-/][0-3]\d[T _]\d\d:")
#: Stands where a carriage return ended a line, so that line numbers stay those of an editor.
_RETURN = b"\x02"


@dataclass(slots=True)
class Rules:
    """A table and the scanner for its literals; made once, shared by all logs."""

    table: Table
    scanner: Scanner

    @classmethod
    def of(cls, table: Table) -> Rules:
        return cls(table, Scanner((*table.literals, *CHAIN_LITERALS, IGNORED)))


@dataclass(slots=True)
class Room:
    """How many more hits all readers that share it may hold together; below 0 each holds its first few."""

    left: int


@dataclass(slots=True)
class Sheet:
    """What one log says, in times of its own clock. ``done``: bytes up to the last line that says it ended well;
    ``excerpt``: its telling lines, where the reader was asked to keep them."""

    path: str
    rank: int | None = None
    host: str = ""
    hits: list[Hit] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    done: int | None = None
    marks: dict[str, float] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)
    watchdogs: list[Watchdog] = field(default_factory=list)
    root: Root | None = None
    last_at: float | None = None
    size: int = 0
    lines: int = 0
    dropped: int = 0
    excerpt: tuple[str, ...] = ()


class LogReader:
    """Feed chunks as they come, then close. O(size) time; memory is one block and what the sheet keeps. ``head``: the
    bytes from which encoding and wrapping are told, held until there are so many. ``room``: what readers of many logs
    share, so that all together hold a bounded number of hits."""

    def __init__(
        self, rules: Rules, path: str, *, excerpt: bool = False, head: int = HEAD, room: Room | None = None
    ) -> None:
        self._rules, self._head, self._room = rules, head, room
        self._window = Window() if excerpt else None
        self._sheet = Sheet(path, rank_of(path), host_of(path))
        self._decoder: codecs.IncrementalDecoder | None = None
        self._told = False
        self._wrap = 0
        self._kept = b""
        self._before = 0
        self._lines = 0
        self._open = False
        self._year = NO_YEAR
        self._chained = False
        self._ignored = False
        self._counts: Counter[tuple[str, int | None]] = Counter()
        self._hosts: Counter[str] = Counter()

    def feed(self, chunk: bytes) -> None:
        """Take any piece of the log."""
        self._kept += chunk
        if not self._told:
            if len(self._kept) < self._head:
                return
            self._tell()
        self._drain(last=False)

    def close(self) -> Sheet:
        """The sheet; nothing can be fed any more."""
        if not self._told:
            self._tell()
        self._drain(last=True)
        sheet = self._sheet
        if self._room is not None:
            self._room.left += len(sheet.hits)
        sheet.lines = self._lines + self._open
        if self._window is not None:
            sheet.excerpt = self._window.lines(hit.text for hit in sheet.hits if hit.level in ("cause", "surface"))
        if sheet.rank is None and len(sheet.seen.ranks) == 1:
            sheet.rank = next(iter(sheet.seen.ranks))
        # What a log says of its host outranks its name; a log of many hosts has none.
        if self._hosts and (sheet.rank is not None or len(self._hosts) == 1):
            names = [name for name, _ in self._hosts.most_common() if not is_address(name)]
            sheet.host = names[0] if names else sheet.host or self._hosts.most_common(1)[0][0]
        return sheet

    def _tell(self) -> None:
        """From the head: the encoding, and the width at which a terminal cut the lines."""
        self._told = True
        encoding = _encoding(self._kept[:4096])
        if encoding:
            self._decoder = codecs.getincrementaldecoder(encoding)("replace")
            kept, self._kept = self._kept, b""
            self._kept = self._decoded(kept)
        self._wrap = _wrapped(self._kept[:HEAD])
        if dated := _DATE.search(self._kept[:HEAD]):
            self._year = int(dated[1])

    def _decoded(self, chunk: bytes, last: bool = False) -> bytes:
        return self._decoder.decode(chunk, last).encode() if self._decoder else chunk

    def _drain(self, *, last: bool) -> None:
        """Read the whole lines that are there; a line without an end is read when it gets too long."""
        cut = len(self._kept) if last else self._kept.rfind(b"\n") + 1
        if not cut and len(self._kept) > UNCUT:
            cut = self._kept.rfind(b"\r") + 1 or len(self._kept)
        block, self._kept = self._kept[:cut], self._kept[cut:]
        for start, end in _cuts(block):
            self._block(block[start:end])

    def _block(self, block: bytes) -> None:
        block = self._plain(block)
        hits = list(self._hits(block))
        if self._window is not None:
            if hits:
                self._window.hit(block, hits[0][0])
            self._window.take(block)
        self._survey(block, [end for _, end in hits])
        returned = block.count(_RETURN)
        self._lines += block.count(b"\n") - returned
        self._open = not block.endswith(b"\n")
        self._before += len(block)
        self._sheet.size = self._before

    def _plain(self, block: bytes) -> bytes:
        if b"\0" in block:
            block = block.replace(b"\0", b"")
        if b"\x1b" in block:
            block = _ANSI.sub(b"", block)
        if b"\r" in block:
            block = block.replace(_RETURN, b"").replace(b"\r\n", b"\n").replace(b"\r", b"\n" + _RETURN)
        return _unwrapped(block, self._wrap) if self._wrap else block

    def _hits(self, block: bytes) -> Iterator[tuple[int, int]]:
        """Note every line that a rule names; yield where one stands that was kept."""
        counted, number, returned = 0, self._lines + 1, _RETURN in block
        for start, end in self._rules.scanner.hits(block):
            number += block.count(b"\n", counted, start) - (block.count(_RETURN, counted, start) if returned else 0)
            counted = start
            known = len(self._sheet.hits)
            for piece in _pieces(block[start:end]):
                self._piece(block, start, piece, number)
            if len(self._sheet.hits) > known:
                yield start, end

    def _piece(self, block: bytes, start: int, piece: bytes, number: int) -> None:
        which = [n for n in self._rules.scanner.which(piece) if n < len(self._rules.table.literals)]
        text = piece.lstrip(_RETURN).decode("utf-8", "replace")
        if chains(text) or IGNORED in text:
            self._chained, self._ignored = self._chained or IGNORED not in text, IGNORED in text
            return
        if not which or _quoted(block, start, text):
            return
        for line in expanded(text, self._year):
            one = which if line.text and line.text in text else None
            hit = self._rules.table.hit(line.text, one)
            if hit is not None:
                self._note(hit, line, piece, block, start, number)

    def _note(self, hit: Hit, line: Line, piece: bytes, block: bytes, start: int, number: int) -> None:
        text = piece.lstrip(_RETURN).decode("utf-8", "replace")
        # A log of one rank is that rank's, whomever its words name; a launcher's log tells of others.
        own = self._sheet.rank is not None
        rank = line.rank if line.rank is not None or own else rank_in(text)
        host = line.host if own and hit.log_class != "node_fail" else host_in(text) or line.host
        key = (hit.rule.name, rank)
        self._counts[key] += 1
        room = KEPT_HITS if self._room is None or self._room.left > 0 else LEAST_HITS
        if self._counts[key] > KEPT_OF_A_RULE or len(self._sheet.hits) >= room:
            self._sheet.dropped += 1
            return
        named = hit.level in ("cause", "surface", "symptom")
        behind = block[start + len(piece) + 1 : start + len(piece) + 600].decode("utf-8", "replace")
        soft = hit.soft or (self._ignored and named) or tried_again("\n".join(behind.split("\n")[:2]))
        chained = self._chained and named
        self._chained, self._ignored = self._chained and not named, self._ignored and not named
        at = line.at if line.at is not None else self._time_before(block, start)
        if self._room is not None:
            self._room.left -= 1
        self._sheet.hits.append(
            hit._replace(
                text=kept(text),
                line=number,
                behind=self._before + start + len(text),
                at=at,
                chained=chained,
                soft=soft,
                rank=rank,
                host=host,
                gpu=line.gpu if line.gpu is not None else gpu_in(text),
            )
        )
        if dog := watchdog_of(text, rank):
            self._sheet.watchdogs.append(dog)

    def _time_before(self, block: bytes, start: int) -> float | None:
        """The last time said in the lines before, which the event cannot be older than."""
        lines = block[max(0, start - 8192) : start].split(b"\n")
        for raw in reversed(lines[-40:]):
            at = read_line(raw[:400].decode("utf-8", "replace"), self._year).at
            if at is not None:
                return at
        return self._sheet.last_at

    def _survey(self, block: bytes, ends: Iterable[int]) -> None:
        """Look at the head and the tail of a block and behind every hit, not at every line."""
        seen = -1
        for start, end in _windows(block, ends, HEADS if not self._before else 0):
            start = max(start, seen)
            seen = max(seen, end)
            behind = self._before + start
            for raw in block[start:end].split(b"\n"):
                behind += len(raw) + 1
                self._look(raw[:2000].lstrip(_RETURN).decode("utf-8", "replace"), behind)

    def _look(self, text: str, behind: int) -> None:
        sheet = self._sheet
        for line in expanded(text, self._year):
            self._hear(line)
            if (step := step_of(line.text)) is not None:
                sheet.progress.append(Progress(behind, step, line.at))
                if len(sheet.progress) > KEPT_MARKS:
                    del sheet.progress[KEPT_MARKS // 4]
            elif ended(line.text):
                sheet.done = behind
            if line.at is not None and (mark := mark_of(line.text)):
                sheet.marks.setdefault(mark, line.at)
                if len(sheet.marks) > KEPT_MARKS:
                    del sheet.marks[next(iter(sheet.marks))]
            sheet.seen.take(line)
            sheet.root = root_of(line.text, sheet.root)

    def _hear(self, line: Line) -> None:
        if line.at is not None:
            self._sheet.last_at = line.at
            if line.at > 1.2e9:
                self._year = int(1970 + line.at / 31_556_952)
        host = line.host or host_in(line.text)
        if host:
            self._hosts[host] += 1


def _encoding(head: bytes) -> str:
    """The encoding that a byte order mark or NUL bytes tell; "" for what is read as UTF-8 with strays."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if head.startswith(mark):
            return name
    odd, even = head[1::2].count(0), head[0::2].count(0)
    if len(head) >= 8 and max(odd, even) > 0.4 * len(head) / 2 and min(odd, even) < 0.05 * len(head) / 2:
        return "utf-16-le" if odd > even else "utf-16-be"
    return ""


def _wrapped(head: bytes) -> int:
    """The width at which every long line was cut, 0 where lines are whole. Lines that begin alike are whole ones,
    though many be of one length."""
    lines = [line.rstrip(b"\r") for line in head.split(b"\n")[:-1]]
    lengths = Counter(map(len, lines))
    width = max(lengths, default=0)
    if not 60 <= width <= 200 or lengths[width] < max(4, 0.08 * len(lines)):
        return 0
    full = [(one, after) for one, after in pairwise(lines) if len(one) == width]
    alike = sum(one[:4] == after[:4] for one, after in full)
    return 0 if 2 * alike > len(full) else width


def _unwrapped(block: bytes, width: int) -> bytes:
    """Lines that a terminal cut are made one again, of at most JOINED pieces."""
    lines, joined, out = block.split(b"\n"), 0, list[bytes]()
    for line in lines[:-1]:
        joined = joined + 1 if len(line) == width and joined < JOINED else 0
        out.append(line if joined else line + b"\n")
    return b"".join(out) + lines[-1]


def _cuts(block: bytes) -> Iterator[tuple[int, int]]:
    """Spans of a block that are not too large, between lines wherever a line ends in time."""
    start = 0
    while start < len(block):
        end = min(start + 4 * UNCUT, len(block))
        if end < len(block):
            end = block.rfind(b"\n", start, end) + 1 or end
        yield start, end
        start = end


def _pieces(line: bytes) -> Iterator[bytes]:
    """A line, or a very long one in pieces that overlap."""
    if len(line) <= 2 * PIECE:
        yield line
        return
    for start in range(0, len(line), PIECE):
        yield line[start : start + PIECE + OVERLAP]


def _quoted(block: bytes, start: int, text: str) -> bool:
    """Is this a source line under its ``File "x", line 3``?"""
    before = block[block.rfind(b"\n", 0, max(0, start - 1)) + 1 : max(0, start - 1)]
    return quoted(before[-600:].lstrip(_RETURN).decode("utf-8", "replace"), text)


def _windows(block: bytes, ends: Iterable[int], heads: int) -> Iterator[tuple[int, int]]:
    """Spans of whole lines to look at, in order; they may touch, never run back."""
    if len(block) <= 16_384:
        yield 0, len(block)
        return
    yield 0, _forth(block, 0, heads)
    for count, end in enumerate(ends):
        if count >= 40:
            break
        yield end + 1, _forth(block, end + 1, BEHIND)
    tail = len(block)
    for _ in range(TAILS):
        tail = block.rfind(b"\n", max(0, tail - 4096), max(0, tail))
        if tail <= 0:
            break
    yield max(0, tail), len(block)


def _forth(block: bytes, start: int, lines: int) -> int:
    """Where so many lines behind ``start`` end, 4 KiB a line at most."""
    end = start
    for _ in range(lines):
        found = block.find(b"\n", end, end + 4096)
        if found < 0:
            return min(len(block), end + 4096)
        end = found + 1
    return end
