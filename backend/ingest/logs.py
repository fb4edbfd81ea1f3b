"""Pushed log lines: what a rule hits becomes an event, the rest is counted and kept in a short tail per job."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backend.clients.slurm_log import LogLine, slurm_events
from backend.facts import Batch, PrintedFacts, RawEvent
from backend.ingest.rows import MAX_AHEAD_S as MAX_AHEAD_S
from backend.ingest.rows import Host, Moment, Name, Row, Rows, clean, read, sifted
from detectors.kernel.lines import KernelCode, joined

#: Sources whose lines come from a job and not from a machine.
JOB_SOURCES = frozenset({"job", "stdout", "stderr", "training"})
#: What a source has in its name that speaks for a machine.
_MACHINE = re.compile(r"kern|dmesg|kmsg|syslog|messages|journal|fabric|nvidia|nvrm|console|ipmi|bmc", re.IGNORECASE)
#: Sources whose lines come from Slurm's daemons; those that say something become its events.
SLURM_SOURCES = frozenset({"slurm", "slurmctld", "slurmd", "slurmdbd", "slurmstepd"})
#: Longest line that is looked at, in characters; kernel records and stack traces are far shorter.
MAX_LINE = 65_536
#: ``priority,number,microseconds,flags;`` of /dev/kmsg.
_RECORD = re.compile(r"[0-9]{1,4},[0-9]{1,20},[0-9]{1,20},[^;\s]{0,80};")
#: What is kept of a line with its event.
KEPT_CHARS = 4_096


class Kept(Protocol):
    """What keeps the lines that no rule hits, each with its job ("" = none), its time (unix s), host and rank."""

    def add(self, job: str, line: str, at: float = 0.0, host: str = "", rank: str = "") -> None: ...


class LogRow(Row):
    """One line: when (unix s), on which host, from which source (kernel, job, slurmctld ...)."""

    ts: Moment
    host: Host
    source: Name
    line: str
    job: Name = ""
    rank: int | Name | None = None


def read_rows(body: bytes, content_type: str, now: float, max_line: int = MAX_LINE) -> Rows[LogRow]:
    """Rows of one push, from a JSON array or JSON lines. A row from more than MAX_AHEAD_S ahead of ``now`` (unix s) is
    rejected; a line over ``max_line`` characters is cut, and its row rejected only where nothing else is right.

    Raises SourceError(permanent=True) where the body as a whole cannot be read.
    """

    def wrong(row: LogRow) -> tuple[str, str] | None:
        if row.ts <= now + MAX_AHEAD_S:
            return None
        return "ts", f"lies {row.ts - now:.0f} s in the future: is the clock of {row.host} right?"

    return sifted(read(body, content_type, LogRow), wrong)


def logs_batch(
    rows: Rows[LogRow],
    now: float,
    parse: Callable[[str], KernelCode | None],
    tails: Kept | None = None,
    max_line: int = MAX_LINE,
) -> Batch:
    """Events of the kernel lines that ``parse`` knows. Other lines are counted in ``tails`` and, where they name a
    job, kept: what a job prints is never the kernel's word, also where it prints the kernel's log.

    A batch of lines covers no span: what was not sent may still come.
    """
    dropped: Counter[str] = Counter()
    dropped["rows that could not be read"] = rows.rejected
    dropped["rows with bytes that are no UTF-8"] = rows.replaced
    dropped["lines cut to the longest that is looked at"] = sum(len(row.line) > max_line for row in rows.rows)
    by_kernel: dict[tuple[str, str], list[tuple[int, str]]] = {}
    printed: list[PrintedFacts] = []
    found: dict[int, list[RawEvent]] = {}
    for place, row in enumerate(rows.rows):
        line = clean(row.line[:max_line].rstrip("\r\n"))
        if row.source in SLURM_SOURCES and (told := slurm_events(LogLine(row.ts, row.host, line, row.source))):
            found[place] = list(told)
            continue
        if not is_of_a_job(row.source, row.job):
            parts = [part for part in line.split("\n") if part.strip()]
            by_kernel.setdefault((row.host, row.source), []).extend((place, part) for part in parts)
            continue
        rank = "" if row.rank is None else str(row.rank)
        if row.job:
            printed.append(PrintedFacts(row.ts, row.job, f"{row.host}/{f'rank_{rank}' if rank else row.source}", line))
        if tails is not None:
            tails.add(row.job, line, row.ts, row.host, rank)
    for said in by_kernel.values():
        for place, line in whole_lines(said):
            code = parse(line)
            if code is not None:
                found.setdefault(place, []).append(event_of(rows.rows[place], line, code))
            elif tails is not None:
                tails.add(rows.rows[place].job, line, rows.rows[place].ts, rows.rows[place].host)
    in_order = tuple(event for place in sorted(found) for event in found[place])
    return Batch("logs", now, now, events=in_order, dropped=+dropped, printed=tuple(printed))


def is_of_a_job(source: str, job: str) -> bool:
    """Whether a job printed it: by its source in any case of letters, or because it names its job and a source that is
    no machine's (the name of a container, a program, a file of the job)."""
    return source.lower() in JOB_SOURCES or bool(job) and _MACHINE.search(source) is None


