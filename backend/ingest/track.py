"""One followed file: which one it is, how far it was read, and how to tell that it is no longer the same."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

#: Bytes from the beginning of a file, and from just before where reading stopped, by which it is known again.
HEAD_BYTES, TAIL_BYTES = 256, 64
#: Longest line that is handed on, in bytes; of a longer one the beginning, and the rest is passed over.
MAX_LINE_BYTES = 65_536

#: For ``owner``: any account.
ANYONE = -1

#: (size, mtime in ns, ctime in ns): when none moved, nothing was written.
Look = tuple[int, int, int]


def look_of(found: os.stat_result) -> Look:
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class Print:
    """A few bytes of a file, as length and hash."""

    length: int = 0
    hash: str = ""

    @classmethod
    def of(cls, some: bytes) -> Print:
        return cls(len(some), hashlib.blake2b(some, digest_size=8).hexdigest()) if some else cls()

    def fits(self, some: bytes) -> bool:
        """Whether ``some`` begins with the same bytes."""
        return len(some) >= self.length and Print.of(some[: self.length]) == self


@dataclass(slots=True)
class Track:
    """How far one file was read: of fixed size, whatever the file's.

    ``path``: where it was found. ``leaves``: the path that it has left, "" while it is there; such a file is read to
    its end and then forgotten. ``real``: where a symbolic link pointed. ``offset``: the next byte to read, the begin of
    a line unless ``skips``. ``fd``: -1 unless held open. ``look``: the last stat, since ``changed_at``; ``at_end``: all
    that it said is there was read. ``over``: also the last line without an end was handed on. ``ends``: nobody writes
    it any more, as a copy. ``backlog``: bytes of its end to read when it is first seen. ``owner``: whose it must be.
    Times in unix s.
    """

    path: str
    device: int = 0
    inode: int = 0
    offset: int = 0
    head: Print = Print()
    tail: Print = Print()
    written_ns: int = 0
    skips: bool = False
    leaves: str = ""
    real: str = ""
    fd: int = -1
    look: Look | None = None
    at_end: bool = False
    over: bool = False
    ends: bool = False
    changed_at: float = 0.0
    due: float = 0.0
    backlog: int = 0
    owner: int = ANYONE

    @property
    def known(self) -> bool:
        """Whether a file was ever seen there."""
        return self.inode != 0

    @property
    def name(self) -> str:
        """Under which its mark is kept."""
        return f"{self.leaves}#{self.device}:{self.inode}" if self.leaves else self.path

    @property
    def identity(self) -> tuple[int, int]:
        return (self.device, self.inode)

    def is_at(self, found: os.stat_result) -> bool:
        return self.identity == (found.st_dev, found.st_ino)

    def take(self, found: os.stat_result, now: float, offset: int = 0) -> None:
        """Begin with this file; an ``offset`` may lie inside a line."""
        self.device, self.inode, self.offset, self.skips = found.st_dev, found.st_ino, offset, offset > 0
        self.head, self.tail, self.look = Print(), Print(), None
        real = os.path.realpath(self.path)
        self.real = real if real != os.path.abspath(self.path) else ""
        self.see(found, now)

    def rewind(self, size: int) -> None:
        """Go back by ``size`` bytes, to the begin of a line."""
        if size and self.offset:
            self.offset, self.tail = max(0, self.offset - size - 1), Print()
            self.skips = self.offset > 0

    def see(self, found: os.stat_result, now: float) -> None:
        """Note a stat; what moved since the last one has to be read."""
        look = look_of(found)
        if look != self.look:
            self.look, self.at_end, self.over, self.changed_at = look, False, False, now
        self.written_ns = found.st_mtime_ns

    def open(self) -> None:
        """Open it where it is not, never a pipe or a device. Raises OSError; ESTALE where another file is there now."""
        if self.fd >= 0:
            return
        self.fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        found = os.fstat(self.fd)
        if not stat.S_ISREG(found.st_mode) or not self.is_at(found):
            self.close()
            raise OSError(116, "another file is there now", self.path)
        if not self.may_be_read(found.st_uid):
            self.close()
            raise PermissionError(1, "belongs to another account", self.path)

    def may_be_read(self, uid: int) -> bool:
        """Whether a file of this account may be read."""
        return self.owner in (ANYONE, uid)

    def close(self) -> None:
        if self.fd >= 0:
            with suppress(OSError):
                os.close(self.fd)
            self.fd = -1

    def same(self, fd: int) -> bool:
        """Whether the file behind ``fd`` begins as this one did, and still holds what was read last."""
        if self.head.length and not self.head.fits(os.pread(fd, self.head.length, 0)):
            return False
        before = self.offset - self.tail.length
        return not self.tail.length or self.tail.fits(os.pread(fd, self.tail.length, before))

    def read_to(self, end: int, last: bytes) -> None:
        """Everything before ``end`` was read; ``last`` are the bytes before it. The file must be open."""
        if len(last) < min(TAIL_BYTES, end):
            last = os.pread(self.fd, min(TAIL_BYTES, end), max(0, end - TAIL_BYTES))
        if self.head.length < HEAD_BYTES:
            self.head = Print.of(os.pread(self.fd, min(HEAD_BYTES, end), 0))
        self.offset, self.tail = end, Print.of(last[-TAIL_BYTES:])

    # --- marks ------------------------------------------------------------------------------------------------------

    def mark(self) -> str:
        """As JSON, for the store."""
        said: dict[str, object] = {"device": self.device, "inode": self.inode, "offset": self.offset}
        said |= {"head": [self.head.length, self.head.hash], "tail": [self.tail.length, self.tail.hash]}
        said["written_ns"] = self.written_ns
        extra = {"skips": self.skips, "leaves": self.leaves, "real": self.real, "ends": self.ends}
        return json.dumps(said | {name: value for name, value in extra.items() if value})

    @classmethod
    def from_mark(cls, path: str, mark: str) -> Track | None:
        """None where the mark is of another make: then the file is as new."""
        try:
            said: Mapping[str, object] = json.loads(mark)
            track = cls(path, _whole(said["device"]), _whole(said["inode"]), _whole(said["offset"]))
            track.head, track.tail = _print(said["head"]), _print(said["tail"])
            track.written_ns = _whole(said["written_ns"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        track.skips, track.ends = bool(said.get("skips")), bool(said.get("ends"))
        track.leaves, track.real = str(said.get("leaves", "")), str(said.get("real", ""))
        return track


@dataclass(frozen=True, slots=True)
class Cut:
    """What to take of a chunk that begins where reading stopped: ``start`` to ``end`` are whole lines, or the beginning
    of one that is too long; the next read begins at ``next``, inside a line where ``skips``."""

    start: int
    end: int
    next: int
    skips: bool
    too_long: bool = False


def cut(chunk: bytes, skips: bool) -> Cut:
    """The whole lines of a chunk; ``skips``: it begins inside a line that is not wanted."""
    start = 0
    if skips:
        start = chunk.find(b"\n") + 1
        if not start:
            return Cut(0, 0, len(chunk), True)
    elif chunk.startswith(b"\0"):  # a hole: its writer went on at its old place after a truncation
        start = len(chunk) - len(chunk.lstrip(b"\0"))
        if start == len(chunk) < MAX_LINE_BYTES:  # it may still be filled
            return Cut(0, 0, 0, False)
    end = chunk.rfind(b"\n", start) + 1
    if end > start:
        return Cut(start, end, end, False)
    if len(chunk) - start >= MAX_LINE_BYTES:
        return Cut(start, start + MAX_LINE_BYTES, len(chunk), True, True)
    return Cut(start, start, start, False)


def _whole(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("is no offset")
    return value


def _print(value: object) -> Print:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], str):
        raise ValueError("is no print")
    return Print(_whole(value[0]), value[1])
