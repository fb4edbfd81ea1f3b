"""What jobs printed: ``jobs/logs/<job>/<name>.log``, found by job and read in bounded pieces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from backend.ingest.bundle.folder import BundleError, PartFile

#: What is read of one file: its beginning, where a job says what it is, and its end, where it says what went wrong.
HEAD_BYTES, TAIL_BYTES = 262_144, 4_194_304
#: Longest line that is handed on, in bytes; of longer ones the beginning.
MAX_LINE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class JobLog:
    """One file of one job. ``name`` is that of the file without its ending, mostly the rank's."""

    job: str
    name: str
    file: PartFile

    def chunks(self, chunk_bytes: int = 1_048_576) -> Iterator[tuple[int, bytes]]:
        """(offset in bytes, bytes) of the whole file, a piece at a time. Raises BundleError for one that cannot be
        read."""
        offset = 0
        try:
            with self.file.path.open("rb") as raw:
                while chunk := raw.read(chunk_bytes):
                    yield offset, chunk
                    offset += len(chunk)
        except OSError as error:
            raise BundleError(f"cannot be read: {error.strerror}", self.file.path, "Check its rights.") from error

    def lines(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> Iterator[tuple[int, str]]:
        """(offset of the line in bytes, line), at most the first ``head_bytes`` and the last ``tail_bytes`` of a file;
        bytes that are no UTF-8 become U+FFFD. Raises BundleError for one that cannot be read."""
        try:
            with self.file.path.open("rb") as raw:
                size = os.fstat(raw.fileno()).st_size
                cut = head_bytes if size > head_bytes + tail_bytes else size
                yield from _lines(0, raw.read(cut))
                if cut < size:
                    raw.seek(size - tail_bytes)
                    rest = raw.read(tail_bytes)
                    skip = rest.find(b"\n") + 1
                    yield from _lines(size - tail_bytes + skip, rest[skip:])
        except OSError as error:
            raise BundleError(f"cannot be read: {error.strerror}", self.file.path, "Check its rights.") from error


def _lines(offset: int, block: bytes) -> Iterator[tuple[int, str]]:
    for line in block.splitlines(keepends=True):
        yield offset, line[:MAX_LINE_BYTES].decode(errors="replace").rstrip("\r\n")
        offset += len(line)


def job_logs(files: tuple[PartFile, ...]) -> tuple[JobLog, ...]:
    """The files of the part, in their order."""
    found = []
    for file in files:
        _, _, job, name = file.name.split("/", 3)
        found.append(JobLog(job, name.removesuffix(".log"), file))
    return tuple(found)
