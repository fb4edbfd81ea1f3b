"""A span of the past, written as a recording: telemetry from Prometheus, and what the store knows of jobs and lines."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from sqlmodel import Session, col, select

from backend.changes import Changes
from backend.clock import ManualClock, unix, utc
from backend.facts import AttemptFacts, Batch, MaintenanceFacts, NodeFacts, OutageFacts, RawEvent, Series
from backend.ingest.bundle.bundle import MOST_DAYS
from backend.model.events import Event
from backend.registry import rules_of, watch_of
from backend.replay.record import MOST_BYTES, Recorder
from backend.replay.run import own_store
from backend.settings import Cluster, Settings
from backend.store import cluster as cluster_rows
from backend.store import outages as outage_rows
from backend.store.accounting import attempts_since
from detectors.catalogue import Catalogue
from detectors.model import Need
from detectors.registry import detectors

#: One query reads so much (s): at least 8 points of each series at the longest usual scrape interval, 60 s.
CHUNK_S = 600.0
#: Attempts that are read of the store for one span: the newest.
MOST_ATTEMPTS = 100_000
#: Raw lines that are read of the store for one span.
MOST_EVENTS = 1_000_000
#: Namespaces that we made ourselves: a replay makes them again.
OURS = ("mended",)


class Reads(Protocol):
    """What reads telemetry of long ago (``ingest.prometheus``)."""

    def past(self, needs: Set[Need], start: float, end: float) -> Batch: ...


class SpanError(Exception):
    """A span that cannot be tried: why, and how to mend it."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the store knows of a span. events: (received, unix s; line). Nodes as they are now, without their state."""

    nodes: tuple[NodeFacts, ...] = ()
    attempts: tuple[AttemptFacts, ...] = ()
    events: tuple[tuple[float, RawEvent], ...] = ()
    outages: tuple[OutageFacts, ...] = ()
    maintenances: tuple[MaintenanceFacts, ...] = ()


def known_of(session: Session, cluster: str, start: datetime, end: datetime) -> Known:
    """Jobs that ran, lines that came and nodes that were out in part of [start, end]."""
    attempts, _ = attempts_since(session, cluster, start, MOST_ATTEMPTS)
    events = select(Event).where(col(Event.cluster) == cluster, col(Event.received_at) >= start)
    events = events.where(col(Event.received_at) <= end, col(Event.namespace).not_in(OURS))
    rows = session.exec(events.order_by(col(Event.id)).limit(MOST_EVENTS))
    return Known(
        tuple(_stateless(one) for one in cluster_rows.node_facts(session, cluster)),
        tuple(one for one in attempts if one.start is not None and one.start <= unix(end)),
        tuple((unix(row.received_at), _raw(row)) for row in rows),
        tuple(outage_rows.outages(session, cluster, start, end)),
        tuple(outage_rows.maintenances(session, cluster, start, end)),
    )


def _stateless(one: NodeFacts) -> NodeFacts:
    """A node without what holds only now."""
    return replace(
        one, state="unknown", flags=frozenset(), reason="", reason_owner="", jobs=(), boot_at=None, read_at=0.0
    )


def _raw(row: Event) -> RawEvent:
    attrs = {name: str(value) for name, value in row.attrs.items()}
    pci = attrs.pop("pci", "")
    return RawEvent(unix(row.at), row.node, row.namespace, row.code, row.text, row.dedupe, pci, row.job, attrs)


def checked_span(start: float, end: float, now: float) -> None:
    """Raises SpanError for one that cannot be (unix s)."""
    if not start < end:
        raise SpanError("The span ends before it begins. Give an end after the start.")
    if end > now + 60.0:
        raise SpanError("The span reaches into the future. Give an end that has been.")
    if end - start > MOST_DAYS * 86_400.0:
        raise SpanError(f"The span is longer than {MOST_DAYS} days. Try it in parts.")


