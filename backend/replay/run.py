"""Replay: a bundle through the very pipeline that runs live, on a clock that reads the bundle."""

from __future__ import annotations

import math
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from backend import pipeline, proposals, returns
from backend.changes import Changes
from backend.clock import ManualClock, utc
from backend.facts import Batch
from backend.feed import Feed
from backend.incidents.record import Delta
from backend.ingest.bundle.bundle import Bundle, Prepared
from backend.ingest.bundle.reading import Progress
from backend.ingest.bundle.recorded import TURN
from backend.ingest.joblogs import JobFile
from backend.registry import rules_of, watch_of
from backend.replay.accounting import Gathered, documents
from backend.replay.files import Output
from backend.settings import Cluster, Settings
from backend.store import cluster as cluster_rows
from backend.store.engine import Store, migrate, open_store
from backend.watch import Watch
from detectors.catalogue import Catalogue
from detectors.model import Tick
from detectors.registry import detectors
from detectors.training.told import COLLECTIVE, SAVES, STEP

#: Rows of training, which summary.json counts by themselves.
TRAINING = frozenset({STEP, SAVES, COLLECTIVE})
#: States are saved for a restart that a replay never has.
SAVE_EVERY_S = 3600.0


@dataclass
class Counts:
    """What went through, for summary.json."""

    ticks: int = 0
    events: int = 0
    samples: int = 0
    findings: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


class Replay:
    """One run of one prepared bundle into one store. ``step`` by ``step`` the clock is moved to each arrival."""

    def __init__(self, prepared: Prepared, watch: Watch, clock: ManualClock, output: Output) -> None:
        self._prepared = prepared
        self._watch = watch
        self._clock = clock
        self._output = output
        self._interval_s = watch.ring.interval_s
        self._lateness_s = watch.ring.lateness_s
        self._at = prepared.begin
        self._told = prepared.recorded is not None and prepared.recorded.turns
        self.counts = Counts()
        self.gathered = Gathered()
        watch.stepped = self._stepped

    def run(self, progress: Progress | None = None) -> None:
        """Everything to its end, and the ticks that are still open then. Progress in seconds of the bundle."""
        begin, end = self._prepared.begin, self._prepared.end
        for arrival, batch in self._prepared.batches(round_s=self._interval_s):
            if not self._told:
                self._close_until(arrival)
            self._clock.set(utc(max(arrival, self._at)))
            self._take(batch)
            if progress is not None:
                progress(int(arrival - begin), max(1, int(end - begin)))
        self._close_until(end + self._lateness_s + self._interval_s)

    def _take(self, batch: Batch) -> None:
        if batch.dark is not None:
            self._watch.dark = batch.dark
        if batch.source == TURN:
            self._at = max(batch.end, self._at)
            self._turn()
            return
        if self._prepared.recorded is not None:
            self.gathered.batch(batch)
        else:
            self._read_logs(batch)
        accepted = pipeline.accept(self._watch, batch, pushed=False)
        self.counts.samples += accepted.samples
        self.counts.dropped.update(accepted.dropped)
        if (batch.events or accepted.events or pipeline.rows_of_training(batch)) and not self._told:
            self._turn()

    def _read_logs(self, batch: Batch) -> None:
        """What jobs printed into files is there once they ended; a recording holds what was made of it."""
        verdicts = self._watch.verdicts
        ended = {attempt.job: attempt for attempt in batch.attempts if attempt.end is not None}
        if verdicts is None or not ended:
            return
        for log in self._prepared.job_logs:
            if attempt := ended.get(log.job):
                file = JobFile(log.job, attempt.restart, log.file.name)
                for offset, chunk in log.chunks():
                    verdicts.hear(file, chunk, f"{log.file.name}:{offset}", batch.end)

    def _close_until(self, arrival: float) -> None:
        """Ticks close on their own time, as live: multiples of the interval plus the lateness."""
        while (due := self._next_close()) <= arrival:
            self._at = due
            self._clock.set(utc(due))
            self._turn()

    def _next_close(self) -> float:
        n = math.floor((self._at - self._lateness_s) / self._interval_s + 1e-9) + 1
        return n * self._interval_s + self._lateness_s

    def _turn(self) -> None:
        """One turn of the loops that a site in observe mode runs."""
        while pipeline.observe(self._watch):
            pass
        proposals.propose(self._watch)
        returns.settle_returns(self._watch)

    def _stepped(self, tick: Tick, delta: Delta) -> None:
        self.counts.ticks += bool(tick.values)
        self.counts.events += sum(event.namespace not in TRAINING for event in tick.events)
        self.counts.findings += len(delta.raised)
        self.gathered.tick(tick)
        self._output.step(tick, delta, self._watch.ledger, self._watch.clock.now())


