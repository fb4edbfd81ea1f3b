"""The last lines of each job, in small files: any process of this host can read them, and a restart keeps them."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import orjson

#: What is kept of a line.
KEPT_CHARS = 4_096
#: A job's file is set aside at half of its limit, and what was set aside before is forgotten.
_NOW, _BEFORE = ".jsonl", ".old.jsonl"


@dataclass(frozen=True, slots=True)
class TailLine:
    """One line that a job printed: ``at`` unix s; ``file``, ``host`` and ``rank`` are "" where not known; ``place`` is
    the same for the same line read twice."""

    at: float
    text: str
    file: str = ""
    host: str = ""
    rank: str = ""
    place: str = ""


class Tails:
    """``most_bytes`` a job, ``most_jobs`` jobs; those that were silent for longest are forgotten first. ``keep`` only
    remembers, ``flush`` writes. Threads may share one; so may processes."""

    def __init__(self, folder: Path, most_bytes: int = 262_144, most_jobs: int = 2_000) -> None:
        self._folder = folder
        self._most_bytes, self._most_jobs = most_bytes, most_jobs
        self._lock = threading.Lock()
        self._waiting: dict[str, list[bytes]] = {}
        self._sizes: dict[str, int] = {}
        self.lines = 0
        self.failed = ""

    def add(self, job: str, line: str, at: float = 0.0, host: str = "", rank: str = "") -> None:
        """Count one pushed line, and keep it where it names its job."""
        self.keep(job, TailLine(at, line, "", host, rank))

    def keep(self, job: str, line: TailLine) -> None:
        """Count one line, and keep it where it names its job."""
        with self._lock:
            self.lines += 1
            if job:
                self._waiting.setdefault(job, []).append(_written(line))

    def flush(self) -> None:
        """Write what was added. A disk that takes nothing costs these lines, and ``failed`` says so."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            self.failed = ""
            for job, rows in waiting.items():
                try:
                    self._append(job, _last(rows, self._most_bytes // 2))
                except OSError as error:
                    self.failed = f"{self._folder}: {error.strerror}"

    def tail(self, job: str, most: int = 200) -> Sequence[TailLine]:
        """The last lines of one job, in the order in which they were read; none for one that was never heard of."""
        self.flush()
        rows: list[bytes] = []
        for ending in (_BEFORE, _NOW):
            with suppress(OSError):
                rows += (self._folder / f"{_name(job)}{ending}").read_bytes().split(b"\n")
        found: dict[object, TailLine] = {}
        for number, row in enumerate(rows):
            line = _read(row)
            if line is not None:
                found[(line.place, line.text) if line.place else number] = line
        return tuple(found.values())[-most:] if most > 0 else ()

    # --- files ------------------------------------------------------------------------------------------------------

    def _append(self, job: str, rows: Sequence[bytes]) -> None:
        path = self._folder / f"{_name(job)}{_NOW}"
        size = self._sizes.get(job)
        if size is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            size = path.stat().st_size if path.exists() else 0
            self._forget_the_oldest(path)
        more = b"".join(rows)
        if size + len(more) > self._most_bytes // 2 and size:
            with suppress(FileNotFoundError):
                path.replace(path.with_name(f"{_name(job)}{_BEFORE}"))
            size = 0
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, more)
        finally:
            os.close(fd)
        self._sizes[job] = size + len(more)

    def _forget_the_oldest(self, path: Path) -> None:
        """Room for one more job."""
        if path.exists():
            return
        there = list(self._there())
        self._sizes.clear()
        for _, old in sorted(there)[: max(0, len(there) - self._most_jobs + 1)]:
            for ending in (_BEFORE, _NOW):
                with suppress(OSError):
                    (self._folder / f"{old}{ending}").unlink()

    def _there(self) -> Iterator[tuple[float, str]]:
        """When each job was last heard, and its name as a file."""
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(_NOW) and not entry.name.endswith(_BEFORE):
                    with suppress(OSError):
                        yield entry.stat().st_mtime, entry.name.removesuffix(_NOW)


def _name(job: str) -> str:
    """A file name for any job id."""
    safe = quote(job.encode("utf-8", "surrogatepass"), safe="+@=,").replace(".", "%2E")
    return safe if len(safe) <= 120 else hashlib.sha256(job.encode(errors="replace")).hexdigest()


def _written(line: TailLine) -> bytes:
    row = {"at": line.at, "text": line.text[:KEPT_CHARS].encode(errors="replace").decode()}
    row |= {name: value for name in ("file", "host", "rank", "place") if (value := getattr(line, name))}
    return orjson.dumps(row) + b"\n"


def _read(row: bytes) -> TailLine | None:
    try:
        return TailLine(**orjson.loads(row)) if row else None
    except (orjson.JSONDecodeError, TypeError):  # the torn row of a crash
        return None


def _last(rows: Sequence[bytes], most_bytes: int) -> list[bytes]:
    """The last rows that fit."""
    found: list[bytes] = []
    for row in reversed(rows):
        most_bytes -= len(row)
        if most_bytes < 0:
            break
        found.append(row)
    return found[::-1]
