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
from backend.ingest.samples import UP, assemble
from detectors.catalogue import Catalogue
from detectors.model import Need

#: A scrape shows only when it has ended, under the time when it began; so each read looks back over the longest scrape
#: that Prometheus allows by default (scrape_timeout).
LOOK_BACK_S = 10.0


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

    @property
    def name(self) -> str:
        return self._name

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        """Samples of ``needs`` in (start, end], unix s, and those from just before that were not there at the last
        read. Raises SourceError; each query is bounded by its time-out.

        A server that says it could not reach all of its stores covers nothing: absence then means nothing either.
        """
        answers = [self._ask(names, start, end) for names in self._names(needs)]
        scraped = [(one.labels, one.times, one.values) for answer in answers for one in answer.series]
        series, dropped = assemble(scraped, self._catalogue, self._targets)
        for answer in answers:
            dropped += Counter(answer.rejected)
        partial = any(answer.partial for answer in answers)
        if partial:
            dropped["answers of a server that reached only some of its stores"] += 1
        return Batch(self._name, end if partial else start, end, self._fresh(series, start), dropped=dropped)

    def _fresh(self, series: Sequence[Series], start: float) -> tuple[Series, ...]:
        """What was not handed on before. The first read begins at ``start``; later ones keep what only showed now."""
        fresh: list[Series] = []
        unseen = start - LOOK_BACK_S if self._handed else start
        handed: dict[tuple[str, ...], float] = {}
        for one in series:
            key = (one.metric, *identity(one.label))
            after = self._handed.get(key, unseen)
            handed[key] = max(after, float(one.times[-1]))
            new = one.times > after
            if new.all():
                fresh.append(one)
            elif new.any():
                fresh.append(replace(one, times=one.times[new], values=one.values[new]))
        self._handed = handed
        return tuple(fresh)

    def _ask(self, names: list[str], start: float, end: float) -> Answer:
        if not (math.isfinite(start) and math.isfinite(end) and start < end):
            raise SourceError(f"{self._name}: cannot read from {start} to {end}", permanent=True)
        try:
            return self._reader.query_range_raw(selector(names, self._matchers), start - LOOK_BACK_S, end)
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