def replay(
    bundle: Bundle, out: Path, catalogue: Catalogue, settings: Settings | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Replay ``bundle`` into ``out`` (made; files of an earlier run are replaced) and return summary.json.

    The same bundle gives the same bytes of findings.jsonl and incidents.jsonl each time. Raises BundleError, StoreError
    or OSError; what ``progress`` raises (a cancel) passes through, and ``out`` is then left as it was.
    """
    began, cpu = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="watchkeeper-replay-") as work:
        needs = frozenset(need for detector in detectors(catalogue) for need in detector.needs)
        with bundle.prepare(Path(work), catalogue, needs, progress) as prepared, own_store(Path(work)) as store:
            clock = ManualClock(utc(prepared.begin))
            watch = watch_for(prepared, settings or Settings(), clock, store, catalogue)
            watch.feed = Feed(Path(work) / "feed")
            output = Output(Path(work))
            run = Replay(prepared, watch, clock, output)
            run.run(progress)
            incidents = output.conclude(store, watch.cluster, partial(documents, watch, prepared, run.gathered))
            summary = summary_of(prepared, watch, run.counts, time.monotonic() - began, time.process_time() - cpu)
            summary["incidents"] = incidents
            output.finish(summary)
        output.move_to(out)
    return summary


@contextmanager
def own_store(work: Path) -> Iterator[Store]:
    """A database of this run alone; it need not survive a crash."""
    store = open_store("", work / "store", durable=False)
    try:
        migrate(store)
        yield store
    finally:
        store.close()


def watch_for(prepared: Prepared, settings: Settings, clock: ManualClock, store: Store, catalogue: Catalogue) -> Watch:
    """The watch of the bundle's cluster: observe, no channels, ticks at the bundle's own distance."""
    said = prepared.bundle
    cluster = Cluster(name=said.cluster, interval_s=prepared.interval_s, lateness_s=said.lateness_s)
    with store.write() as session:
        cluster_rows.ensure_cluster(session, cluster.name)
    shadow = next((one for one in settings.cluster if one.name == said.cluster), settings.cluster[0]).shadow
    rules = replace(rules_of(settings, (), False), mode="observe", save_every_s=SAVE_EVERY_S, shadow=shadow)
    watch = watch_of(cluster, rules, clock, store, catalogue, Changes(), None, "replay")
    watch.dark = prepared.dark
    if watch.verdicts is not None:
        watch.verdicts.lines = None  # a bundle tells steps in training/*.jsonl
    if prepared.recorded is not None:
        watch.verdicts = None  # a recording holds the verdicts of its time
    watch.load()
    return watch


def summary_of(prepared: Prepared, watch: Watch, counts: Counts, wall_s: float, cpu_s: float) -> dict[str, Any]:
    """The types of contracts.md, and what was left out and why."""
    ring = watch.ring
    dropped = counts.dropped + Counter(ring.dropped) + prepared.left_out
    return {
        "bundle": prepared.bundle.folder.name,
        "cluster": watch.cluster,
        "begin": prepared.begin,
        "end": prepared.end,
        "interval_s": ring.interval_s,
        "ticks": counts.ticks,
        "samples": counts.samples,
        "events": counts.events,
        "late": ring.late,
        "dropped": sum(dropped.values()) + prepared.bad.count,
        "dropped_by_reason": dict(sorted(dropped.items())),
        "bad_rows": {
            "count": prepared.bad.count,
            "first": [{"file": r.file, "line": r.line, "why": r.why} for r in prepared.bad.told],
        },
        "rows": {rows.part: rows.rows.size for rows in prepared.training} | {"job_logs": len(prepared.job_logs)},
        "findings": counts.findings,
        "incidents": 0,
        "wall_s": round(wall_s, 3),
        "cpu_s": round(cpu_s, 3),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "dark": list(prepared.dark),
    }
