"""Runs the backtests of one cluster, one at a time, each in a process of its own that gives way to everything else."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from backend.backtest.both import Told, both
from backend.backtest.compare import sentence
from backend.backtest.span import Reads, SpanError, gather, known_of
from backend.clients.promql import PrometheusReader
from backend.clock import utc
from backend.ingest.base import SourceError
from backend.ingest.bundle.bundle import open_bundle
from backend.ingest.bundle.folder import BundleError
from backend.ingest.prometheus import PrometheusSource
from backend.model.tasks import Task
from backend.settings import Settings
from backend.store import tasks
from backend.store.engine import StoreError, open_store
from backend.watch import Watch
from detectors import registry as detectors
from detectors.catalogue import Catalogue, TableError, load

log = logging.getLogger("watchkeeper.backtest")

#: How often the runner looks for news (s).
EVERY_S = 1.0
#: Part of the whole that reading the span is.
READING = 0.3
#: Longest wait for one answer about the past (s).
READ_S = 60.0
#: Niceness of the process: ingest, judging and pages go first.
NICE = 15
#: How long a process may take to end when it is told to, before it is killed (s).
END_S = 5.0
#: Most seconds between two words on how far it is.
TELL_S = 0.5


@dataclass(frozen=True)
class Job:
    """What the process is told. thresholds: those in force by site and adoption; tried: those laid over them."""

    settings: Settings
    cluster: str
    start: float
    end: float
    thresholds: Mapping[str, float]
    tried: Mapping[str, float]
    folder: Path


def work(job: Job, pipe: Connection) -> None:
    """The whole of one backtest; says ("at", share, words), and at the end ("done", result) or ("failed", why)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the server's; it ends us
    os.nice(NICE)
    tempfile.tempdir = str(job.folder)  # all of it goes with the folder, however this process ends
    try:
        pipe.send(("done", tried(job, _Telling(pipe))))
    except BrokenPipeError:  # the server is gone, or gave the cluster up: nobody waits for it
        return
    except (SpanError, SourceError, BundleError, StoreError, TableError, OSError) as error:
        pipe.send(("failed", str(error)))


