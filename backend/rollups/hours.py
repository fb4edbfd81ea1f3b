"""Sums of each hour, of each job, node and the cluster, from accounts and counts: the rows of ``Rollup``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from backend.clock import unix, utc
from backend.reliability.account import Account, Accounts
from backend.reliability.cost import gpus
from backend.reliability.exclusions import outage_spans
from backend.reliability.spans import Spans, spans, until
from backend.store.reckoning import SUMS, SumKey

HOUR_S = 3600.0
PLACE = {name: place for place, name in enumerate(SUMS)}
#: By (job, node, hour) the values in the order of SUMS.
Sums = dict[SumKey, list[float]]


def hour_of(at: float | datetime) -> datetime:
    """The hour that holds a time (unix s or aware)."""
    seconds = unix(at) if isinstance(at, datetime) else at
    return utc(seconds - seconds % HOUR_S)


class Book:
    """Adds to the rows of the hours from ``start`` up to ``end`` (unix s, whole hours)."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end
        self.rows: Sums = defaultdict(lambda: [0.0] * len(SUMS))

    def count(self, name: str, at: float | None, job: str = "", node: str = "") -> None:
        """One more of ``name`` at ``at``, for the cluster, and for the job and the node where they are known."""
        if at is None or not self.start <= at < self.end:
            return
        hour = hour_of(at)
        for key in {("", "", hour)} | ({(job, "", hour)} if job else set()) | ({("", node, hour)} if node else set()):
            self.rows[key][PLACE[name]] += 1

    def spread(self, name: str, these: Spans, scale: float, job: str = "", node: str = "") -> None:
        """The seconds of ``these`` times ``scale``, each in its hour."""
        for hour, seconds in by_hour(these, self.start, self.end):
            amount = seconds * scale
            self.rows["", "", hour][PLACE[name]] += amount
            if job:
                self.rows[job, "", hour][PLACE[name]] += amount
            if node:
                self.rows["", node, hour][PLACE[name]] += amount


def by_hour(these: Spans, start: float, end: float) -> Iterator[tuple[datetime, float]]:
    """(hour, seconds of ``these`` in it), those without any left out."""
    if not len(these):
        return
    low = max(start, these[0, 0] - these[0, 0] % HOUR_S)
    high = min(end, float(np.ceil(these[-1, 1] / HOUR_S) * HOUR_S))
    if high <= low:
        return
    edges: NDArray[np.float64] = np.arange(low, high + 1, HOUR_S)
    seconds = np.diff(until(these, edges))
    for place in np.flatnonzero(seconds > 0):
        yield utc(float(edges[place])), float(seconds[place])


def sums_of(accounts: Accounts, start: float, end: float) -> Sums:
    """Rows of the hours from ``start`` up to ``end``, without ``findings``, which only the store counts."""
    book = Book(start, end)
    for account in accounts.attempts:
        _add(book, account)
    for incident in accounts.history.incidents:
        book.count("incidents", incident.opened_at, incident.job, incident.node)
    for node, out in outage_spans(accounts.history.outages):
        ends = [(low, min(high, accounts.history.end)) for low, high in out]
        book.spread("out_s", spans(ends), 1.0, node=node)
    return {key: [round(value, 3) for value in values] for key, values in book.rows.items()}


def _add(book: Book, account: Account) -> None:
    attempt, held = account.attempt, gpus(account)
    waited = attempt.start if attempt.start is not None else book.end
    book.spread("queue_gpu_s", spans([(waited - account.queue_s, waited)]), held, attempt.job)
    if account.window is None:
        return
    whole = spans([(account.window.begin, account.window.end)])
    book.spread("held_gpu_s", whole, held, attempt.job)
    kept = account.told.by_part["productive"] if account.told is not None else None
    open_ = kept is None or account.parts["productive"].width > 0
    if kept is not None and not open_:
        book.spread("productive_low_gpu_s", kept, held, attempt.job)
    book.spread("productive_high_gpu_s", whole if open_ or kept is None else kept, held, attempt.job)
    if account.failed:
        cause = account.verdict.cause
        node = cause.nodes[0] if cause is not None and cause.nodes else ""
        book.count("failures", attempt.end, attempt.job, node)
        if account.verdict.infra:
            book.count("infra_failures", attempt.end, attempt.job, node)


def with_findings(
    sums: Sums,
    known: Mapping[SumKey, tuple[float, ...]],
    counted: Mapping[tuple[str, datetime], int],
    hours: Collection[datetime],
) -> Sums:
    """``sums`` with the number of findings: of ``hours`` as ``counted`` by (node, hour), of others as in ``known``."""
    place, found = PLACE["findings"], {key: list(values) for key, values in sums.items()}
    kept = {key: values[place] for key, values in known.items() if key[2] not in hours and values[place]}
    fresh: defaultdict[SumKey, float] = defaultdict(float)
    for (node, hour), count in counted.items():
        fresh["", "", hour] += count
        if node:
            fresh["", node, hour] += count
    for key, count_ in {**kept, **fresh}.items():
        found.setdefault(key, [0.0] * len(SUMS))[place] = count_
    return found
