"""The systemd journal as a source: what came after a cursor, by journalctl, bounded in time and in bytes."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from time import monotonic
from typing import Any

import orjson

from backend.facts import Batch, RawEvent
from backend.ingest.base import SourceError
from backend.ingest.heard import Line, Parse, events, spoken
from backend.ingest.jsonforms import entry
from detectors.model import Need

#: Most that one turn reads; an entry takes some 1 kB as JSON.
MOST_BYTES = 16_777_216
#: Without a cursor so many of the last entries of this boot are read: older ones are no news.
FIRST_ENTRIES = 2_000
#: Fields are left out above 4 kB unless asked for; a line of several is one entry.
COMMAND = ("journalctl", "--output=json", "--all", "--no-pager", "--quiet", "--utc")
_MARK = "journal"
_NO_CURSOR = ("seek to cursor", "parse cursor", "Invalid cursor")


#: (command, timeout in s, most bytes) -> (what it printed, what it said on stderr, exit code or None where stopped).
#: Raises FileNotFoundError where there is no such command, OSError where it cannot start.
Run = Callable[[Sequence[str], float, int], tuple[bytes, str, int | None]]


def run_some(command: Sequence[str], timeout_s: float, most_bytes: int) -> tuple[bytes, str, int | None]:
    """Run one command without a shell, and stop it and its children after ``timeout_s`` or ``most_bytes``."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    out, err = bytearray(), bytearray()
    with process:
        try:
            _drain(process, out, err, monotonic() + timeout_s, most_bytes)
            stopped = process.poll() is None
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    return bytes(out), err.decode("utf-8", "replace").strip(), None if stopped else process.returncode


def _drain(process: subprocess.Popen[bytes], out: bytearray, err: bytearray, until: float, most_bytes: int) -> None:
    """Both outputs until they end, the time is up, or enough was read."""
    assert process.stdout is not None and process.stderr is not None
    with selectors.DefaultSelector() as waits:
        waits.register(process.stdout, selectors.EVENT_READ, out)
        waits.register(process.stderr, selectors.EVENT_READ, err)
        while waits.get_map() and len(out) < most_bytes and (left := until - monotonic()) > 0:
            for ready, _ in waits.select(left):
                some = os.read(ready.fd, 262_144)
                if some:
                    ready.data.extend(some)
                else:
                    waits.unregister(ready.fileobj)
        if not waits.get_map():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - monotonic()))


class JournalSource:
    """Reads the journal of this host, or a folder of journals of many. ``matches`` as journalctl takes them
    (``_TRANSPORT=kernel``), any of which suffices. ``run`` starts the command. One source belongs to one loop."""

    def __init__(
        self,
        parse: Parse,
        host: str,
        matches: Sequence[str] = (),
        directory: str = "",
        timeout_s: float = 10.0,
        run: Run = run_some,
        name: str = "journal",
    ) -> None:
        self._name, self._parse, self._host, self._run = name, parse, host, run
        self._timeout_s = timeout_s
        alternatives = [word for match in matches for word in ("+", match)][1:]
        self._asked = (*COMMAND, *((f"--directory={directory}",) if directory else ()))
        self._matches = tuple(alternatives)
        self._directory = directory
        self._cursor = ""
        self._counts: Counter[str] = Counter()

    @property
    def name(self) -> str:
        return self._name

    def resume(self, marks: Mapping[str, str]) -> None:
        """Go on behind the last entry that was committed."""
        self._cursor = marks.get(_MARK, "")

    def counts(self) -> Mapping[str, float]:
        return self._counts

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        """Events of the entries that came since. Raises SourceError where the journal cannot be read."""
        printed, said, code = self._ask(self._from())
        if code not in (0, None) and self._cursor and any(word in said for word in _NO_CURSOR):
            self._counts["times that the cursor was no longer known"] += 1
            self._cursor = ""
            printed, said, code = self._ask(self._from())
        if code not in (0, None) and not (code == 1 and not said and not printed):  # 1: no entry matched
            raise SourceError(f"journalctl: {said.splitlines()[-1] if said else f'ended with {code}'}")
        if code is None and not printed:
            raise SourceError(f"journalctl gave nothing within {self._timeout_s:g} s")
        before = self._cursor
        lines = list(self._lines(printed))
        found: tuple[RawEvent, ...] = tuple(self._events(lines, end))
        moved = {_MARK: self._cursor} if self._cursor != before else {}
        return Batch(self._name, end, end, events=found, marks=moved, more=code is None)

    def _from(self) -> tuple[str, ...]:
        if self._cursor:
            return (f"--after-cursor={self._cursor}",)
        return (f"--lines={FIRST_ENTRIES}", *(() if self._directory else ("--boot",)))

    def _ask(self, begin: Sequence[str]) -> tuple[bytes, str, int | None]:
        try:
            return self._run([*self._asked, *begin, *self._matches], self._timeout_s, MOST_BYTES)
        except FileNotFoundError as error:
            text = "there is no journalctl here: set journal = false, or follow files instead"
            raise SourceError(text, permanent=True) from error
        except OSError as error:
            raise SourceError(f"journalctl cannot start: {error.strerror}") from error

    def _lines(self, printed: bytes) -> Iterator[Line]:
        """The entries that were printed whole; the cursor moves along."""
        for raw in printed.split(b"\n")[:-1]:
            fields = _object(raw)
            if fields is None or not isinstance(fields.get("__CURSOR"), str):
                self._counts["entries that could not be read"] += bool(raw.strip())
                continue
            self._cursor = fields["__CURSOR"]
            self._counts["lines"] += 1
            if (said := entry(fields)) is not None:
                yield Line(said, spoken(said), self._cursor)

    def _events(self, lines: Sequence[Line], now: float) -> Iterator[RawEvent]:
        """By host, for lines of several belong together only within one."""
        by_host: dict[str, list[Line]] = {}
        for line in lines:
            by_host.setdefault(line.said.host, []).append(line)
        for said in by_host.values():
            yield from events(said, self._parse, self._host, now)


def _object(raw: bytes) -> Mapping[str, Any] | None:
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