class _Telling:
    """How far it is, twice a second at most; a server that is gone ends the work (BrokenPipeError)."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._told = 0.0

    def __call__(self, share: float, words: str) -> None:
        if (now := time.monotonic()) - self._told >= TELL_S:
            self._told = now
            self._pipe.send(("at", share, words))


def tried(job: Job, told: Told, reads: Reads | None = None) -> dict[str, Any]:
    """Read the span, replay it under both sets, compare. Raises what ``work`` tells of."""
    catalogue = load().with_thresholds(job.thresholds)
    cluster = next(one for one in job.settings.cluster if one.name == job.cluster)
    span = (job.start, job.end)
    store = open_store(job.settings.store.url, job.settings.store.folder)
    try:
        with store.read() as session:
            known = known_of(session, job.cluster, utc(job.start), utc(job.end))
    finally:
        store.close()
    reads = reads or source_of(job.settings, job.cluster, catalogue)
    recording = job.folder / "recording"
    samples = gather(
        reads, known, span, recording, cluster, catalogue, lambda share: told(READING * share, "reading the span")
    )
    found = both(
        open_bundle(recording),
        job.folder,
        catalogue,
        job.settings,
        job.tried,
        lambda share, words: told(READING + (1 - READING) * share, f"replaying under {words}"),
    )
    whole = {"gained": found.gained, "lost": found.lost, "samples": samples, "sentence": sentence(found)}
    return asdict(found) | whole


def source_of(settings: Settings, name: str, catalogue: Catalogue) -> PrometheusSource:
    """The first Prometheus of a cluster. Raises SpanError where it has none."""
    cluster = next(one for one in settings.cluster if one.name == name)
    if not cluster.prometheus:
        raise SpanError(
            f"Cluster {name} has no Prometheus to read the span from. Name one ([[cluster.prometheus]] url), or record "
            "with serve --record and run watchkeeper replay FOLDER --set NAME=VALUE."
        )
    server = cluster.prometheus[0]
    reader = PrometheusReader(server.url, server.headers, max(READ_S, server.timeout_s))
    return PrometheusSource("prometheus", reader, catalogue, server.matchers)


class Runner:
    """Steps of one cluster's loop: takes the oldest that waits, writes down how far it is, ends what was cancelled; and
    puts in force what was adopted."""

    def __init__(self, watch: Watch, settings: Settings, base: Catalogue) -> None:
        self._watch = watch
        self._settings = settings
        self._base = base
        self._site = next(one.thresholds for one in settings.cluster if one.name == watch.cluster)
        self._child: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._place = settings.store.folder / "backtests" / watch.cluster
        self._folder = self._place
        self._number = 0
        self._first = True

    def step(self) -> bool:
        """Never waits for the work."""
        take_up(self._watch, self._base, self._site)
        if self._child is not None:
            self._look()
        elif row := self._next():
            self._begin(row)
        return False

    def close(self) -> None:
        """End what runs; it is told as failed at the next start."""
        if self._child is not None:
            self._end_child()

    def _next(self) -> Task | None:
        with self._watch.store.read() as session:
            found = tasks.open_ones(session, self._watch.cluster)
        if self._first:
            self._first = False
            shutil.rmtree(self._place, ignore_errors=True)  # of a process that was killed
            for row in found:
                if row.state == "running":  # of a process that is gone: this one holds the lease now
                    self._ended(row.id or 0, "failed", "The server ended while it ran; begin it again.")
        return next((row for row in found if row.state == "waiting"), None)

    def _begin(self, row: Task) -> None:
        self._number = row.id or 0
        with self._watch.store.write() as session:
            mine = tasks.by_id(session, self._watch.cluster, self._number)
            if mine is None or mine.state != "waiting":
                return
            mine.state, mine.who, mine.began_at = "running", self._watch.who, self._watch.clock.now()
            mine.said = "beginning"
            session.add(mine)
        self._folder = self._place / str(self._number)
        self._folder.mkdir(parents=True, exist_ok=True)
        asked, now = row.asked, self._watch.catalogue.thresholds
        today = {name: one.value for name, one in now.items() if one.source == "site"}
        job = Job(self._settings, row.cluster, asked["start"], asked["end"], today, asked["thresholds"], self._folder)
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe(duplex=False)
        self._child = spawn.Process(target=work, args=(job, theirs), name=f"backtest {self._number}", daemon=True)
        self._child.start()
        theirs.close()

    def _look(self) -> None:
        """What it said since; whether it was cancelled, or died."""
        assert self._child is not None and self._pipe is not None
        over = not self._child.is_alive()
        said: tuple[Any, ...] | None = None
        try:
            while self._pipe.poll():
                said = self._pipe.recv()
                if said[0] != "at":
                    break
        except EOFError:
            pass
        if said is not None and said[0] == "done":
            self._end_child()
            self._ended(self._number, "done", "", said[1])
        elif said is not None and said[0] == "failed":
            self._end_child()
            self._ended(self._number, "failed", said[1])
        elif over:
            code = self._child.exitcode
            self._end_child()
            self._ended(self._number, "failed", f"Its process ended by itself (exit code {code}); the log may say why.")
        elif self._cancelled(said):
            self._end_child()
            self._ended(self._number, "cancelled", "")

    def _cancelled(self, said: tuple[Any, ...] | None) -> bool:
        """Whether a person stopped it; how far it is is written down on the way."""
        with self._watch.store.write() as session:
            row = tasks.by_id(session, self._watch.cluster, self._number)
            if row is None or row.cancelled_by:
                return True
            if said is not None:
                row.share, row.said = round(float(said[1]), 3), str(said[2])
                session.add(row)
        return False

    def _end_child(self) -> None:
        assert self._child is not None and self._pipe is not None
        self._child.terminate()
        self._child.join(END_S)
        if self._child.is_alive():
            self._child.kill()
            self._child.join(END_S)
        self._pipe.close()
        self._child = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ended(self, number: int, state: str, said: str, result: Mapping[str, Any] | None = None) -> None:
        with self._watch.store.write() as session:
            row = tasks.by_id(session, self._watch.cluster, number)
            if row is None:
                return
            row.state, row.said, row.ended_at = state, said, self._watch.clock.now()
            row.result, row.share = dict(result or {}), 1.0 if state == "done" else row.share
            session.add(row)
        self._watch.changes.nudge()
        log.info("%s: backtest %d %s %s", self._watch.cluster, number, state, said)


def take_up(watch: Watch, base: Catalogue, site: Mapping[str, float]) -> bool:
    """Thresholds in force are the default, the site's over it, and what was adopted over that; whether they changed.
    ``watch`` judges by them from its next turn on, with what it has seen."""
    with watch.store.read() as session:
        adopted = tasks.adopted(session, watch.cluster, base.thresholds)
    wanted = {**site, **adopted}
    if wanted == {name: one.value for name, one in watch.catalogue.thresholds.items() if one.source == "site"}:
        return False
    with watch.lock:
        watch.catalogue = base.with_thresholds(wanted)
        watch.tuned = detectors.detectors(watch.catalogue)
    watch.wake.set()
    return True
