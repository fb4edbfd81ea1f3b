"""Reads the files of a bundle in blocks of whole lines, with progress, and lists the rows that cannot be read."""

from __future__ import annotations

import gzip
import os
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

from backend.ingest.bundle.folder import BundleError, PartFile

#: Told (bytes done, bytes in all) after each block. What it raises stops the reading and passes through.
Progress = Callable[[int, int], None]

#: Bytes read at a time: enough for numpy, small enough for the cache of a core (measured: 1 to 2 MiB are fastest).
BLOCK_BYTES = 1_048_576
#: Longest line that is looked at; longer ones are bad rows.
MAX_LINE_BYTES = 4_194_304
#: Bad rows that are described one by one; the rest is only counted.
TOLD = 100
#: Files held open at once for reading single lines.
MOST_OPEN = 32


@dataclass(frozen=True, slots=True)
class BadRow:
    """One row that was left out: its file inside the bundle, its line from 1 (0 = the whole file), and why."""

    file: str
    line: int
    why: str


@dataclass
class BadRows:
    """What was left out: the first TOLD rows in words, all of them counted, by file too."""

    told: list[BadRow] = field(default_factory=list)
    by_file: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return self.by_file.total()

    def add(self, file: str, line: int, why: str) -> None:
        self.by_file[file] += 1
        if len(self.told) < TOLD:
            self.told.append(BadRow(file, line, why))


class Reading:
    """One pass over the files of a bundle. ``total`` bytes lie before it."""

    def __init__(self, total: int, progress: Progress | None = None, block_bytes: int = BLOCK_BYTES) -> None:
        self.bad = BadRows()
        self._total = total
        self._done = 0
        self._progress = progress
        self._block_bytes = block_bytes

    def blocks(self, file: PartFile) -> Iterator[tuple[int, bytes]]:
        """(offset, whole lines, each with its newline); b"" stands for one line over MAX_LINE_BYTES, left out.

        A file that breaks off in the middle, as packed ones do, gives what comes before. Raises BundleError for one
        that cannot be opened.
        """
        offset, rest, skipping = 0, b"", False
        for chunk in self._chunks(file):
            cut = chunk.rfind(b"\n") + 1
            if skipping and cut:
                first = chunk.find(b"\n") + 1
                yield offset, b""
                offset += len(rest) + first
                chunk, cut, rest, skipping = chunk[first:], cut - first, b"", False
            if skipping:
                offset += len(chunk)
            elif cut:
                yield offset, rest + chunk[:cut]
                offset += len(rest) + cut
                rest = chunk[cut:]
            else:
                rest += chunk
                if len(rest) > MAX_LINE_BYTES:
                    offset, rest, skipping = offset + len(rest), b"", True
        if rest or skipping:
            yield offset, rest and rest + b"\n"

    def lines(self, file: PartFile) -> Iterator[tuple[int, int, bytes]]:
        """(line from 1, offset, line without its newline); lines that are too long are listed as bad."""
        number = 0
        for offset, block in self.blocks(file):
            if not block:
                number += 1
                self.bad.add(file.name, number, too_long())
                continue
            for line in block[:-1].split(b"\n"):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    self.bad.add(file.name, number, too_long())
                else:
                    yield number, offset, line
                offset += len(line) + 1

    def whole(self, file: PartFile) -> bytes:
        """All of a file at once; for the few that are one document. Raises BundleError."""
        return b"".join(self._chunks(file))

    def _chunks(self, file: PartFile) -> Iterator[bytes]:
        before = self._done
        try:
            raw = file.path.open("rb")
        except OSError as error:
            raise unreadable(file, error) from error
        with raw:
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if file.name.endswith(".gz") else raw
            while chunk := self._chunk(file, stream):
                self._tell(before + min(raw.tell(), file.size))
                yield chunk
        self._tell(before + file.size)

    def _chunk(self, file: PartFile, stream: BinaryIO) -> bytes:
        try:
            return stream.read(self._block_bytes)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.bad.add(file.name, 0, f"the packed file breaks off: {error}")
            return b""
        except OSError as error:
            raise unreadable(file, error) from error

    def _tell(self, done: int) -> None:
        self._done = done
        if self._progress is not None:
            self._progress(done, self._total)


def unreadable(file: PartFile, error: OSError) -> BundleError:
    return BundleError(f"cannot be read: {error.strerror or error}", file.path, "Check its rights and the disk.")


def too_long() -> str:
    return f"is longer than {MAX_LINE_BYTES} bytes"


class Shelf:
    """Single lines of many files by place, few files open at once; closed by ``with``."""

    def __init__(self, files: tuple[PartFile, ...]) -> None:
        self._files = files
        self._open: OrderedDict[int, int] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def read(self, file: int, offset: int, size: int) -> bytes:
        """``size`` bytes of the ``file``-th file. Raises BundleError where they are no longer there."""
        path = self._files[file].path
        try:
            found = os.pread(self._descriptor(file, path), size, offset)
        except OSError as error:
            raise BundleError(f"cannot be read: {error.strerror}", path, "Check its rights and the disk.") from error
        if len(found) != size:
            raise BundleError(
                "has become shorter while it was read", path, "Leave a bundle alone while it is replayed."
            )
        return found

    def _descriptor(self, file: int, path: Path) -> int:
        if file not in self._open:
            if len(self._open) >= MOST_OPEN:
                os.close(self._open.popitem(last=False)[1])
            self._open[file] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._open.move_to_end(file)
        return self._open[file]
