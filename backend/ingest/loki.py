"""Loki as a source: the lines of a few queries, each from where it was read last, and logs of jobs by a label."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress

from backend.clients.loki import Entry, LokiError, LokiReader
from backend.facts import Batch, RawEvent
from backend.ingest.base import SourceError
from backend.ingest.files import Where
from backend.ingest.heard import Parse
from backend.ingest.loki_lines import LokiLines, key_of
from backend.ingest.tails import Tails
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
_NS = 1_000_000_000


class LokiSource:
    """``job_label`` names the label that holds the job whose line it is, "" = none; ``trusted``: whoever can write to
    the loggers may speak for the kernel. It keeps what it has seen within the overlap. One source belongs to one loop.
    """

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
        *,
        trusted: bool = False,
    ) -> None:
        self._name, self._reader = name, reader
        self._lines = LokiLines(parse, where, job_label, trusted=trusted)
        self._queries = tuple(queries) or (DEFAULT_QUERY,)
        self._tails = tails
        self._page = page
        self._read_to: dict[str, int] = {}
        self._seen: dict[str, dict[bytes, int]] = {}
        self._behind: set[str] = set()
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
            found += self._lines.heard(entries, end, self._tails)
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
            key = key_of(entry)
            if key not in seen:
                seen[key] = entry.ns
                found.append(entry)
        self._counts["lines"] += len(found)
        return found
