"""The kernel's ring of this host as a source: /dev/kmsg, record by record, each once by its boot and number."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Set
from contextlib import suppress

from backend.facts import Batch, RawEvent
from backend.ingest.base import SourceError
from backend.ingest.files import Where
from backend.ingest.heard import Boot, Line, Parse, events
from backend.ingest.lineforms import kmsg
from backend.ingest.linetimes import Origin
from detectors.model import Need

DEVICE = "/dev/kmsg"
#: A record is at most 8 KiB with its continuation lines (CONSOLE_EXT_LOG_MAX of the kernel).
RECORD_BYTES = 8_192
#: Records of one turn.
MOST_RECORDS = 20_000
_MARK = "kmsg"

#: (open file) -> one record; raises BlockingIOError at the end, BrokenPipeError where records were overwritten.
ReadRecord = Callable[[int], bytes]


def read_record(fd: int) -> bytes:
    return os.read(fd, RECORD_BYTES)


class KmsgSource:
    """Reads what the kernel said in this boot, also before we began. Holds the device open; one belongs to one loop."""

    def __init__(
        self, parse: Parse, where: Where, device: str = DEVICE, read: ReadRecord = read_record, name: str = "kmsg"
    ) -> None:
        self._name, self._parse, self._where = name, parse, where
        self._device, self._read = device, read
        self._fd = -1
        self._seq = -1
        self._counts: Counter[str] = Counter()

    @property
    def name(self) -> str:
        return self._name

    def resume(self, marks: Mapping[str, str]) -> None:
        """Go on behind the last record that was committed; numbers of another boot mean nothing."""
        self._close()
        self._seq = -1
        with suppress(ValueError, KeyError, TypeError):
            said = json.loads(marks[_MARK])
            if said["boot"] == self._boot.id:
                self._seq = int(said["seq"])

    def counts(self) -> Mapping[str, float]:
        return self._counts

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        """Events of the records that came since. Raises SourceError where the device cannot be read."""
        origin = Origin(self._where.host, end, None, self._boot.at, self._boot.id)
        before, lines = self._seq, []
        try:
            for _ in range(MOST_RECORDS):
                record = self._next()
                if record is None:
                    break
                if (line := self._taken(record, origin)) is not None:
                    lines.append(line)
        except OSError as error:
            self._close()
            raise SourceError(
                f"{self._device}: {error.strerror}", permanent=isinstance(error, PermissionError)
            ) from error
        found: tuple[RawEvent, ...] = tuple(events(lines, self._parse, self._where.host, end))
        self._counts["lines"] += len(lines)
        mark = json.dumps({"boot": self._boot.id, "seq": self._seq})
        moved = {_MARK: mark} if self._seq != before else {}
        return Batch(self._name, end, end, events=found, marks=moved, more=len(lines) == MOST_RECORDS)

    @property
    def _boot(self) -> Boot:
        return self._where.boot or Boot(0.0, "")

    def _next(self) -> bytes | None:
        """The next record; None at the end."""
        if self._fd < 0:
            self._fd = os.open(self._device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        while True:
            try:
                return self._read(self._fd) or None
            except BlockingIOError:
                return None
            except BrokenPipeError:  # the next read goes on with the oldest that is left
                self._counts["times that records were overwritten before they were read"] += 1

    def _taken(self, record: bytes, origin: Origin) -> Line | None:
        """The line of one record; None for one that was read before. What follows its first line are its properties."""
        text = record.decode(errors="replace").partition("\n")[0]
        said = kmsg(text, origin)
        if said is None:
            self._counts["records that could not be read"] += 1
            return None
        seq = int(said.attrs["seq"])
        if seq <= self._seq:
            return None
        self._seq = seq
        return Line(said, text, f"{_MARK}:{seq}")

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
