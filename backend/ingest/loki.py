"""Loki as a source: the lines of a few queries, each from where it was read last, and logs of jobs by a label."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress

from backend.clients.loki import Entry, LokiError, LokiReader
from backend.facts import Batch, RawEvent
from backend.ingest.base import SourceError
from backend.ingest.files import Where
from backend.ingest.heard import Line, Parse, events, spoken
from backend.ingest.jsonforms import program
from backend.ingest.lineforms import PLAIN, Form, read_line, sniff
from backend.ingest.linetimes import Origin
from backend.ingest.said import Said
from backend.ingest.tails import TailLine, Tails
from detectors.model import Need

#: Lines of one page: what servers allow by default (limits_config.max_entries_limit_per_query).
PAGE = 5_000
#: Pages of one turn, for all queries together.
MOST_PAGES = 10
#: Lines may show up this late behind newer ones, in seconds; they are asked for again and told apart.
OVERLAP_S = 15.0
#: How far back it goes at first and after it was away, in seconds; older lines are no news.
FIRST_S, REACH_S = 300.0, 3_600.0
#: What is asked where nobody said what to ask: lines with words of the kernel, of whatever has a job label.
DEFAULT_QUERY = (
    '{job=~".+"} |~ "NVRM|Xid|mlx5_core|nvidia|amdgpu|Hardware Error|Out of memory|I/O error|EXT4-fs|nfs: server"'
)
HOSTS = ("host", "hostname", "nodename", "node_name", "node", "instance")
PROGRAMS = ("syslog_identifier", "identifier", "SYSLOG_IDENTIFIER", "unit", "app")
TRANSPORTS = ("transport", "__journal__transport", "_TRANSPORT")
CONTAINERS = ("container", "container_name", "pod", "pod_name", "container_id")
_NS = 1_000_000_000


class LokiSource:
    """``job_label`` names the label that holds the job whose line it is, "" = none. It keeps
    what it has seen within the overlap; one source belongs to one loop."""

    def __init__(
        self,
        reader: LokiReader,
        queries: Sequence[str],
        parse: Parse,
        where: Where,
        tails: Tails | None = None,
        job_label: str = "",
        page: int = PAGE,
        name: str = "loki",
    ) -> None:
        self._name, self._reader, self._parse, self._where = name, reader, parse, where
        self._queries = tuple(queries) or (DEFAULT_QUERY,)
        self._tails, self._job_label = tails, job_label
        self._page = page
        self._read_to: dict[str, int] = {}
        self._seen: dict[str, dict[bytes, int]] = {}
        self._behind: set[str] = set()
        self._forms: dict[str, Form] = {}
        self._wait_until = 0.0
        self._counts: Counter[str] = Counter()

    @property
    def name(self) -> str:
        return self._name

    def resume(self, marks: Mapping[str, str]) -> None:
        """Go on from what was committed last. What lies within the overlap comes again under the same keys."""
        self._read_to, self._seen, self._behind = {}, {}, set()
        for query, mark in marks.items():
            with suppress(ValueError, KeyError, TypeError):
                self._read_to[query] = int(json.loads(mark)["ns"])

    def counts(self) -> Mapping[str, float]:
        return self._counts

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        """Events of the lines that came since. Raises SourceError where Loki does not answer, or asked us to wait."""
        if end < self._wait_until:
            raise SourceError(f"{self._reader.where} asked us to wait for {self._wait_until - end:.0f} s more")
        before, left = dict(self._read_to), MOST_PAGES
        found: list[RawEvent] = []
        for query in self._queries:
            try:
                entries, pages = self._pages(query, end, left)
            except LokiError as error:
                if error.status == 429:
                    self._wait_until = end + error.retry_after_s
                raise SourceError(str(error), permanent=error.permanent) from error
            left -= pages
            found += self._heard(entries, end)
        if self._tails is not None:
            self._tails.flush()
        moved: dict[str, str | None] = {
            query: json.dumps({"ns": at}) for query, at in self._read_to.items() if before.get(query) != at
        }
        moved |= {query: None for query in self._read_to if query not in self._queries}
        self._read_to = {query: at for query, at in self._read_to.items() if query in self._queries}
        return Batch(self._name, end, end, events=tuple(found), marks=moved, more=bool(self._behind))

    # --- pages ------------------------------------------------------------------------------------------------------

    def _pages(self, query: str, now: float, most: int) -> tuple[list[Entry], int]:
        """New entries of one query and how many pages they took, ``most`` at most; ``_read_to`` moves along."""
        end = int(now * _NS)
        floor = end - int(REACH_S * _NS)
        known = self._read_to.get(query, end - int(FIRST_S * _NS))
        self._counts["seconds passed over"] += max(0, floor - known) // _NS
        start = max(known - (0 if query in self._behind else int(OVERLAP_S * _NS)), floor)
        self._behind.discard(query)
        seen = self._seen.setdefault(query, {})
        found: list[Entry] = []
        pages, full = 0, True
        while full and pages < most:
            pages += 1
            entries = self._ask(query, start, end)
            newest = entries[-1].ns if entries else start
            found += self._new(entries, seen)
            known = self._read_to[query] = max(known, newest)
            full = len(entries) >= self._page
            if full and newest == start:  # more lines of one nanosecond than a page holds
                self._counts["pages full of one nanosecond"] += 1
                newest += 1
            start = newest
        if full:
            self._behind.add(query)
        self._seen[query] = {key: at for key, at in seen.items() if at >= known - int(OVERLAP_S * _NS)}
        return found, pages

    def _ask(self, query: str, start: int, end: int) -> tuple[Entry, ...]:
        """One page; a server that allows fewer lines is asked for fewer."""
        while True:
            self._counts["pages"] += 1
            try:
                return self._reader.query_range(query, start, end, self._page)
            except LokiError as error:
                if error.status != 400 or "max entries limit" not in str(error) or self._page <= 100:
                    raise
                self._page //= 2

    def _new(self, entries: Sequence[Entry], seen: dict[bytes, int]) -> list[Entry]:
        found = []
        for entry in entries:
            key = _key(entry)
            if key not in seen:
                seen[key] = entry.ns
                found.append(entry)
        self._counts["lines"] += len(found)
        return found

    # --- lines --------------------------------------------------------------------------------------------------------

    def _heard(self, entries: Sequence[Entry], now: float) -> Iterator[RawEvent]:
        """Events by host, for lines of several belong together only within one; lines of jobs go into their tails."""
        by_host: dict[str, list[Line]] = {}
        for entry in entries:
            line = self._line(entry, now)
            job = entry.labels.get(self._job_label, "") if self._job_label else ""
            if job and self._tails is not None:
                said, rank = line.said, entry.labels.get("rank", "")
                self._tails.keep(job, TailLine(entry.ns / _NS, said.text, "", said.host, rank, _key(entry).hex()))
            elif said_by_container(entry.labels):
                continue
            else:
                by_host.setdefault(line.said.host, []).append(line)
        for lines in by_host.values():
            yield from events(lines, self._parse, self._where.host, now)

    def _line(self, entry: Entry, now: float) -> Line:
        """A line with the time of its entry, and host and program of its labels where it does not say them itself."""
        origin = Origin(self._where.host, now, self._where.zone)
        text = entry.line.rstrip("\r\n")
        key = json.dumps(sorted(entry.labels.items()))[:500]
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) > 10_000:
                self._forms.clear()
            form = self._forms[key] = sniff([text], origin)
        inner = read_line(form, text, origin)
        host = inner.host or _first(entry.labels, HOSTS).partition(":")[0]
        if speaker := _user_program(entry.labels):
            said = Said(entry.ns / _NS, text, host, speaker, inner.attrs)
            return Line(said, spoken(said), _key(entry).hex())
        said = Said(entry.ns / _NS, inner.text, host, inner.source or _program(entry.labels), inner.attrs)
        return Line(said, spoken(said) if form is PLAIN or text.startswith("{") else text, _key(entry).hex())


def said_by_container(labels: Mapping[str, str]) -> bool:
    """Whether a program in a container printed it, so that it is never the kernel's word."""
    return any(labels.get(name) for name in CONTAINERS)


def _program(labels: Mapping[str, str]) -> str:
    """The program of a stream; "" where it is the kernel's, or nobody says whose."""
    if "kernel" in [labels.get(name) for name in TRANSPORTS]:
        return "kernel"
    return _first(labels, PROGRAMS).removesuffix(".service")


def _user_program(labels: Mapping[str, str]) -> str:
    """The program of a stream of the journal that is not the kernel's; what it prints names no other speaker."""
    transport = _first(labels, TRANSPORTS)
    return program(_first(labels, PROGRAMS).removesuffix(".service")) if transport not in ("", "kernel") else ""


def _first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _key(entry: Entry) -> bytes:
    said = f"{entry.ns}\0{sorted(entry.labels.items())}\0{entry.line}"
    return hashlib.blake2b(said.encode(errors="replace"), digest_size=12).digest()
