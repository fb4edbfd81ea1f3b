"""Numbers from before the history: raw samples of a few GPUs, asked of Prometheus and put into the same cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from backend.answers.telemetry import Past, PastError
from backend.clients.promql import PromError, PrometheusReader
from backend.facts import Series
from backend.history import Range, period_of
from backend.history_file import CELL_S
from backend.ingest.labels import UUIDS
from backend.ingest.samples import Scraped, assemble
from detectors.catalogue import Catalogue

#: How far one question reaches at most, in s: a week of 15 s samples of eight GPUs is some 10 MB.
LONGEST_S = 7 * 86_400.0
#: What a pattern would not take as itself; inside a PromQL text its backslash is written twice.
_SPECIAL = re.compile(r"[.+*?()|\[\]{}^$]")


def past_of(reader: Callable[[], PrometheusReader], catalogue: Catalogue, matchers: str = "") -> Past:
    """Asks Prometheus, with a reader of its own each time, so that pages do not wait for each other.

    Gauges only, for a rate needs the ring. A GPU is found by its UUID or serial: one that is known by its address alone
    has no older numbers here.
    """

    def ask(ids: Sequence[str], metric: str, start: float, end: float) -> Range:
        raw = sorted(name for name, canonical in catalogue.alias.items() if canonical == metric)
        uuids = [id_ for id_ in ids if not id_.startswith("pci:")]
        begin = max(start, end - LONGEST_S)
        if catalogue.metrics[metric].kind != "gauge" or not uuids or not begin < end:
            return binned((), ids, begin, end)
        try:
            return binned(answered(reader(), raw, uuids, matchers, catalogue, begin, end), ids, begin, end)
        except PromError as error:
            raise PastError(str(error)) from error

    return ask


def answered(
    reader: PrometheusReader,
    raw: Sequence[str],
    uuids: Sequence[str],
    matchers: str,
    catalogue: Catalogue,
    start: float,
    end: float,
) -> tuple[Series, ...]:
    """Series of these GPUs under the first label spelling that knows any. Raises PromError."""
    more = f",{matchers.strip().strip(',')}" if matchers.strip() else ""
    wanted = "|".join(_SPECIAL.sub(r"\\\\\g<0>", uuid) for uuid in uuids).replace('"', '\\"')
    for label in UUIDS:
        answer = reader.query_range_raw(f'{{__name__=~"{"|".join(raw)}",{label}=~"{wanted}"{more}}}', start, end)
        scraped: list[Scraped] = [(one.labels, one.times, one.values) for one in answer.series]
        if scraped:
            return assemble(scraped, catalogue)[0]
    return ()


def binned(series: Sequence[Series], ids: Sequence[str], start: float, end: float) -> Range:
    """Samples in the cells between ``start`` and ``end``: arrays of [k, n], NaN where nothing was scraped."""
    first, last = period_of(start + 1e-3), period_of(end)
    periods = np.arange(first, max(first, last + 1))
    least, mean, most = (np.full((periods.size, len(ids)), np.nan, np.float32) for _ in range(3))
    for one in series:
        column = ids.index(one.label.uuid) if one.label.uuid in ids else -1
        good = np.isfinite(one.values)
        cells = np.ceil(one.times[good] / CELL_S).astype(np.int64) - 1 - first
        inside = (cells >= 0) & (cells < periods.size)
        values, cells = one.values[good][inside], cells[inside]
        if column < 0 or not values.size:
            continue
        starts = np.flatnonzero(np.r_[True, np.diff(cells) != 0])  # times rise
        which = cells[starts]
        least[which, column] = np.minimum.reduceat(values, starts)
        most[which, column] = np.maximum.reduceat(values, starts)
        mean[which, column] = np.add.reduceat(values, starts) / np.diff(np.r_[starts, values.size])
    return Range(periods.astype(np.float64) * CELL_S, least, mean, most)