def whole_lines(said: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines of one host in order, those that the driver prints in parts made one again, at the place of the first."""
    place = 0
    for line in joined(line for _, line in said):
        yield said[place][0], line
        place += line.count("\n") + 1


def event_of(row: LogRow, line: str, code: KernelCode) -> RawEvent:
    """The event of one line. The same line of the same host and time is the same event, however often it is sent; a
    raw record of the kernel is the same by its own number and clock, whenever an agent that begins anew sends it. (The
    first records of every boot are alike, so a boot goes by its time.)"""
    more = {"source": row.source} | ({"rank": str(row.rank)} if row.rank is not None else {})
    at = "" if code.namespace != "boot" and _RECORD.match(line) else f"{row.ts:.6f}"
    said = f"{row.host}\0{row.source}\0{at}\0{line}"
    return RawEvent(
        at=row.ts,
        host=row.host,
        namespace=code.namespace,
        code=code.code,
        text=line[:KEPT_CHARS],
        dedupe=f"log:{hashlib.sha256(said.encode(errors='replace')).hexdigest()[:40]}",
        pci=code.pci,
        job=row.job,
        attrs=dict(code.attrs) | more,
    )


@dataclass
class _Tail:
    lines: deque[str] = field(default_factory=deque)
    size: int = 0


class JobTails:
    """The last lines of each job, in memory: ``most_lines`` and ``most_bytes`` a job, ``most_jobs`` jobs, the ones
    that were silent for longest forgotten first. ``lines`` counts every line that no rule hit."""

    def __init__(self, most_lines: int = 200, most_bytes: int = 65_536, most_jobs: int = 2_000) -> None:
        self.lines = 0
        self.forgotten_jobs = 0
        self._most_lines = most_lines
        self._most_bytes = most_bytes
        self._most_jobs = most_jobs
        self._jobs: OrderedDict[str, _Tail] = OrderedDict()

    def add(self, job: str, line: str, at: float = 0.0, host: str = "", rank: str = "") -> None:
        """Count one line; keep it where it names its job."""
        self.lines += 1
        if not job:
            return
        tail = self._jobs.setdefault(job, _Tail())
        self._jobs.move_to_end(job)
        kept = line.encode(errors="replace")[: self._most_bytes].decode(errors="ignore")
        tail.lines.append(kept)
        tail.size += len(kept.encode(errors="replace"))
        while len(tail.lines) > self._most_lines or tail.size > self._most_bytes:
            tail.size -= len(tail.lines.popleft().encode(errors="replace"))
        if len(self._jobs) > self._most_jobs:
            self._jobs.popitem(last=False)
            self.forgotten_jobs += 1

    def tail(self, job: str) -> Sequence[str]:
        """The kept lines of one job, oldest first; none for a job that was never heard of."""
        found = self._jobs.get(job)
        return tuple(found.lines) if found else ()

    def __len__(self) -> int:
        return len(self._jobs)
