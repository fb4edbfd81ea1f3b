"""Loops survive what their steps meet, show it on System, and end when told; a source that is away is dark."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlmodel import Session

from backend import loops, pipeline
from backend.clock import ManualClock, SystemClock
from backend.facts import Batch
from backend.ingest.base import SourceError
from backend.ingest.logs import logs_batch, read_rows
from backend.loops import REACH_BACK_S, Loop, Loops, Pull, all_loops, on_the_beat, run_every, waker, watch_loops
from backend.model.system import Beat
from backend.registry import Parts, build
from backend.settings import Settings
from backend.settings import Store as StoreSettings
from backend.store import system
from backend.store.engine import Store, StoreError
from detectors.kernel.lines import parse
from detectors.model import Need
from tests.backend.bench import TICK_S, Bench
from tests.conftest import NOW

LINE = "NVRM: Xid (PCI:0000:1b:00): 79, pid=77, name=python3, GPU has fallen off the bus."


class Script:
    """Steps by the number of the call; the last one stops the loop. ``paused`` are the waits that were asked for."""

    def __init__(self, clock: ManualClock, *steps: Callable[[], bool], every_s: float = 1.0) -> None:
        self.clock, self.steps, self.every_s = clock, list(steps), every_s
        self.stop = threading.Event()
        self.paused: list[float] = []

    def step(self) -> bool:
        take = self.steps.pop(0)
        if not self.steps:
            self.stop.set()
        return take()

    def pause(self, timeout_s: float) -> None:
        self.paused.append(timeout_s)
        self.clock.set(self.clock.now() + timedelta(seconds=timeout_s))

    def run(self, store: Any, kind: str = "loop") -> None:
        """In this very thread: it ends with the last step."""
        loop = Loop("main", kind, "scripted", self.every_s, self.step, self.pause, lambda: {"events": 7})
        run_every(loop, store, self.clock, self.stop)


def beat(store: Store, name: str = "scripted", kind: str = "loop") -> Beat:
    with store.read() as session:
        return next(b for b in system.beats(session, "main") if (b.kind, b.name) == (kind, name))


def fine(more: bool = False) -> Callable[[], bool]:
    return lambda: more


def broken(error: Exception) -> Callable[[], bool]:
    def step() -> bool:
        raise error

    return step


# --- run_every ------------------------------------------------------------------------------------------------------


def test_a_loop_survives_a_step_that_raises_and_tries_again_after_its_pause(
    sqlite_store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(clock, broken(ZeroDivisionError("oops")), broken(KeyError("x")), fine())
    script.run(sqlite_store)
    assert script.steps == [] and script.paused == [1.0, 1.0, 1.0]
    assert [r.levelno for r in caplog.records] == [logging.ERROR, logging.ERROR]


def test_a_failure_shows_on_system_at_once_and_a_success_ends_it(sqlite_store: Store, clock: ManualClock) -> None:
    Script(clock, fine(), broken(ZeroDivisionError("oops"))).run(sqlite_store)
    failing = beat(sqlite_store)
    assert (failing.error, failing.errors, failing.ok_at) == ("ZeroDivisionError: oops", 1, NOW)
    assert failing.failing_since == NOW + timedelta(seconds=1)
    Script(clock, fine()).run(sqlite_store)
    assert (beat(sqlite_store).error, beat(sqlite_store).failing_since, beat(sqlite_store).errors) == ("", None, 1)


def test_a_healthy_loop_beats_now_and_then_and_says_its_counts(sqlite_store: Store, clock: ManualClock) -> None:
    Script(clock, *[fine()] * 4).run(sqlite_store)
    assert (beat(sqlite_store).ok_at, beat(sqlite_store).counts, beat(sqlite_store).every_s) == (
        NOW,
        {"events": 7},
        1.0,
    )
    Script(clock, *[fine()] * 8).run(sqlite_store)
    assert beat(sqlite_store).ok_at == NOW + timedelta(seconds=9)  # at 4 when it began, and 5 s later


def test_while_there_is_more_to_do_it_does_not_pause(sqlite_store: Store, clock: ManualClock) -> None:
    script = Script(clock, fine(more=True), fine(more=True), fine())
    script.run(sqlite_store)
    assert script.paused == [1.0]


def test_a_source_that_does_not_answer_is_a_warning_without_a_traceback(
    sqlite_store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    Script(clock, broken(SourceError("Prometheus does not answer"))).run(sqlite_store, kind="source")
    (record,) = caplog.records
    assert (record.levelno, bool(record.exc_info)) == (logging.WARNING, False)
    assert beat(sqlite_store, kind="source").error == "SourceError: Prometheus does not answer"


class Away:
    """A store that refuses every write."""

    def write(self) -> AbstractContextManager[Session]:
        raise StoreError("the database is away", "Start it.")


def test_a_beat_that_cannot_be_written_does_not_stop_the_loop(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(clock, fine(), broken(ValueError("x")), fine())
    script.run(Away())
    assert script.steps == []
    assert "the beat of scripted could not be written" in caplog.text


# --- pauses ---------------------------------------------------------------------------------------------------------


class Waits(threading.Event):
    """An event that notes how long was asked for, and does not wait."""

    asked: float | None = None

    def wait(self, timeout: float | None = None) -> bool:
        self.asked = timeout
        return False


@pytest.mark.parametrize(("past_s", "wait_s"), [(0.0, 15.0), (4.0, 11.0), (14.5, 0.5)])
def test_reads_stand_on_multiples_of_their_interval(clock: ManualClock, past_s: float, wait_s: float) -> None:
    clock.set(NOW + timedelta(seconds=past_s))
    stop = Waits()
    on_the_beat(clock, stop)(15.0)
    assert stop.asked == pytest.approx(wait_s)


def test_an_accepted_event_ends_the_pause_of_the_observe_loop(sqlite_store: Store, clock: ManualClock) -> None:
    bench = Bench(sqlite_store, clock)
    pause = waker(bench.watch.wake)
    bench.xid(bench.busy_node(), 3, 79)
    began = time.monotonic()
    pause(30.0)
    assert time.monotonic() - began < 5
    assert not bench.watch.wake.is_set()


# --- sources --------------------------------------------------------------------------------------------------------


class Source:
    """A source that answers with nothing, or not at all."""

    name = "prometheus"

    def __init__(self) -> None:
        self.dark = False
        self.reads: list[tuple[float, float]] = []
        self.needs: Set[Need] = frozenset()

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        self.needs = needs
        if self.dark:
            raise SourceError("no answer")
        self.reads.append((start, end))
        return Batch(self.name, start, end)


@pytest.fixture
def bench(sqlite_store: Store, clock: ManualClock) -> Bench:
    made = Bench(sqlite_store, clock)
    made.ticks(2)
    return made


def pulled(bench: Bench, pull: Pull, after_s: float = TICK_S) -> None:
    """One read later on; what it raises is the loop's to show."""
    bench.clock.set(bench.clock.now() + timedelta(seconds=after_s))
    with suppress(SourceError):
        pull()


