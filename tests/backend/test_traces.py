"""What a run told is read back whole: its curves, layers and signals, and how often it went back."""

from __future__ import annotations

import math
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend import traces
from backend.facts import StepFacts
from backend.trained import Trained
from backend.web.run_training import departures

T = 1_772_366_400.0


def rows(steps: list[int], **more: float) -> list[StepFacts]:
    return [StepFacts(T + 5 * n, "r", "7", step, 2.0, step_time_s=5.0, attrs=more) for n, step in enumerate(steps)]


def test_signals_of_runs_and_layers_come_back_with_their_names(tmp_path: Path) -> None:
    trained = Trained(tmp_path)
    layer: dict[str, float | str] = {"layer": 3.0, "qk_entropy": 2.5, "note": "text is no signal"}
    odd: dict[str, float | str] = {"layer": "model.norm", "qk_entropy": "nan"}
    trained.append(
        [*rows([1, 2], ess=0.8), StepFacts(T + 1, "r", "7", 1, attrs=layer), StepFacts(T + 2, "r", "7", 1, attrs=odd)]
    )
    trained.append(rows([3], ess=0.7, kl=0.1))
    folders = trained.folders("r", (), T, T + 99)
    assert traces.signals_in(folders) == {"ess": False, "qk_entropy": True, "kl": False}
    cells = traces.cells_of(folders, "qk_entropy", T, T + 99)
    assert [cells.layers[place] for place in cells.layer.tolist()] == ["3", "model.norm"]
    assert cells.value[0] == 2.5
    assert math.isnan(cells.value[1])
    assert len(trained.trace(folders, T, T + 99)) == 3, "rows of layers are no steps of the run"
    assert len(traces.cells_of(folders, "ess", T, T + 99)) == 3


def test_a_segment_torn_by_a_crash_is_read_up_to_its_last_whole_record(tmp_path: Path) -> None:
    trained = Trained(tmp_path)
    trained.append(rows([1, 2], ess=0.8))
    (folder,) = trained.folders("r", (), T, T + 99)
    for name in ("cells", "steps"):
        with (folder / name).open("ab") as file:
            file.write(b"torn")
    trained.append(rows([3], ess=0.5))
    assert sorted(traces.cells_of([folder], "ess", T, T + 99).value.tolist()) == [0.5, 0.8, 0.8]


@pytest.mark.parametrize("torn", [b'"', b'"ent', b'"a"b"', b'"kl"', b"\xff\n"])
def test_a_name_torn_by_a_crash_costs_no_other_name_and_no_push(tmp_path: Path, torn: bytes) -> None:
    trained = Trained(tmp_path)
    trained.append(rows([1], ess=0.8))
    (folder,) = trained.folders("r", (), T, T + 99)
    with (folder / "names").open("ab") as file:
        file.write(torn)
    assert traces.signals_in([folder]) == {"ess": False}
    trained.append(rows([2], kl=0.1, ess=0.7))
    trained.append(rows([3], kl=0.2))
    assert traces.signals_in([folder]) == {"ess": False, "kl": False}
    assert traces.cells_of([folder], "ess", T, T + 99).value.tolist() == [0.8, 0.7]
    assert traces.cells_of([folder], "kl", T, T + 99).value.tolist() == [0.1, 0.2]


def test_a_row_that_was_told_twice_is_one_and_one_that_says_more_is_another(tmp_path: Path) -> None:
    trained = Trained(tmp_path)
    same = [StepFacts(T, "r", "7", 1, 2.0, rank=rank) for rank in (0, 1, 2)]
    trained.append([*rows([1, 2, 3, 4, 5]), *same])
    trained.append([*rows([1, 2, 3, 4, 5]), *same])
    trained.append([StepFacts(T, "r", "7", 1, grad_norm=0.5)])
    trace = trained.trace(trained.folders("r", (), T, T + 99), T, T + 99)
    assert len(trace) == 9
    assert sorted(trace.rank.tolist()) == [-1] * 6 + [0, 1, 2]


def test_the_cells_of_a_page_are_bounded_and_the_newest_are_kept(tmp_path: Path) -> None:
    trained = Trained(tmp_path)
    layer: dict[str, float | str] = {"layer": 3.0, "qk_entropy": 2.5}
    trained.append([StepFacts(T + n, "r", "7", n, attrs=layer) for n in range(50)])
    folders = trained.folders("r", (), T, T + 99)
    assert traces.cells_of(folders, "qk_entropy", T, T + 99, 10).step.tolist() == list(range(40, 50))


def test_many_layers_are_grouped_once_and_take_no_text_of_each_value() -> None:
    n = 480_000
    layer = np.arange(n) % 480
    at, none = np.arange(n, dtype=np.float64), np.full(n, -1, np.int32)
    cells = traces.Cells(at, at.astype(np.int64), none, layer, np.cos(at), tuple(f"layer.{k}" for k in range(480)))
    began = process_time()
    far, table = departures(cells, sorted(cells.layers))
    assert process_time() - began < 1.0
    assert len(table) == 480
    one = np.abs(far[layer == 7])
    assert np.median(one) == pytest.approx(1 / 1.4826, rel=0.01), "half are within one median deviation"


def test_steps_that_go_back_are_counted_as_work_done_again(tmp_path: Path) -> None:
    trained = Trained(tmp_path)
    trained.append(rows([100, 110, 120, 101, 111, 121, 131, 121, 131]))
    trace = trained.trace(trained.folders("r", (), T, T + 999), T, T + 999)
    first, second = traces.rollbacks(trace)
    assert (first.reached, first.to, first.steps, first.lost_s) == (120, 100, 20, 10.0)
    assert (second.reached, second.to, second.steps) == (131, 120, 11)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=40))
def test_what_was_done_again_is_the_sum_of_all_falls(steps: list[int]) -> None:
    at = np.arange(len(steps), dtype=np.float64)
    none = np.full(len(steps), np.nan)
    trace = traces.Trace(at, np.array(steps, np.int64), np.full(len(steps), -1, np.int32), none, none, none, none)
    falls = sum(max(0, a - b + 1) for a, b in zip(steps, steps[1:], strict=False) if b < a)
    assert sum(back.steps for back in traces.rollbacks(trace)) == falls
