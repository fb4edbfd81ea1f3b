"""Log files as a source: kernel, syslog, scheduler and fabric logs of this host or of many, by path and pattern."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import tzinfo

from backend.facts import Batch, RawEvent
from backend.ingest.base import SourceError
from backend.ingest.follow import BYTES, Budget, Follower, Piece
from backend.ingest.heard import UNPROVEN, Boot, Line, Parse, events, proven, spoken, this_boot, this_host
from backend.ingest.lineforms import PLAIN, Form, read_line, sniff
from backend.ingest.linetimes import Origin
from backend.ingest.logs import MAX_LINE
from backend.ingest.patterns import Pattern
from detectors.model import Need

#: New files are looked for this often, in seconds.
RESCAN_S = 10.0
#: A file of a pattern that is not there any more is forgotten after this, in seconds.
FORGET_S = 86_400.0
#: What is read of a file that was there before we were: its end. Older lines are no news.
OLD_BYTES = 1_048_576
#: Events of one turn; the rest comes with the next.
MOST_EVENTS = 5_000
#: Messages of several lines, by what stands in each of them; how many, and how long to wait for the rest, in seconds.
JOINED = (b"NVRM", b"[Hardware Error]")
HEAD, LOST = b"NVRM: The NVIDIA GPU ", b"fallen off the bus"
MOST_JOINED, WAIT_S = 40, 2.0
_PATTERN = "pattern "

#: (start, end) of each line of a chunk that may be worth reading.
Hits = Callable[[bytes], Sequence[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Where:
    """What lines of files leave unsaid: this host, its boot, and the zone of their clocks (None: this machine's)."""

    host: str
    boot: Boot | None = None
    zone: tzinfo | None = None

    @classmethod
    def here(cls, zone: tzinfo | None = None) -> Where:
        return cls(this_host(), this_boot(), zone)


class FileSource:
    """Follows files; each line that ``hits`` points at is read by the form of its file and judged by ``parse``.

    ``trusted``: whoever can write to their logger may speak for the kernel; else lines of files that hold everybody's
    are marked unproven. Remembers a form a file; one source belongs to one loop.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        parse: Parse,
        hits: Hits,
        where: Where,
        budget: Budget | None = None,
        name: str = "files",
        follower: Follower | None = None,
        *,
        trusted: bool = False,
    ) -> None:
        self._name, self._trusted = name, trusted
        self._patterns = [Pattern(text) for text in patterns]
        self._parse, self._hits, self._where = parse, hits, where
        self._follower = follower or Follower(budget)
        self._forms: dict[str, Form] = {}
        self._gone: dict[str, float] = {}
        self._known: set[str] = set()
        self._new: dict[str, str] = {}
        self._waits: dict[str, tuple[int, float]] = {}
        self._scanned: float | None = None
        self._counts: Counter[str] = Counter()

    @property
    def name(self) -> str:
        return self._name

    def resume(self, marks: Mapping[str, str]) -> None:
        """Go on from what was committed last."""
        self._known = {name.removeprefix(_PATTERN) for name in marks if name.startswith(_PATTERN)}
        self._new, self._scanned, self._waits = {}, None, {}
        self._follower.resume({name: mark for name, mark in marks.items() if not name.startswith(_PATTERN)})

    def counts(self) -> Mapping[str, float]:
        """What it read and what it cost, since the start."""
        problems = sum(text != "is not there" for text in self._follower.problems.values())
        return {"files": self._follower.files, "not readable": problems, **self._follower.counts, **self._counts}

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        """Events of the lines that were written since, up to the budget. Raises SourceError where no file at all can be
        read."""
        self._rescan(end)
        before = self._follower.counts[BYTES]
        found: list[RawEvent] = []
        with closing(self._follower.turn(end)) as pieces:
            for piece in pieces:
                found += self._heard(piece, end)
                if len(found) >= MOST_EVENTS:
                    break
        marks = {**self._follower.moved(), **self._new}
        self._new = {}
        if not found and self._follower.counts[BYTES] == before:
            self._check()
        return Batch(self._name, end, end, events=tuple(found), marks=marks, more=self._follower.more)

    # --- which files ------------------------------------------------------------------------------------------------

    def _rescan(self, now: float) -> None:
        """Look for new files, and forget those that have been gone for long or are no longer meant."""
        if self._scanned is not None and 0 <= now - self._scanned < RESCAN_S:
            return
        self._scanned = now
        there: set[str] = set()
        for pattern in self._patterns:
            backlog = None if pattern.text in self._known else OLD_BYTES
            for path in pattern.paths():
                there.add(path)
                self._follower.want(path, backlog)
            if pattern.text not in self._known:
                self._known.add(pattern.text)
                self._new[f"{_PATTERN}{pattern.text}"] = "known"
        for path in self._follower.paths:
            if path in there:
                self._gone.pop(path, None)
            elif self._host(path) is None or now - self._gone.setdefault(path, now) > FORGET_S:
                self._follower.forget(path)
                self._forms.pop(path, None)
                self._gone.pop(path, None)

    def _host(self, path: str) -> str | None:
        """The host that the path names, "" for ours, None where nobody asks for the file."""
        return next((host for one in self._patterns if (host := one.host(path)) is not None), None)

    def _check(self) -> None:
        problems = self._follower.problems
        if problems and len(problems) >= self._follower.files:
            path, text = next(iter(problems.items()))
            more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
            raise SourceError(f"none of the log files can be read: {path}: {text}{more}")

    # --- lines --------------------------------------------------------------------------------------------------------

    def _heard(self, piece: Piece, now: float) -> list[RawEvent]:
        """Events of one chunk. A message that may go on at the end of the file is left for the next turn."""
        chunk = piece.chunk
        if piece.at_end and (begun := _begun(chunk)) >= 0 and self._waits_for_more(piece, begun, now):
            chunk = chunk[:begun]
            self._follower.back(piece, piece.offset + begun)
        spans = _with_context(chunk, self._hits(chunk))
        self._counts["lines"] += chunk.count(b"\n") + (not chunk.endswith(b"\n") and bool(chunk))
        host = self._host(piece.path)
        origin = self._origin(host or "", now)
        form = self._form(piece.path, chunk, origin)
        found: list[RawEvent] = []
        for start, end in spans:
            lines = [self._line(piece, form, raw, origin, piece.offset + at) for at, raw in _split(chunk, start, end)]
            found += events(lines, self._parse, origin.host, now)
        return found

    def _line(self, piece: Piece, form: Form, raw: bytes, origin: Origin, offset: int) -> Line:
        text = raw[:MAX_LINE].decode(errors="replace").rstrip("\r\n")
        said = read_line(form, text, origin)
        if not (self._trusted or proven(said, form.name, os.path.basename(piece.path))):
            said = replace(said, attrs={**said.attrs, UNPROVEN: "1"})
        return Line(said, spoken(said) if text.startswith("{") else text, f"{piece.place}:{offset}")

    def _waits_for_more(self, piece: Piece, begun: int, now: float) -> bool:
        """Whether to leave a message that may not be whole yet, for WAIT_S at most."""
        place, since = self._waits.get(piece.path, (-1, now))
        if place != piece.offset + begun:
            self._waits[piece.path] = (piece.offset + begun, now)
            return True
        return 0 <= now - since < WAIT_S

    def _origin(self, host: str, now: float) -> Origin:
        where = self._where
        boot = where.boot if not host or host == where.host else None
        return Origin(host or where.host, now, where.zone, boot.at if boot else None, boot.id if boot else "")

    def _form(self, path: str, chunk: bytes, origin: Origin) -> Form:
        """The form of a file, told by the first lines that were read of it."""
        form = self._forms.get(path)
        if form is None or form is PLAIN:
            form = self._forms[path] = sniff(chunk[:65_536].decode(errors="replace").splitlines(), origin)
        return form


def _split(chunk: bytes, start: int, end: int) -> list[tuple[int, bytes]]:
    """(offset, line) of each line of a span."""
    found = []
    for raw in chunk[start:end].split(b"\n"):
        found.append((start, raw))
        start += len(raw) + 1
    return found


def _begun(chunk: bytes) -> int:
    """Where a message of several lines begins that may go on behind the end of ``chunk``; -1 where none does."""
    end = len(chunk.rstrip(b"\r\n"))
    start = chunk.rfind(b"\n", 0, end) + 1
    word = next((word for word in JOINED if word in chunk[start:end]), b"")
    if not word:
        return -1
    for _ in range(MOST_JOINED):
        if HEAD in chunk[start:end] or not start:
            break
        before = chunk.rfind(b"\n", 0, start - 1) + 1
        if word not in chunk[before : start - 1]:
            break
        start = before
    lost = word != JOINED[0] or HEAD in chunk[start:end] and LOST not in chunk[start:end]
    return start if lost else -1


def _with_context(chunk: bytes, hits: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The hits, with the lines around them that may belong to the same message."""
    found: list[tuple[int, int]] = []
    for start, end in hits:
        word = next((word for word in JOINED if word in chunk[start:end]), b"")
        if found and (start <= found[-1][1] or word and start == found[-1][1] + 1 and word in chunk[slice(*found[-1])]):
            found[-1] = (found[-1][0], max(end, found[-1][1]))
            continue
        for _ in range(MOST_JOINED if word else 0):
            before = chunk.rfind(b"\n", 0, max(start - 1, 0)) + 1
            if not start or word not in chunk[before : start - 1] or found and before <= found[-1][1]:
                break
            start = before
        for _ in range(MOST_JOINED if word else 0):
            after = chunk.find(b"\n", end + 1)
            after = len(chunk) if after < 0 else after
            if end + 1 >= len(chunk) or word not in chunk[end + 1 : after]:
                break
            end = after
        found.append((start, end))
    return found
