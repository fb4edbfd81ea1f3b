"""The 48 h history: what was written is what is read, through growth, kills, torn files and full disks."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.clock import ManualClock
from backend.history import KEPT, History, Range, period_of
from backend.history_file import CELL_S, CELLS
from backend.model.system import Beat
from backend.store import system
from backend.store.engine import Store
from detectors.catalogue import load
from detectors.model import Tick
from tests.backend.bench import Bench
from tests.backend.history_writer import FEW, KEY, MANY, TICK_S, fleet_of, ids, value_at

#: The start of a cell.
T0 = 1_800_000_000.0
HEAT = ("gpu", "temperature_c")
DAY_S = 86_400.0


def opened(folder: Path) -> History:
    return History.open(folder, "main", (KEY, HEAT), "write")


def put(history: History, at: float, watts: Mapping[str, float], epoch: int = 0) -> None:
    """One tick in which these GPUs, in this order, draw so much."""
    values = np.array(list(watts.values()), np.float32)
    history.add(Tick(at, {KEY: values}), fleet_of(tuple(watts), epoch))


def told(history: History, id_: str, start: float = T0, end: float = T0 + DAY_S) -> dict[float, tuple[float, ...]]:
    """Start of each cell in seconds after T0, with least, mean and most, of the cells that hold something."""
    return cells(history.read(*KEY[:1], id_, KEY[1], start, end))


def cells(found: Range) -> dict[float, tuple[float, ...]]:
    rows = zip(found.times.tolist(), found.least.tolist(), found.mean.tolist(), found.most.tolist(), strict=True)
    return {at - T0: (least, mean, most) for at, least, mean, most in rows if not np.isnan(mean)}


# --- what is read ---------------------------------------------------------------------------------------------------


def test_a_cell_keeps_the_mean_and_a_spike_of_one_sample(tmp_path: Path) -> None:
    history = opened(tmp_path)
    for n, watts in enumerate((600.0, 600.0, 90.0, 610.0)):
        put(history, T0 + 15 * (n + 1), {"a": watts})
    assert told(history, "a") == {0: (90.0, 475.0, 610.0)}


def test_a_tick_on_the_edge_tells_of_the_cell_before_it(tmp_path: Path) -> None:
    history = opened(tmp_path)
    put(history, T0 + CELL_S, {"a": 1.0})
    put(history, T0 + CELL_S + 15, {"a": 2.0})
    assert told(history, "a") == {0: (1.0, 1.0, 1.0), CELL_S: (2.0, 2.0, 2.0)}


def test_a_gap_stays_a_gap_of_cells_that_are_there(tmp_path: Path) -> None:
    history = opened(tmp_path)
    put(history, T0 + 15, {"a": 1.0})
    put(history, T0 + 3 * CELL_S + 15, {"a": 4.0})
    found = history.read("gpu", "a", "power_w", T0, T0 + 4 * CELL_S)
    assert found.times.tolist() == [T0 + n * CELL_S for n in range(4)]
    assert np.isnan(found.mean).tolist() == [False, True, True, False]


def test_what_is_not_known_or_not_kept_is_nothing_and_not_zero(tmp_path: Path) -> None:
    history = opened(tmp_path)
    put(history, T0 + 15, {"a": 1.0})
    assert told(history, "b") == {}
    assert np.isnan(history.read("gpu", "a", "temperature_c", T0, T0 + 300).mean).all()
    assert np.isnan(history.read("gpu", "a", "no_such_metric", T0, T0 + 300).mean).all()
    assert history.read("rack", "r1", "power_w", T0, T0 + 300).times.size == 0


def test_the_part_before_the_first_cell_is_said_to_come_from_elsewhere(tmp_path: Path) -> None:
    history = opened(tmp_path)
    assert history.read("gpu", "a", "power_w", T0, T0 + 60).older == (T0, T0 + 60)
    put(history, T0 + 15, {"a": 1.0})
    assert history.read("gpu", "a", "power_w", T0, T0 + 60).older is None
    assert history.read("gpu", "a", "power_w", T0 - 900, T0 + 60).older == (T0 - 900, T0)
    assert history.read("gpu", "a", "power_w", T0 - 900, T0 - 600).older == (T0 - 900, T0 - 600)
    assert history.span() == (T0, T0 + CELL_S)


def test_times_that_are_no_span_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        opened(tmp_path).read("gpu", "a", "power_w", T0, T0 - 1)
    with pytest.raises(ValueError, match="cannot read"):
        opened(tmp_path).read("gpu", "a", "power_w", float("nan"), T0)


def test_every_metric_that_is_kept_is_in_the_catalogue() -> None:
    metrics = load().metrics
    assert all(metrics[name].axis == axis and metrics[name].kind in ("gauge", "counter") for axis, name in KEPT)


# --- against a plain model ------------------------------------------------------------------------------------------


@dataclass
class Model:
    """The same in a dict: every value of each id and cell."""

    values: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    newest: int = 0

    def put(self, at: float, watts: Mapping[str, float]) -> None:
        self.newest = period_of(at)
        for id_, value in watts.items():
            if not np.isnan(value):
                self.values.setdefault((id_, self.newest), []).append(value)

    def rename(self, old: str, new: str) -> None:
        if not any(id_ == new for id_, _ in self.values):
            self.values = {(new if id_ == old else id_, p): v for (id_, p), v in self.values.items()}

    def told(self, id_: str) -> dict[float, tuple[float, ...]]:
        return {
            p * float(CELL_S) - T0: (min(v), sum(v) / len(v), max(v))
            for (of, p), v in self.values.items()
            if of == id_ and p > self.newest - CELLS
        }


NAMES = [f"g{n}" for n in range(8)]
WATTS = st.one_of(st.just(float("nan")), st.integers(0, 2000).map(float))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["tick", "tick", "tick", "tick", "reopen", "rename"]),
        st.sampled_from([15, 15, 60, 300, 301, 4000, 100_000, 180_000]),
        st.dictionaries(st.sampled_from(NAMES), WATTS, min_size=1),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_reads_equal_a_plain_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, dict[str, float]]]
) -> None:
    folder = tmp_path_factory.mktemp("history")
    history, model, at, renamed = opened(folder), Model(), T0, 0
    for what, step_s, watts in steps:
        if what == "reopen":
            history.close()
            history = opened(folder)
        if what == "rename":
            old, new = next(iter(watts)), f"better-{renamed}"
            renamed += 1
            model.rename(old, new)
            history.rename({old: new})
            watts = {new if id_ == old else id_: value for id_, value in watts.items()}
        at += step_s
        put(history, at, watts)
        model.put(at, watts)
    for id_ in (*NAMES, *(f"better-{n}" for n in range(renamed))):
        found, wanted = told(history, id_, T0 - DAY_S, at + DAY_S), model.told(id_)
        assert found.keys() == wanted.keys()
        for cell, stats in wanted.items():
            assert found[cell] == pytest.approx(stats, rel=1e-5)
    history.close()


# --- time -----------------------------------------------------------------------------------------------------------


def test_after_48_hours_no_old_cell_is_shown_as_a_new_one(tmp_path: Path) -> None:
    history = opened(tmp_path)
    for n in range(CELLS):
        put(history, T0 + n * CELL_S + 15, {"a": float(n)})
    late = T0 + (CELLS + 10) * CELL_S
    put(history, late + 15, {"a": 5000.0})
    found = told(history, "a", T0, late + CELL_S)
    assert list(found) == [*(n * CELL_S for n in range(11, CELLS)), late - T0]
    assert found[11 * CELL_S][1] == 11 and found[late - T0][1] == 5000


def test_a_day_long_gap_stays_empty(tmp_path: Path) -> None:
    history = opened(tmp_path)
    put(history, T0 + 15, {"a": 1.0})
    put(history, T0 + 3 * DAY_S + 15, {"a": 2.0})
    assert told(history, "a", T0, T0 + 4 * DAY_S) == {3 * DAY_S: (2.0, 2.0, 2.0)}
    assert history.span() == (T0 + 3 * DAY_S, T0 + 3 * DAY_S + CELL_S)


def test_what_a_wrong_clock_wrote_ahead_of_its_time_never_shows(tmp_path: Path) -> None:
    history = opened(tmp_path)
    put(history, T0 + 15, {"a": 1.0})
    put(history, T0 + 10 * CELL_S + 15, {"a": 99.0})
    put(history, T0 + CELL_S + 15, {"a": 2.0})
    assert told(history, "a") == {0: (1.0, 1.0, 1.0), CELL_S: (2.0, 2.0, 2.0)}
    put(history, T0 + 20 * CELL_S + 15, {"a": 3.0})
    assert list(told(history, "a")) == [0, CELL_S, 20 * CELL_S]


def test_a_clock_that_was_a_month_ahead_costs_no_history(tmp_path: Path) -> None:
    history = opened(tmp_path)
    put(history, T0 + 15, {"a": 1.0})
    put(history, T0 + 30 * DAY_S + CELL_S + 15, {"a": 99.0})
    put(history, T0 + 600 + 15, {"a": 2.0})
    assert told(history, "a") == {0: (1.0, 1.0, 1.0), 600: (2.0, 2.0, 2.0)}


def test_a_tick_that_is_judged_again_after_a_restart_counts_once(tmp_path: Path) -> None:
    history = opened(tmp_path)
    for n, watts in enumerate((1.0, 2.0, 3.0, 4.0)):
        put(history, T0 + 100 * (n + 1), {"a": watts})
    history.close()
    history = opened(tmp_path)
    for n, watts in enumerate((1.0, 2.0, 3.0, 4.0, 6.0)):
        put(history, T0 + 100 * (n + 1), {"a": watts})
    assert told(history, "a") == {0: (1.0, 2.0, 3.0), CELL_S: (4.0, 5.0, 6.0)}


# --- whose row it is ------------------------------------------------------------------------------------------------


def test_rows_follow_ids_when_slots_move(tmp_path: Path) -> None:
    history = opened(tmp_path)
    put(history, T0 + 15, {"a": 1.0, "b": 2.0}, epoch=1)
    put(history, T0 + 30, {"b": 4.0, "c": 9.0, "a": 3.0}, epoch=2)
    assert told(history, "a") == {0: (1.0, 2.0, 3.0)}
    assert told(history, "b") == {0: (2.0, 3.0, 4.0)}
    assert told(history, "c") == {0: (9.0, 9.0, 9.0)}


def test_a_swapped_gpu_never_inherits_the_history_of_the_one_before(tmp_path: Path) -> None:
    history = opened(tmp_path)
    put(history, T0 + 15, {"old": 1.0, "b": 2.0}, epoch=1)
    put(history, T0 + CELL_S + 15, {"new": 7.0, "b": 2.0}, epoch=2)
    assert told(history, "new") == {CELL_S: (7.0, 7.0, 7.0)}
    assert told(history, "old") == {0: (1.0, 1.0, 1.0)}


def test_a_device_under_a_better_id_keeps_its_history(tmp_path: Path) -> None:
    history, beside = opened(tmp_path), History.open(tmp_path, "main")
    put(history, T0 + 15, {"pci:n1:9b": 1.0}, epoch=1)
    assert told(beside, "pci:n1:9b")
    history.rename({"pci:n1:9b": "GPU-9b"})
    put(history, T0 + 30, {"GPU-9b": 3.0}, epoch=2)
    for reader in (history, beside):
        assert told(reader, "GPU-9b") == {0: (1.0, 2.0, 3.0)}
        assert told(reader, "pci:n1:9b") == {}


def test_the_file_grows_with_the_fleet_and_readers_follow(tmp_path: Path) -> None:
    history, beside = opened(tmp_path), History.open(tmp_path, "main")
    for n, count in enumerate((1, 256, 257, 1500)):
        names = ids(count)
        put(history, T0 + 15 * (n + 1), dict.fromkeys(names, float(n)), epoch=n)
        found = beside.read_many("gpu", names, "power_w", T0, T0 + 300)
        assert found.most[0].tolist() == [float(n)] * count
    assert told(beside, "GPU-0") == {0: (0.0, 1.5, 3.0)}
    assert told(beside, "GPU-256") == {0: (2.0, 2.5, 3.0)}


def test_cards_that_come_and_go_for_days_do_not_make_the_file_grow(tmp_path: Path) -> None:
    history = opened(tmp_path)
    for day in range(8):
        put(history, T0 + day * DAY_S, dict.fromkeys([f"d{day}-{n}" for n in range(200)], float(day)), epoch=day)
    size = (tmp_path / "history" / "main" / "gpu.cells").stat().st_size
    for day in range(8, 20):
        put(history, T0 + day * DAY_S, dict.fromkeys([f"d{day}-{n}" for n in range(200)], float(day)), epoch=day)
    assert (tmp_path / "history" / "main" / "gpu.cells").stat().st_size == size
    assert list(told(history, "d19-7", T0, T0 + 20 * DAY_S).values()) == [(19.0, 19.0, 19.0)]
    assert told(history, "d2-7", T0, T0 + 20 * DAY_S) == {}


# --- a file that is not whole ---------------------------------------------------------------------------------------


def damage_head(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(20)
        file.write(b"\xff\xff")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_head(path: Path) -> None:
    os.truncate(path, 100)


def lose_ids(path: Path) -> None:
    path.with_suffix(".ids").unlink()


def damage_ids(path: Path) -> None:
    text = path.with_suffix(".ids").read_bytes()
    path.with_suffix(".ids").write_bytes(text[:-6] + b"zz" + text[-4:])


@pytest.mark.parametrize("harm", [damage_head, cut, cut_head, lose_ids, damage_ids])
def test_a_torn_file_is_put_aside_and_the_history_starts_anew(harm, tmp_path: Path, caplog) -> None:
    history = opened(tmp_path)
    put(history, T0 + 15, {"a": 1.0})
    history.close()
    path = tmp_path / "history" / "main" / "gpu.cells"
    harm(path)
    assert told(History.open(tmp_path, "main"), "a") == {}
    again = opened(tmp_path)
    put(again, T0 + 30, {"a": 2.0})
    assert told(again, "a") == {0: (2.0, 2.0, 2.0)}
    assert path.with_name("gpu.cells.aside").exists() and "starts anew" in caplog.text


def test_other_metrics_start_a_new_file(tmp_path: Path) -> None:
    history = opened(tmp_path)
    put(history, T0 + 15, {"a": 1.0})
    history.close()
    other = History.open(tmp_path, "main", (KEY,), "write")
    put(other, T0 + 30, {"a": 2.0})
    assert told(other, "a") == {0: (2.0, 2.0, 2.0)}


def test_a_file_that_is_taken_away_is_made_anew(tmp_path: Path) -> None:
    history = opened(tmp_path)
    put(history, T0 + 15, {"a": 1.0})
    (tmp_path / "history" / "main" / "gpu.cells").unlink()
    put(history, T0 + 30, {"a": 2.0})
    assert told(history, "a") == {0: (2.0, 2.0, 2.0)}


def test_a_machine_that_went_down_shows_nothing_that_its_disk_may_not_have_had(tmp_path: Path) -> None:
    history = opened(tmp_path)
    for n in range(6):
        put(history, T0 + n * CELL_S + 15, {"a": float(n)})
    history.close()
    with (tmp_path / "history" / "main" / "gpu.cells").open("r+b") as file:
        file.seek(4096 + 256)
        file.write(b"another-boot")
    again = opened(tmp_path)
    put(again, T0 + 5 * CELL_S + 30, {"a": 77.0})
    assert list(told(again, "a")) == [0, CELL_S, 2 * CELL_S, 5 * CELL_S]
    assert told(again, "a")[5 * CELL_S] == (77.0, 77.0, 77.0)


# --- several processes ----------------------------------------------------------------------------------------------


@contextmanager
def writer(folder: Path, start: float) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes tick after tick, once it has begun to."""
    command = [sys.executable, "-m", "tests.backend.history_writer", str(folder), str(start)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    try:
        assert process.stdout is not None and process.stdout.readline() == b"writing\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=10)


def check(found: Range, cut: Collection[float] = ()) -> int:
    """Every cell holds its own values, and but for those that were cut short all rows the same. How many held any."""
    held = 0
    for at, least, mean, most in zip(found.times, found.least, found.mean, found.most, strict=True):
        here = ~np.isnan(mean)
        if here.any():
            own = period_of(at + 1) % 1000 * 1000.0
            assert {*least[here], *most[here], *mean[here]} <= {own, own + 0.5, own + 1.0, own + 1.5, own + 2.0}
            assert at in cut or len({*least[here]}) == len({*most[here]}) == 1, "rows of two different ticks"
            held += 1
    return held


def test_a_writer_that_is_killed_at_any_moment_leaves_no_old_value_in_a_new_cell(tmp_path: Path) -> None:
    history, start, moment = History.open(tmp_path, "main", (KEY,)), T0 + TICK_S, random.Random(7)
    cut: set[float] = set()
    for _ in range(10):
        with writer(tmp_path, start) as process:
            time.sleep(moment.uniform(0.0, 0.25))  # the moment of the kill is what varies
            process.send_signal(signal.SIGKILL)
            process.wait(10)
        span = history.span()
        assert span is not None
        found = history.read_many("gpu", ids(MANY), "power_w", span[0], span[1])
        cut |= {span[1] - CELL_S, span[1]}  # the newest cell, or the one that had just begun
        assert check(found, cut) >= min(found.times.size - 1, CELLS - 1)
        start = span[1] + TICK_S
    again = History.open(tmp_path, "main", (KEY,), "write")
    put(again, start, dict.fromkeys(ids(MANY), value_at(start)), epoch=9)
    assert check(again.read_many("gpu", ids(MANY), "power_w", start - DAY_S, start + 300), cut) > 0
    again.close()


def test_a_reader_beside_a_writer_sees_whole_ticks_and_follows_growth(tmp_path: Path) -> None:
    history = History.open(tmp_path, "main", (KEY,))
    held, many, reads, deadline = 0, False, 0, time.monotonic() + 30
    with writer(tmp_path, T0 + TICK_S):
        while (reads < 150 or not many) and time.monotonic() < deadline:
            span = history.span()
            if span is not None:
                found = history.read_many("gpu", ids(MANY), "power_w", span[1] - 40 * CELL_S, span[1])
                held += check(found)
                many = many or not bool(np.isnan(found.mean[:, FEW:]).all())
                reads += 1
    assert many and held > reads


def test_a_second_writer_is_refused_and_may_write_once_the_first_has_gone(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    put(first, T0 + 15, {"a": 1.0})
    with pytest.raises(OSError, match="another process writes"):
        put(second, T0 + 30, {"a": 2.0})
    first.close()
    put(second, T0 + 30, {"a": 2.0})
    assert told(second, "a") == {0: (1.0, 1.5, 2.0)}


def test_a_reader_never_writes(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="only read"):
        put(History.open(tmp_path, "main"), T0, {"a": 1.0})
    assert not (tmp_path / "history").exists()


# --- a full disk ----------------------------------------------------------------------------------------------------


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process may grow beyond 64 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_an_error_that_passes(tmp_path: Path) -> None:
    history = opened(tmp_path)
    put(history, T0 + 15, {"a": 1.0})
    with full_disk(), pytest.raises(OSError, match="cannot be written"):
        put(history, T0 + 10 * CELL_S + 15, {"a": 2.0})
    assert told(history, "a") == {0: (1.0, 1.0, 1.0)}
    put(history, T0 + 10 * CELL_S + 30, {"a": 3.0})
    assert told(history, "a") == {0: (1.0, 1.0, 1.0), 10 * CELL_S: (3.0, 3.0, 3.0)}


# --- in the pipeline ------------------------------------------------------------------------------------------------


def pulse(bench: Bench) -> Beat:
    with bench.watch.store.read() as session:
        return next(b for b in system.beats(session, "main") if (b.kind, b.name) == ("source", "history"))


def test_every_judged_tick_is_kept_and_the_history_has_a_pulse(sqlite_store: Store, clock: ManualClock) -> None:
    bench = Bench(sqlite_store, clock)
    bench.watch.history = History.open(sqlite_store.folder, "main", mode="write")
    begin = bench.now
    bench.ticks(4)
    card = bench.machine("gpu-001").cards[0]
    found = bench.watch.history.read("gpu", card.uuid, "power_w", begin, bench.now)
    assert found.mean.tolist() == [600.0]
    assert pulse(bench).ok_at is not None and pulse(bench).failing_since is None


def test_a_disk_that_takes_no_history_costs_the_history_alone(sqlite_store: Store, clock: ManualClock) -> None:
    bench = Bench(sqlite_store, clock)
    bench.watch.history = History.open(sqlite_store.folder, "main", mode="write")
    in_the_way = sqlite_store.folder / "history"
    in_the_way.write_text("not a folder")
    node = bench.busy_node()
    bench.ticks(4)
    bench.ticks(6, silent=[(node, 3)])
    assert bench.incident().entity_name == f"{node}/gpu3"
    assert pulse(bench).failing_since is not None and "cannot be written" in pulse(bench).error
    in_the_way.unlink()
    bench.ticks(1)
    assert pulse(bench).failing_since is None and bench.watch.history.span() is not None
