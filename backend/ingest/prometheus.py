"""Prometheus as a source: one query per axis, names and labels made ours, nonsense dropped and counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace

from backend.clients.promql import Answer, PromError, PrometheusReader
from backend.facts import Batch, Series
from backend.ingest.base import SourceError
from backend.ingest.labels import Targets, identity
from backend.ingest.samples import UP, Scraped, assemble
from backend.ingest.versions import INFO, versions_of
from detectors.catalogue import Catalogue
from detectors.model import Need

#: A scrape shows only when it has ended, under the time when it began; so each read looks back over the longest scrape
#: that Prometheus allows by default (scrape_timeout).
LOOK_BACK_S = 10.0
#: Nothing new for this long (the longest common scrape interval), and for twice the usual gap: scraping has stopped.
STOPPED_S = 60.0
#: How often a span of the past is cut in half where one answer cannot hold it (limits of samples, of bytes, of time).
HALVES = 4
#: How often versions are asked for, in s.
INFO_EVERY_S = 600.0


class PrometheusSource:
    """Reads raw samples of the metrics that detectors need. ``matchers`` as in ``cluster="main"``.

    It remembers which nodes stand behind which exporter and what it has handed on; one source belongs to one loop.
    """

    def __init__(self, name: str, reader: PrometheusReader, catalogue: Catalogue, matchers: str = "") -> None:
        self._name = name
        self._reader = reader
        self._catalogue = catalogue
        self._matchers = matchers.strip().strip(",")
        self._targets = Targets()
        self._handed: dict[tuple[str, ...], float] = {}
        self._newest: float | None = None
        self._gaps_s = (0.0, 0.0)
        self._infos_due: float | None = None

    @property
    def name(self) -> str:
        return self._name

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        """Samples of ``needs`` in (start, end], unix s, and those from just before that were not there at the last
        read. Raises SourceError; each query is bounded by its time-out.

        The batch covers time only up to the newest sample of all, ``up`` included: behind that, nobody may be scraping.
        A server that reached only some of its stores covers nothing; one into which nobody scrapes any more is as dark
        as one that does not answer.
        """
        answers = [self._ask(names, start, end) for names in self._names(needs)]
        scraped = [(one.labels, one.times, one.values) for answer in answers for one in answer.series]
        start_of_cover = self._covered_to(start)
        newest = max((float(times[-1]) for _, times, _ in scraped), default=None)
        self._check_alive(newest, end)
        series, dropped = assemble(scraped, self._catalogue, self._targets)
        for answer in answers:
            dropped += Counter(answer.rejected)
        if any(answer.partial for answer in answers):
            dropped["answers of a server that reached only some of its stores"] += 1
            newest = None
        covered = (end, end) if newest is None else (min(start_of_cover, newest), min(newest, end))
        versions = versions_of([*scraped, *self._infos(start, end)], self._catalogue, self._targets)
        return Batch(self._name, *covered, self._fresh(series, start), dropped=dropped, versions=versions)

    def past(self, needs: Set[Need], start: float, end: float) -> Batch:
        """All samples of ``needs`` in (start, end], unix s, of a span long ago. Nothing is remembered; a span without
        samples covers nothing; one that is too much for one answer is asked in halves. Raises SourceError."""
        answers = [one for names in self._names(needs) for one in self._halves(names, start, end, HALVES)]
        scraped = [(one.labels, one.times, one.values) for answer in answers for one in answer.series]
        series, dropped = assemble(scraped, self._catalogue, self._targets)
        for answer in answers:
            dropped += Counter(answer.rejected)
        covered = (start, end) if scraped else (end, end)
        return Batch(self._name, *covered, series, dropped=dropped)

    def _halves(self, names: list[str], start: float, end: float, deep: int) -> list[Answer]:
        try:
            return [self._ask(names, start, end, 0.0)]
        except SourceError as error:
            cause = error.__cause__
            too_much = isinstance(cause, PromError) and cause.status not in (400, 401, 403, 404)
            if not too_much or not deep or end - start < 2 * LOOK_BACK_S:
                raise
            middle = (start + end) / 2
            return [*self._halves(names, start, middle, deep - 1), *self._halves(names, middle, end, deep - 1)]

    def _infos(self, start: float, end: float) -> list[Scraped]:
        """Series that exist for their labels, now and then. Without them no verdict waits: a failure tells nothing."""
        if self._infos_due is None:
            self._infos_due = end + INFO_EVERY_S / 2  # verdicts first
        if end < self._infos_due:
            return []
        self._infos_due = end + INFO_EVERY_S
        try:
            found = self._ask(sorted(INFO), max(start, end - STOPPED_S), end).series
        except SourceError:
            return []
        return [(one.labels, one.times, one.values) for one in found]

    def _covered_to(self, start: float) -> float:
        """Where the cover of the next read begins: where the last one ended, if that is just before."""
        return start if self._newest is None else min(start, max(self._newest, start - LOOK_BACK_S))

    def _check_alive(self, newest: float | None, end: float) -> None:
        """Raises SourceError where the store holds nothing of ours, or nothing new."""
        if newest is None and self._newest is None:
            raise SourceError(
                f"{self._name} answers, but holds none of the metrics we need, not even up. Check url and matchers."
            )
        if self._newest is not None and newest is not None and newest > self._newest:
            self._gaps_s = (self._gaps_s[1], newest - self._newest)
        self._newest = max(at for at in (newest, self._newest) if at is not None)
        waited_s = end - self._newest
        if waited_s > max(STOPPED_S, 2 * min(self._gaps_s)):  # the shorter of two, so that an outage teaches nothing
            raise SourceError(
                f"{self._name} answers, but has had no new sample for {waited_s:.0f} s, not even up. "
                "Is whatever scrapes into it still running?"
            )

    def _fresh(self, series: Sequence[Series], start: float) -> tuple[Series, ...]:
        """What was not handed on before. The first read begins at ``start``; later ones keep what only showed now."""
        fresh: list[Series] = []
        unseen = start - LOOK_BACK_S if self._handed else start
        handed: dict[tuple[str, ...], float] = {}
        for one in series:
            key = (one.metric, one.part, *identity(one.label))
            after = self._handed.get(key, unseen)
            handed[key] = max(after, float(one.times[-1]))
            new = one.times > after
            if new.all():
                fresh.append(one)
            elif new.any():
                fresh.append(replace(one, times=one.times[new], values=one.values[new]))
        self._handed = handed
        return tuple(fresh)

    def _ask(self, names: list[str], start: float, end: float, back_s: float = LOOK_BACK_S) -> Answer:
        if not (math.isfinite(start) and math.isfinite(end) and start < end):
            raise SourceError(f"{self._name}: cannot read from {start} to {end}", permanent=True)
        try:
            return self._reader.query_range_raw(selector(names, self._matchers), start - back_s, end)
        except PromError as error:
            raise SourceError(f"{self._name}: {error}", permanent=error.permanent) from error

    def _names(self, needs: Set[Need]) -> list[list[str]]:
        """The raw names to ask for, by axis: every spelling of every needed metric, and always ``up``."""
        wanted = {need[1] for need in needs if isinstance(need, tuple)} | {UP}
        by_axis: dict[str, list[str]] = {}
        for raw, canonical in sorted(self._catalogue.alias.items()):
            if canonical in wanted:
                by_axis.setdefault(self._catalogue.metrics[canonical].axis, []).append(raw)
        return [by_axis[axis] for axis in sorted(by_axis)]


def selector(names: list[str], matchers: str = "") -> str:
    """``{__name__=~"a|b",cluster="main"}``; metric names hold no character that a pattern would mind."""
    more = f",{matchers}" if matchers else ""
    return f'{{__name__=~"{"|".join(names)}"{more}}}'
