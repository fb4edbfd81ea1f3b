"""Rows of training on their way to the detectors: an append-only file that every process of a host may add to.

Never rows of the database: a run writes millions. The watch reads behind its ``Place``, which is saved together with
the states of its detectors, so that after a crash each row is judged once by what the states know.
"""

from __future__ import annotations

import fcntl
import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson

from backend.ingest.base import SourceError

#: A file is followed by the next at this size; of all that nobody has read yet at most so much is kept.
FILE_BYTES, MOST_BYTES = 16 * 1024**2, 512 * 1024**2
#: Bytes of one reading.
PIECE_BYTES = 4 * 1024**2
#: Rows that are remembered, so that what a sender repeats counts once.
MOST_SEEN = 100_000


@dataclass(frozen=True, slots=True)
class Place:
    """How far a feed was read: ``feed`` is its name ("" = none yet), ``number`` the file, ``offset`` bytes of it."""

    feed: str = ""
    number: int = 1
    offset: int = 0

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Self:
        return cls(str(saved.get("feed", "")), int(saved.get("number", 1)), int(saved.get("offset", 0)))

    @property
    def saved(self) -> dict[str, Any]:
        return {"feed": self.feed, "number": self.number, "offset": self.offset}


class Feed:
    """One cluster's rows under ``folder``. Threads and processes may append; one reads."""

    def __init__(self, folder: Path, file_bytes: int = FILE_BYTES, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._file_bytes, self._most_bytes = file_bytes, most_bytes
        self._lock = threading.Lock()
        self._seen: OrderedDict[int, None] = OrderedDict()
        self.lost = 0

    def fresh(self, rows: Iterable[Any]) -> list[Any]:
        """The rows (anything that can be hashed) that did not come lately; each counts as having come from now on."""
        found = []
        with self._lock:
            for row in rows:
                mark = hash(row)
                if mark in self._seen:
                    self._seen.move_to_end(mark)
                    continue
                self._seen[mark] = None
                found.append(row)
            while len(self._seen) > MOST_SEEN:
                self._seen.popitem(last=False)
        return found

    def forget(self, rows: Iterable[Any]) -> None:
        """These were not kept after all: when they come again they are news."""
        with self._lock:
            for row in rows:
                self._seen.pop(hash(row), None)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """On the disk before it returns. Raises SourceError where the disk takes no more."""
        if not rows:
            return
        body = b"".join(orjson.dumps(row) + b"\n" for row in rows)
        with self._lock:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                with (self._folder / "lock").open("ab") as held:
                    fcntl.flock(held, fcntl.LOCK_EX)
                    self._write(body)
            except OSError as error:
                raise SourceError(f"{self._folder} takes no more: {error.strerror or error}") from error

    def _write(self, body: bytes) -> None:
        files = self._files()
        number = files[-1] if files else 1
        if files and self._path(number).stat().st_size >= self._file_bytes:
            number += 1
            self._bound(files)
        with self._path(number).open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a crash in the middle of a row
                    body = b"\n" + body
            file.write(body)

    def _bound(self, files: Sequence[int]) -> None:
        """Forget the oldest files beyond the limit, read or not."""
        for number in files[: max(0, len(files) - self._most_bytes // self._file_bytes)]:
            self._path(number).unlink(missing_ok=True)

    def read(self, after: Place, most: int) -> tuple[list[dict[str, Any]], Place]:
        """Up to ``most`` rows behind ``after``, and where they end. A place in another feed (of another host) stands
        for the end of this one; files that were forgotten unread are counted in ``lost``."""
        files = self._files()
        if not files:
            return [], after
        name = self._name()
        if after.feed not in ("", name):
            return [], Place(name, files[-1], self._path(files[-1]).stat().st_size)
        number, offset = after.number, after.offset
        if number < files[0]:
            self.lost += files[0] - number
            number, offset = files[0], 0
        rows: list[dict[str, Any]] = []
        while len(rows) < most:
            offset, whole = self._read(number, offset, most - len(rows), rows, last=number >= files[-1])
            if not whole or number >= files[-1]:
                break
            number, offset = number + 1, 0
        return rows, Place(name, number, offset)

    def _read(self, number: int, offset: int, most: int, rows: list[dict[str, Any]], *, last: bool) -> tuple[int, bool]:
        """Whole rows of one file into ``rows``. Returns where they end, and whether that is the file's end: of one that
        is not the ``last`` also what a crash tore off, since nobody will end that row."""
        try:
            with self._path(number).open("rb") as file:
                file.seek(offset)
                piece = file.read(PIECE_BYTES)
        except FileNotFoundError:
            return 0, True
        lines = piece.split(b"\n")[:-1][:most]
        for line in lines:
            with suppress(orjson.JSONDecodeError):  # what a crash tore; the row was never promised
                if isinstance(row := orjson.loads(line), dict):
                    rows.append(row)
        taken = sum(map(len, lines)) + len(lines)
        if not last and taken == piece.rfind(b"\n") + 1:
            taken = len(piece) if len(piece) < PIECE_BYTES else taken
        return offset + taken, taken == len(piece) and len(piece) < PIECE_BYTES

    def drop_before(self, place: Place) -> None:
        """Let go of the files before a place that is saved: a watch that goes back reads from there."""
        files = self._files()
        if not files or place.feed != self._name():
            return
        for number in files:
            if number < place.number:
                with suppress(OSError):  # it stays, and is tried again
                    self._path(number).unlink()

    def _files(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.jsonl") if path.stem.isdecimal())

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08}.jsonl"

    def _name(self) -> str:
        """A name of its own, made once."""
        file = self._folder / "name"
        with suppress(OSError), file.open("x") as new:
            new.write(uuid.uuid4().hex)
        return file.read_text()
