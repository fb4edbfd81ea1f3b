"""Files that go with a report: text, redacted, within a budget; what is left out is listed with the reason."""

from __future__ import annotations

import glob
import os
import stat
from typing import Any, Sequence

from backend.security.redact import redact

#: Files that one report looks at, and those it lists as left out.
MOST_FILES, MOST_LISTED = 1000, 100
#: Of a file that is too large its end is taken, where at least this much room is left.
LEAST = 4096


def collect(globs: Sequence[str], room: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(taken: path, bytes, text, and how many bytes of its start were cut; left out: path, bytes, why)."""
    taken: list[dict[str, Any]] = []
    left: list[dict[str, Any]] = []
    paths: list[str] = []
    for pattern in globs:
        for path in sorted(glob.iglob(pattern, recursive=True)):
            if path not in paths:
                paths.append(path)
            if len(paths) > MOST_FILES:
                break
    for path in paths[:MOST_FILES]:
        found, why, size = _text(path, room)
        if why:
            left.append({"path": path, "bytes": size, "why": why})
        else:
            text = redact(found.decode("utf-8", "replace"))
            taken.append({"path": path, "bytes": size, "cut": size - len(found), "text": text})
            room -= len(found)
    if len(paths) > MOST_FILES:
        left.append({"path": "", "bytes": 0, "why": f"more than {MOST_FILES} files match"})
    if len(left) > MOST_LISTED:
        rest = len(left) - MOST_LISTED
        left = left[:MOST_LISTED] + [{"path": "", "bytes": 0, "why": f"and {rest} more files"}]
    return taken, left


def _text(path: str, room: int) -> tuple[bytes, str, int]:
    """(its text, why it is left out, its size)."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return b"", "no file", 0
        size = found.st_size
        if size > room and room < LEAST:
            return b"", "no room left", size
        with open(path, "rb") as file:
            file.seek(max(0, size - room))
            text = file.read(min(size, room))
    except OSError as error:
        return b"", error.strerror or str(error), 0
    if b"\0" in text:
        return b"", "no text", size
    return text, "", size