def test_a_source_is_asked_for_what_detectors_need_from_where_it_last_came_to(bench: Bench) -> None:
    source = Source()
    pull = Pull(bench.watch, source, TICK_S)
    began = bench.now
    for _ in range(2):
        pulled(bench, pull)
    assert source.reads == [(began, began + TICK_S), (began + TICK_S, began + 2 * TICK_S)]
    assert ("gpu", "temperature_c") in source.needs and "xid" in source.needs


def test_a_gap_is_read_again_but_not_further_back_than_the_ring_can_use(bench: Bench) -> None:
    source = Source()
    pull = Pull(bench.watch, source, TICK_S)
    pulled(bench, pull)
    last, source.dark = bench.now, True
    pulled(bench, pull)
    pulled(bench, pull)
    source.dark = False
    pulled(bench, pull)
    assert source.reads[-1] == (last, bench.now)
    pulled(bench, pull, after_s=3 * REACH_BACK_S)
    assert source.reads[-1] == (bench.now - REACH_BACK_S, bench.now)


def test_what_could_not_be_accepted_is_read_again(bench: Bench) -> None:
    source = Source()
    pull = Pull(bench.watch, source, TICK_S)
    pulled(bench, pull)
    last, store = bench.now, bench.watch.store
    bench.watch.store = Away()  # type: ignore[assignment]  # as a Store
    with pytest.raises(StoreError):
        pulled(bench, pull)
    bench.watch.store = store
    pulled(bench, pull)
    assert source.reads[-1] == (last, bench.now)


def test_a_source_that_fails_is_dark_until_it_answers(bench: Bench) -> None:
    source = Source()
    pull = Pull(bench.watch, source, TICK_S)
    bench.watch.darken("slurm", True)
    source.dark = True
    pulled(bench, pull)
    assert list(bench.watch.dark) == ["prometheus", "slurm"]
    source.dark = False
    pulled(bench, pull)
    assert list(bench.watch.dark) == ["slurm"]