def gather(
    reads: Reads,
    known: Known,
    span: tuple[float, float],
    folder: Path,
    cluster: Cluster,
    catalogue: Catalogue,
    told: Callable[[float], None] = lambda share: None,
    most_bytes: int = MOST_BYTES,
) -> int:
    """Write the span (unix s) as a recording into ``folder``, which is made; how many samples it holds. ``told`` hears
    the share that is done. Raises SourceError where Prometheus gives no answer, SpanError where the span holds no
    sample, or more than ``most_bytes``."""
    start, end = span
    needs = frozenset(need for detector in detectors(catalogue) for need in detector.needs)
    with tempfile.TemporaryDirectory(prefix="watchkeeper-span-") as work, own_store(Path(work)) as store:
        with store.write() as session:
            cluster_rows.ensure_cluster(session, cluster.name)
        clock = ManualClock(utc(start))
        bare = Cluster(name=cluster.name, interval_s=cluster.interval_s, lateness_s=cluster.lateness_s)
        watch = watch_of(bare, rules_of(Settings(), (), False), clock, store, catalogue, Changes(), None, "backtest")
        recorder = Recorder(watch, folder, most_bytes)
        samples = 0
        try:
            recorder.take(Batch("known", start, start, nodes=known.nodes, maintenances=_begun(known, start)))
            facts = _Facts(known, start)
            for at in np.arange(start, end, CHUNK_S).tolist():
                chunk = reads.past(needs, at, min(at + CHUNK_S, end))
                for batch in in_turns(chunk, at, min(at + CHUNK_S, end), cluster.interval_s):
                    for one in facts.until(batch.end):
                        clock.set(utc(one.end))
                        recorder.take(one)
                    clock.set(utc(batch.end))
                    recorder.take(batch)
                    samples += sum(series.times.size for series in batch.series)
                if recorder.ended:
                    raise SpanError(f"The span is too long to be tried at once: {recorder.ended}. Try a shorter one.")
                told(min(1.0, (at + CHUNK_S - start) / (end - start)))
        finally:
            recorder.close()
    if not samples:
        raise SpanError(
            "Prometheus holds no sample of this span that a detector needs. Check the span and the matchers."
        )
    return samples


def _begun(known: Known, at: float) -> tuple[MaintenanceFacts, ...]:
    """Windows that were announced before; a later one is told when it begins."""
    return tuple(one for one in known.maintenances if one.start <= at)


def in_turns(chunk: Batch, start: float, end: float, every_s: float) -> Iterator[Batch]:
    """A chunk as the batches that a source would have read every ``every_s``, in order. Times in unix s."""
    edges = np.append(np.arange((start // every_s + 1) * every_s, end, every_s), end)
    turns: defaultdict[int, list[Series]] = defaultdict(list)
    for series in chunk.series:
        place = np.searchsorted(edges, series.times, side="left")
        for turn in np.unique(place[place < edges.size]).tolist():
            mine = place == turn
            turns[turn].append(replace(series, times=series.times[mine], values=series.values[mine]))
    before = start
    for turn, edge in enumerate(edges.tolist()):
        some = turns.get(turn, [])
        yield Batch(chunk.source, before if some else edge, edge, tuple(some))
        before = edge


class _Facts:
    """What the store knows, as it would have been told then: a job that runs has no end yet."""

    def __init__(self, known: Known, start: float) -> None:
        told: list[tuple[float, str, Any]] = [(at, "events", event) for at, event in known.events]
        for attempt in known.attempts:
            told += _twice("attempts", attempt, replace(attempt, end=None, **RUNS), attempt.start or start, start)
        for outage in known.outages:
            told += _twice("outages", outage, replace(outage, end=None), outage.start, start)
        told += [(one.start, "maintenances", one) for one in known.maintenances if one.start > start]
        self._told = sorted(told, key=lambda one: one[0])
        self._at = 0

    def until(self, end: float) -> Iterator[Batch]:
        """One batch of each moment up to ``end``."""
        while self._at < len(self._told) and self._told[self._at][0] <= end:
            at = self._told[self._at][0]
            facts: defaultdict[str, list[Any]] = defaultdict(list)
            while self._at < len(self._told) and self._told[self._at][0] == at:
                _, name, one = self._told[self._at]
                facts[name].append(one)
                self._at += 1
            named: dict[str, Any] = {name: tuple(rows) for name, rows in facts.items()}
            yield Batch("known", at, at, **named)


#: What a job says of itself while it runs.
RUNS: dict[str, Any] = {"state": "RUNNING", "exit_code": None, "signal": None, "reason": "", "requeued_by": ""}


def _twice(name: str, whole: Any, begun: Any, began: float, start: float) -> Sequence[tuple[float, str, Any]]:
    """When it began (before the span: at its start), and when it ended."""
    found = [(max(began, start), name, begun)]
    return [*found, (max(whole.end, start), name, whole)] if whole.end is not None else found
