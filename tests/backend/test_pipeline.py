"""The life of one tick: what a 2xx promises, what each tick judges, and what a failure or a restart may cost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray
from sqlmodel import Session, col, select

from backend import pipeline
from backend.clock import ManualClock
from backend.facts import Batch, DeviceLabel, Series
from backend.ingest.logs import logs_batch, read_rows
from backend.model.events import Event, Finding
from backend.model.system import Beat
from backend.store import findings as store_findings
from backend.store import system
from backend.store.arrays import unpack
from backend.store.engine import Store, StoreError, open_store
from backend.watch import EVENTS, SLOTS
from detectors.detector import Detector
from detectors.kernel.lines import parse
from detectors.model import Fleet, Judged, Need, Tick
from tests.backend.bench import TICK_S, Bench
from tests.conftest import NOW


@pytest.fixture
def bench(sqlite_store: Store, clock: ManualClock) -> Bench:
    made = Bench(sqlite_store, clock)
    made.ticks(3)
    return made


def rows(bench: Bench) -> list[Finding]:
    with bench.watch.store.read() as session:
        return list(session.exec(select(Finding).order_by(col(Finding.id))))


def logged(bench: Bench) -> list[Event]:
    with bench.watch.store.read() as session:
        return list(session.exec(select(Event).order_by(col(Event.id))))


def beats(bench: Bench, kind: str) -> dict[str, Beat]:
    with bench.watch.store.read() as session:
        return {beat.name: beat for beat in system.beats(session, "main") if beat.kind == kind}


def said(bench: Bench, node: str, text: str, ago_s: float = 0.0) -> pipeline.Accepted:
    """A kernel line that was written ``ago_s`` seconds ago and arrives now."""
    row = {"ts": bench.now - ago_s, "host": node, "source": "kernel", "line": text}
    batch = logs_batch(read_rows(orjson.dumps([row]), "application/json", bench.now), bench.now, parse)
    return pipeline.accept(bench.watch, batch)


# --- accept ---------------------------------------------------------------------------------------------------------


def test_an_accepted_event_is_committed_before_the_answer_and_wakes_the_loop(bench: Bench) -> None:
    node = bench.busy_node()
    bench.watch.wake.clear()
    accepted = bench.xid(node, 3, 79)
    assert (accepted.events, accepted.duplicates) == (1, 0)
    assert bench.watch.wake.is_set()
    (row,) = logged(bench)
    assert (row.namespace, row.code, row.entity_name, row.job) == ("xid", "79", f"{node}/gpu3", bench.job_of(node))


def test_the_same_line_again_is_counted_and_wakes_nobody(bench: Bench) -> None:
    node = bench.busy_node()
    bench.xid(node, 3, 79)
    bench.watch.wake.clear()
    again = bench.xid(node, 3, 79)
    assert (again.events, again.duplicates) == (0, 1)
    assert not bench.watch.wake.is_set()
    assert len(logged(bench)) == 1


def test_telemetry_alone_wakes_nobody_and_is_counted(bench: Bench) -> None:
    bench.watch.wake.clear()
    bench.clock.set(bench.clock.now() + timedelta(seconds=TICK_S))
    bench.telemetry()
    assert not bench.watch.wake.is_set()
    assert bench.watch.brought["prometheus"]["samples"] == 4 * 48 * 8 * 3


def test_a_refused_commit_accepts_nothing(bench: Bench) -> None:
    bench.watch.store = FailsOnce(bench.watch.store)  # type: ignore[assignment]  # as a Store
    bench.watch.wake.clear()
    with pytest.raises(StoreError):
        bench.xid(bench.busy_node(), 3, 79)
    assert logged(bench) == [] and not bench.watch.wake.is_set()
    assert bench.xid(bench.busy_node(), 3, 79).events == 1


def test_a_pushed_source_has_a_pulse_and_a_pulled_one_beats_elsewhere(bench: Bench) -> None:
    bench.xid(bench.busy_node(), 3, 79)
    assert beats(bench, "source")["logs"].counts["events"] == 1
    pipeline.accept(bench.watch, Batch("loki", 0.0, bench.now), pushed=False)
    assert "loki" not in beats(bench, "source")


# --- what a tick judges ---------------------------------------------------------------------------------------------


def test_an_event_opens_an_incident_at_once_without_telemetry(bench: Bench) -> None:
    node = bench.busy_node()
    bench.xid(node, 3, 79)
    assert pipeline.observe(bench.watch)
    assert bench.incident().entity_name == f"{node}/gpu3"


@pytest.mark.parametrize("name", ["gpu_bus_loss", "kernel/xid", "kernel/xid:gpu_bus_loss"])
def test_what_is_in_shadow_is_kept_and_shown_and_opens_nothing(bench: Bench, name: str) -> None:
    bench.watch.rules = replace(bench.watch.rules, shadow=(name,))
    bench.xid(bench.busy_node(), 3, 79)
    assert pipeline.observe(bench.watch)
    (row,) = rows(bench)
    assert bench.incidents() == [] and row.incident_id is None and row.severity == "info"
    assert row.reason.startswith("In shadow (would be critical): ")
    with bench.watch.store.read() as session:
        number, newest = store_findings.shadowed(session, "main", name, row.raised_at)
        assert store_findings.shadowed(session, "main", "telemetry/peers", row.raised_at) == (0, None)
    assert number == 1 and newest is not None and newest.id == row.id


def test_a_late_event_opens_nothing(bench: Bench) -> None:
    node = bench.busy_node()
    pci = bench.machine(node).cards[3].pci
    line = f"NVRM: Xid (PCI:{pci}): 79, pid=77, name=python3, GPU has fallen off the bus."
    assert said(bench, node, line, ago_s=pipeline.LATE_S + 60).events == 1
    bench.turn()
    assert bench.incidents() == [] and rows(bench) == []
    assert logged(bench)[0].late
    said(bench, node, line, ago_s=pipeline.LATE_S - 60)
    bench.turn()
    assert len(bench.incidents()) == 1


def test_an_event_of_an_unknown_device_is_resolved_once_the_device_is_known(bench: Bench) -> None:
    line = "NVRM: Xid (PCI:0000:9b:00): 79, pid=77, name=python3, GPU has fallen off the bus."
    bench.line("gpu-900", line)
    assert (logged(bench)[0].entity_kind, logged(bench)[0].entity_name) == ("node", "gpu-900")
    label = DeviceLabel("gpu", "gpu-900", "GPU-new", "00000000:9B:00.0", "5", "H100")
    series = Series("temperature_c", label, np.array([bench.now]), np.array([60.0]))
    pipeline.accept(bench.watch, Batch("prometheus", bench.now - TICK_S, bench.now, series=(series,)))
    bench.turn()
    assert bench.incident().entity_name == "gpu-900/gpu5"
    assert logged(bench)[0].entity_name == "gpu-900"  # the log keeps what was known then


def test_a_storm_is_judged_whole_in_ticks_of_a_bounded_size(bench: Bench) -> None:
    counting(bench)
    sizes: list[int] = []
    watched(bench, sizes.append)
    nodes = [m.name for m in bench.world.site.machines]
    many = 600
    lines = [
        {"ts": bench.now + i * 1e-3, "host": nodes[i % 48], "source": "kernel", "line": xid_line(i)}
        for i in range(many)
    ]
    batch = logs_batch(read_rows(orjson.dumps(lines), "application/json", bench.now), bench.now, parse)
    assert pipeline.accept(bench.watch, batch).events == many
    bench.turn()
    assert [size for size in sizes if size] == [500, 100]
    assert judged(bench) == [row.id for row in logged(bench)]


def test_a_quiet_tick_writes_no_finding_row(bench: Bench) -> None:
    bench.xid(bench.busy_node(), 3, 79)
    bench.turn()
    before = [row.model_dump() for row in rows(bench)]
    revision = bench.incident().revision
    bench.ticks(3)
    assert [row.model_dump() for row in rows(bench)] == before
    assert bench.incident().revision == revision
    assert pipeline.observe(bench.watch) is False


def test_the_cursor_and_the_states_that_belong_to_it_are_saved_together(bench: Bench) -> None:
    node = bench.busy_node()
    for gpu in (3, 4):
        bench.xid(node, gpu, 79)
        bench.turn()
        assert saved_cursors(bench) == {logged(bench)[-1].id}


def saved_cursors(bench: Bench) -> set[int]:
    with bench.watch.store.read() as session:
        states = store_findings.states(session, "main")
        mine = {row.cursor for name, row in states.items() if name != SLOTS}
        return mine | {system.cursor(session, "main", EVENTS)}


def test_only_telemetry_time_counts_as_clear_and_only_while_its_gpu_is_seen(bench: Bench) -> None:
    node = bench.busy_node()
    bench.ticks(4, silent={(node, 3)})
    bench.ticks(2)
    counted = bench.incident().clear_s
    assert counted > 0
    bench.line(bench.busy_node(1), xid_line(9))
    bench.turn()  # an event tick
    assert bench.incidents()[0].clear_s == counted
    bench.ticks(2, dark={node})  # not long enough to be an event of its own
    lost = bench.incidents()[0]
    assert (lost.clear_s, lost.blind) == (counted + TICK_S, True)  # one was on its way


def test_a_gap_between_two_telemetry_ticks_counts_as_one_interval(bench: Bench) -> None:
    node = bench.busy_node()
    bench.ticks(4, silent={(node, 3)})
    bench.ticks(1)
    before = bench.incident().clear_s
    bench.watch.last_telemetry_at = (bench.watch.last_telemetry_at or 0.0) - 3600.0  # nobody looked for an hour
    bench.ticks(1)
    assert bench.incident().clear_s == before + TICK_S


def test_an_event_tick_after_a_restart_does_not_go_back_in_time(bench: Bench) -> None:
    bench.xid(bench.busy_node(), 3, 79)
    bench.turn()
    newest = bench.watch.last_at
    bench.restart()
    said(bench, bench.busy_node(1), xid_line(1, 94), ago_s=600.0)
    bench.turn()
    assert bench.watch.last_at >= newest


# --- a detector that raises -----------------------------------------------------------------------------------------


class Breakable:
    """A detector that raises while it is told to."""

    def __init__(self, inner: Detector[Any]) -> None:
        self._inner = inner
        self.name, self.needs = inner.name, inner.needs
        self.start, self.move = inner.start, inner.move
        self.broken = False

    def step(self, state: Any, tick: Tick, fleet: Fleet) -> Judged:
        if self.broken:
            raise ZeroDivisionError("a bug of its own")
        return self._inner.step(state, tick, fleet)


def breakable(bench: Bench, name: str) -> Breakable:
    found = next(d for d in bench.watch.detectors if d.name == name)
    made = Breakable(found)
    bench.watch.detectors = tuple(made if d is found else d for d in bench.watch.detectors)
    return made


def test_a_raising_detector_costs_its_own_findings_of_one_tick_only(bench: Bench) -> None:
    node = bench.busy_node()
    bench.xid(node, 3, 79)
    bench.turn()
    before = [row.model_dump() for row in rows(bench)]
    detector = breakable(bench, "kernel/xid")
    detector.broken = True
    bench.ticks(4, silent={(node, 3)})
    assert [row.model_dump() for row in rows(bench)][: len(before)] == before  # frozen: neither cleared nor changed
    assert {row.detector for row in rows(bench)} == {"kernel/xid", "telemetry/silence"}  # the others went on
    assert bench.incident().clear_s == 0.0
    detector.broken = False
    bench.ticks(1, silent={(node, 3)})
    assert all(row.cleared_at is None for row in rows(bench))


def test_a_raising_detector_shows_on_system_and_recovers(bench: Bench) -> None:
    detector = breakable(bench, "telemetry/peers")
    detector.broken = True
    bench.ticks(2)
    beat = beats(bench, "detector")["telemetry/peers"]
    assert (beat.error, beat.errors) == ("ZeroDivisionError: a bug of its own", 2)
    assert beat.failing_since is not None
    detector.broken = False
    bench.ticks(1)
    beat = beats(bench, "detector")["telemetry/peers"]
    assert (beat.error, beat.failing_since, beat.errors) == ("", None, 2)


def test_a_detector_that_a_restart_mended_shows_as_mended(bench: Bench) -> None:
    breakable(bench, "telemetry/peers").broken = True
    bench.ticks(1)
    bench.restart()
    bench.ticks(3)
    assert beats(bench, "detector")["telemetry/peers"].failing_since is None


def test_no_clear_time_counts_while_the_detector_of_a_level_is_broken(bench: Bench) -> None:
    node = bench.busy_node()
    bench.ticks(4, silent={(node, 3)})
    detector = breakable(bench, "telemetry/silence")
    detector.broken = True
    bench.ticks(10)
    assert (bench.incident().blind, bench.incident().clear_s, bench.incident().state) == (True, 0.0, "open")


# --- failure and restart --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Seen:
    seqs: NDArray[np.int64]


class Counting:
    """Remembers in its state which events it judged, in order."""

    name = "telemetry/counting"
    needs: frozenset[Need] = frozenset()

    def start(self, fleet: Fleet) -> Seen:
        return Seen(np.zeros(0, np.int64))

    def step(self, state: Seen, tick: Tick, fleet: Fleet) -> Judged:
        state.seqs = np.append(state.seqs, np.array([e.seq for e in tick.events], np.int64))
        return Judged()

    def move(self, state: Seen, old: Fleet, new: Fleet) -> Seen:
        return state


def counting(bench: Bench) -> None:
    bench.watch.detectors = (*bench.watch.detectors, Counting())
    bench.watch.load()


def judged(bench: Bench) -> list[int]:
    """The events that the saved state of the counting detector has in it."""
    with bench.watch.store.read() as session:
        state = store_findings.states(session, "main")[Counting.name]
    return list(unpack(state.arrays)["seqs"])


def watched(bench: Bench, look: Callable[[int], object]) -> None:
    """Calls ``look`` with the number of events of each tick."""
    (found,) = [d for d in bench.watch.detectors if d.name == Counting.name]
    step = found.step

    def looked(state: Any, tick: Tick, fleet: Fleet) -> Judged:
        look(len(tick.events))
        return step(state, tick, fleet)

    found.step = looked  # type: ignore[method-assign]  # a spy on the test's own detector


class FailsOnce:
    """A store whose next commit fails: with nothing written, or (``after``) written but the answer lost."""

    def __init__(self, store: Store, after: bool = False) -> None:
        self._store = store
        self._after = after
        self.fails = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def write(self) -> Iterator[Session]:
        fails, self.fails = self.fails, False
        with self._store.write() as session:
            yield session
            if fails and not self._after:
                raise StoreError("the disk is full", "Make room.")
        if fails:
            raise StoreError("the connection broke", "Wait.")


@pytest.mark.parametrize("after", [False, True], ids=["not committed", "committed, answer lost"])
def test_after_a_failed_commit_no_event_is_judged_twice_or_left_out(bench: Bench, after: bool) -> None:
    counting(bench)
    node, store = bench.busy_node(), bench.watch.store
    bench.xid(node, 3, 79)
    bench.watch.store = FailsOnce(store, after)  # type: ignore[assignment]  # as a Store
    with pytest.raises(StoreError):
        pipeline.observe(bench.watch)
    assert bench.watch.stale
    bench.xid(node, 4, 79)
    bench.turn()
    assert [bench.watch.stale] == [False]
    assert judged(bench) == [row.id for row in logged(bench)]
    assert sorted(row.entity_name for row in rows(bench)) == [f"{node}/gpu3", f"{node}/gpu4"]
    assert bench.incident().node == node


@pytest.mark.parametrize("after", [False, True], ids=["not committed", "committed, answer lost"])
def test_a_failed_commit_of_a_telemetry_tick_costs_no_level(bench: Bench, after: bool) -> None:
    node = bench.busy_node()
    bench.xid(node, 3, 79)
    bench.turn()
    before = [row.model_dump() for row in rows(bench)]
    bench.watch.store, store = FailsOnce(bench.watch.store, after), bench.watch.store  # type: ignore[assignment]  # as a Store
    bench.watch.store.fails = False  # type: ignore[attr-defined]  # not while the scrape is accepted
    bench.clock.set(bench.clock.now() + timedelta(seconds=TICK_S))
    bench.telemetry(silent={(node, 3)})
    bench.watch.store.fails = True  # type: ignore[attr-defined]  # but while its tick is judged
    with pytest.raises(StoreError):
        pipeline.observe(bench.watch)
    bench.watch.store = store
    bench.ticks(3, silent={(node, 3)})
    kept = [row.model_dump() for row in rows(bench)]
    assert kept[: len(before)] == before
    assert [row.detector for row in rows(bench)] == ["kernel/xid", "telemetry/silence"]


def xid_line(i: int, code: int = 31) -> str:
    return f"NVRM: Xid (PCI:0000:1b:00): {code}, pid={i}, name=python3, Ch 0000{i:04x}"


STORY = (
    ("first", 3, 79, "GPU has fallen off the bus."),
    ("first", 4, 31, "MMU Fault"),
    ("second", 0, 94, "Contained: an ECC error"),
    ("second", 0, 154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
    ("first", 3, 45, "Ch 00000003"),
)


def told(store: Store, clock: ManualClock, between: Callable[[Bench], object]) -> Bench:
    """The story, a line every two ticks; ``between`` is called after each step."""
    bench = Bench(store, clock)
    counting(bench)
    bench.ticks(3)
    nodes = {"first": bench.busy_node(0), "second": bench.busy_node(1)}
    for place, gpu, code, text in STORY:
        bench.xid(nodes[place], gpu, code, text)
        between(bench)
        bench.turn()
        between(bench)
        for _ in range(2):
            bench.ticks(1)
            between(bench)
    return bench


def restarted(bench: Bench) -> None:
    bench.restart()
    counting(bench)


def shown(bench: Bench) -> dict[str, list[tuple[object, ...]]]:
    return {
        "findings": [
            (r.key, r.severity, round(r.score, 6), r.since, r.reason, r.raised_at, r.cleared_at, r.incident_id)
            for r in rows(bench)
        ],
        "incidents": [(i.kind, i.entity_name, i.severity, i.opened_at, i.victims) for i in bench.incidents()],
        "judged": [(seq,) for seq in judged(bench)],
    }


@pytest.fixture
def undisturbed(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Store]:
    """A second store, for the run that is compared with."""
    folder = tmp_path / "undisturbed"
    folder.mkdir(mode=0o700)
    shutil.copy(migrated_sqlite, folder / "watchkeeper.db")
    made = open_store("", folder)
    yield made
    made.close()


def test_a_restart_at_every_step_gives_the_findings_of_an_undisturbed_run(store: Store, undisturbed: Store) -> None:
    plain = told(undisturbed, ManualClock(NOW), lambda _: None)
    assert len(plain.incidents()) == 2 and len(rows(plain)) >= 3
    assert shown(told(store, ManualClock(NOW), restarted)) == shown(plain)
