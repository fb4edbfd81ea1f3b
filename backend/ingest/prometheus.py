"""Prometheus as a source: one query per axis, names and labels made ours, nonsense dropped and counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Set

from backend.clients.promql import Answer, PromError, PrometheusReader
from backend.facts import Batch
from backend.ingest.base import SourceError
from backend.ingest.labels import Targets
from backend.ingest.samples import UP, assemble
from detectors.catalogue import Catalogue
from detectors.model import Need


class PrometheusSource:
    """Reads raw samples of the metrics that detectors need. ``matchers`` as in ``cluster="main"``.

    It remembers which nodes stand behind which exporter; one source belongs to one loop.
    """

    def __init__(self, name: str, reader: PrometheusReader, catalogue: Catalogue, matchers: str = "") -> None:
        self._name = name
        self._reader = reader
        self._catalogue = catalogue
        self._matchers = matchers.strip().strip(",")
        self._targets = Targets()

    @property
    def name(self) -> str:
        return self._name

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        """Samples of ``needs`` in (start, end], unix s. Raises SourceError; each query is bounded by its time-out.

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
        return Batch(self._name, end if partial else start, end, series, dropped=dropped)

    def _ask(self, names: list[str], start: float, end: float) -> Answer:
        if not (math.isfinite(start) and math.isfinite(end) and start < end):
            raise SourceError(f"{self._name}: cannot read from {start} to {end}", permanent=True)
        try:
            return self._reader.query_range_raw(selector(names, self._matchers), start, end)
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
