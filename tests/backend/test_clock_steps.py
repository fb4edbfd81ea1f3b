"""The clock of the house steps back ten minutes: beats go on, and sources are read from the time that it is now."""

from __future__ import annotations

import threading
from collections.abc import Set
from datetime import timedelta

from backend.clock import ManualClock, unix
from backend.facts import Batch
from backend.loops import Loop, Pull, run_every
from backend.store import system
from backend.store.engine import Store
from detectors.model import Need
from tests.backend.bench import TICK_S, Bench

BACK = timedelta(minutes=10)


class Asked:
    """A source that remembers which span it was asked for."""

    name = "prometheus"

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        self.spans.append((start, end))
        return Batch(self.name, start, end)


def test_a_source_is_read_over_a_span_that_runs_forward(sqlite_store: Store, clock: ManualClock) -> None:
    bench, source = Bench(sqlite_store, clock), Asked()
    pull = Pull(bench.watch, source, TICK_S)
    pull()
    clock.set(clock.now() - BACK)
    pull()
    now = unix(clock.now())
    assert source.spans[-1] == (now - TICK_S, now)


def test_a_loop_goes_on_beating(sqlite_store: Store, clock: ManualClock) -> None:
    stop = threading.Event()
    steps = iter((timedelta(), -BACK))

    def step() -> bool:
        clock.set(clock.now() + next(steps))
        return False

    def pause(_: float) -> None:
        if clock.now() < started:
            stop.set()

    started = clock.now()
    run_every(Loop("main", "loop", "scripted", 1.0, step, pause), sqlite_store, clock, stop)
    with sqlite_store.read() as session:
        beats = {beat.name: beat.ok_at for beat in system.beats(session, "main")}
    assert beats["scripted"] == started - BACK


def test_a_pushed_source_goes_on_beating(sqlite_store: Store, clock: ManualClock) -> None:
    bench = Bench(sqlite_store, clock)
    bench.line(bench.busy_node(), "nothing of note")
    bench.xid(bench.busy_node(), 3, 79)
    clock.set(clock.now() - BACK)
    bench.xid(bench.busy_node(1), 3, 79)
    with sqlite_store.read() as session:
        beats = {beat.name: beat.ok_at for beat in system.beats(session, "main")}
    assert beats["logs"] == clock.now()