def test_after_a_restart_a_source_is_read_from_where_the_ring_had_seen_all(bench: Bench) -> None:
    bench.ticks(6)
    closed = bench.watch.last_at
    bench.watch = bench.restarted(bench.watch.store, bench.watch.rules)
    bench.clock.set(bench.clock.now() + timedelta(seconds=40))
    source = Source()
    Pull(bench.watch, source, TICK_S)()
    ((start, end),) = source.reads
    assert closed - bench.watch.rules.save_every_s <= start <= closed
    assert end == bench.now


def test_a_source_that_fails_as_nobody_foresaw_is_dark_too(bench: Bench) -> None:
    class Odd(Source):
        def read(self, needs: Set[Need], start: float, end: float) -> Batch:
            raise KeyError("answer")

    with pytest.raises(KeyError):
        Pull(bench.watch, Odd(), TICK_S)()
    assert list(bench.watch.dark) == ["prometheus"]


def test_an_incident_that_opens_in_the_dark_says_so_and_what_is_decided_too(bench: Bench) -> None:
    bench.watch.darken("slurm", True)
    bench.xid(bench.busy_node(), 3, 79)
    bench.turn()
    assert bench.incident().dark == ["slurm"]
    assert bench.decision().dark == ["slurm"]


def test_a_live_incident_goes_dark_and_bright_with_its_sources(bench: Bench) -> None:
    node = bench.busy_node()
    bench.xid(node, 3, 79)
    bench.turn()
    bench.watch.darken("slurm", True)
    bench.ticks(1, silent={(node, 3)})
    assert bench.incident().dark == ["slurm"]
    bench.watch.darken("slurm", False)
    bench.ticks(1, silent={(node, 3)})
    assert bench.incident().dark == []


# --- all together ---------------------------------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path: Path, migrated_sqlite: Path) -> Iterator[Parts]:
    shutil.copy(migrated_sqlite, tmp_path / "watchkeeper.db")
    sources = {"main": ((Source(), 1.0),)}
    made = build(Settings(store=StoreSettings(folder=tmp_path)), SystemClock(), more_sources=sources)
    yield made
    made.store.close()


def names(parts: Parts) -> list[str]:
    stop, watch = threading.Event(), parts.watches["main"]
    found = all_loops(parts, stop)
    if parts.role != "api":
        found += watch_loops(parts, watch, stop)
    return [f"{loop.kind} {loop.name}" for loop in found]


def test_each_role_runs_its_own_loops(parts: Parts) -> None:
    """Who only answers people judges nothing, sends nothing and reads no source."""
    judging = ("observe", "decide", "alerts", "act", "check", "sweep", "join", "return", "learn")
    steps = (*judging, "account", "archive", "report", "backtest")
    working = {*(f"loop {step}" for step in steps), "source prometheus"}
    assert set(names(parts)) == {"loop follow", *working}
    assert working < set(names(replace(parts, role="observe")))
    assert not working & set(names(replace(parts, role="api")))


def until(look: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not look():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def test_all_loops_start_beat_and_stop_promptly(parts: Parts) -> None:
    running = Loops(parts)
    before = set(threading.enumerate())
    running.start()

    def beating() -> set[str]:
        with parts.store.read() as session:
            return {b.name for b in system.beats(session) if b.ok_at is not None}

    until(lambda: beating() >= {"follow", "observe", "decide", "act", "return", "prometheus"})
    began = time.monotonic()
    running.stop()
    assert time.monotonic() - began < 3
    assert set(threading.enumerate()) <= before


def test_a_committed_event_is_judged_without_waiting_for_the_next_turn(parts: Parts) -> None:
    watch, judged = parts.watches["main"], threading.Event()
    watch.reached = lambda point: judged.set() if point == "incident committed" else None
    running = Loops(parts)
    running.start()
    try:
        row = {"ts": time.time(), "host": "gpu-001", "source": "kernel", "line": LINE}
        rows = read_rows(orjson.dumps([row]), "application/json", time.time())
        pipeline.accept(watch, logs_batch(rows, time.time(), parse))
        assert judged.wait(10)
    finally:
        running.stop()


def test_the_pulse_of_the_observe_loop_counts_what_it_holds(bench: Bench) -> None:
    bench.xid(bench.busy_node(), 3, 79)
    pipeline.observe(bench.watch)
    found = loops.pulse(bench.watch)
    assert (found["events"], found["findings"], found["tick_at"]) == (bench.watch.cursor, 1, bench.watch.last_at)
    assert found["backlog"] == 0
    bench.xid(bench.busy_node(), 4, 79)
    assert loops.pulse(bench.watch)["backlog"] == 1
