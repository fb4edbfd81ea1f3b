"""What rotation leaves beside a log file: which names are leftovers, and which of them holds what was not read yet."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress

from backend.ingest.track import Track

#: Names that rotation appends, and that it puts before the ending (app-20260301.log); compressed ones are never read.
_DATE = r"[.-]\d{4}-?\d\d-?\d\d(?:[T_.-]?\d{1,10})?"
_AFTER = re.compile(rf"\.\d{{1,4}}|{_DATE}|\.old|\.bak|~")
_BETWEEN = re.compile(rf"\.\d{{1,4}}|{_DATE}")
PACKED = re.compile(r"\.(?:gz|xz|zst|bz2|lz4|lzma|br|[Zz]|zip|tgz)$")
#: Entries of one folder that are looked at; a folder with more is no place for logs.
MOST_ENTRIES = 20_000


def is_packed(name: str) -> bool:
    return PACKED.search(name) is not None


def is_leftover(name: str, base: str) -> bool:
    """Whether ``name`` is what rotation of ``base`` leaves behind; both without their folder."""
    if name == base:
        return False
    if name.startswith(base):
        return _AFTER.fullmatch(PACKED.sub("", name[len(base) :])) is not None or is_packed(name)
    stem, ending = os.path.splitext(base)
    name = PACKED.sub("", name)
    inside = name.startswith(stem) and name.endswith(ending) and len(name) > len(base)
    return bool(ending) and inside and _BETWEEN.fullmatch(name[len(stem) : len(name) - len(ending)]) is not None


def bases(name: str) -> Iterator[str]:
    """Names of which ``name`` may be a leftover, without its folder."""
    plain = PACKED.sub("", name)
    if plain != name:
        yield plain
    for found in re.finditer(r"[.~-]", plain):
        if found.start() and is_leftover(plain, plain[: found.start()]):
            yield plain[: found.start()]
    stem, ending = os.path.splitext(plain)
    for found in re.finditer(r"[.-]", stem):
        if ending and found.start() and is_leftover(plain, stem[: found.start()] + ending):
            yield stem[: found.start()] + ending


def beside(track: Track) -> list[tuple[str, os.stat_result]]:
    """Where the file of ``track`` may be by now: regular files in its folder that are leftovers of its path or the very
    same file under another name, and where its link pointed; the one written longest ago first."""
    folder, base = os.path.split(track.leaves or track.path)
    found: list[tuple[str, os.stat_result]] = []
    with suppress(OSError), os.scandir(folder or ".") as entries:
        for _, entry in zip(range(MOST_ENTRIES), entries, strict=False):
            name = entry.name
            if name == base or is_packed(name) or not (is_leftover(name, base) or entry.inode() == track.inode):
                continue
            with suppress(OSError):
                at = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(at.st_mode):
                    found.append((entry.path, at))
    if track.real:
        with suppress(OSError):
            found.append((track.real, os.stat(track.real)))
    return sorted(found, key=lambda one: one[1].st_mtime_ns)


def where(track: Track, near: Sequence[tuple[str, os.stat_result]]) -> tuple[str, os.stat_result] | None:
    """Which of those beside it is the file that ``track`` followed, or a copy of it."""
    for path, found in near:
        if track.is_at(found):
            return path, found
    return next(((path, found) for path, found in reversed(near) if holds(track, path, found)), None)


def holds(track: Track, path: str, found: os.stat_result) -> bool:
    """Whether this file begins with what ``track`` had read: a copy of it, or the same after its mount changed."""
    if found.st_size < track.offset or not track.head.length:
        return False
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            return track.same(fd)
        finally:
            os.close(fd)
    return False
