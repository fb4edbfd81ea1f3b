"""States are arrays that can be saved, refused when they do not fit, and follow their rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from detectors.catalogue import load
from detectors.columns import asked, cell, column, measures
from detectors.detector import arrays_of, carried, rows_from, state_from
from detectors.model import Entity, Tick
from detectors.registry import detectors
from detectors.wording import counted, number, subject
from tests.detectors.fleets import fleet_of


@dataclass
class Toy:
    level: NDArray[np.float64]


def test_a_state_goes_through_its_arrays_unchanged() -> None:
    fleet = fleet_of(2)
    for detector in detectors(load()):
        state = detector.start(fleet)
        again = state_from(detector.start(fleet), arrays_of(state))
        for name, array in arrays_of(state).items():
            np.testing.assert_array_equal(arrays_of(again)[name], array)
            assert arrays_of(again)[name] is not array


def test_objects_are_no_state() -> None:
    with pytest.raises(TypeError, match="level"):
        arrays_of(Toy(np.array(["a", None], object)))
    with pytest.raises(TypeError, match="level"):
        arrays_of(Toy([1.0]))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dict"):
        arrays_of({})


@pytest.mark.parametrize("saved", [{}, {"level": np.array(["x"])}, {"level": np.zeros((2, 2))}])
def test_a_saved_state_that_does_not_fit_is_refused_by_name(saved: dict[str, NDArray[np.generic]]) -> None:
    with pytest.raises(ValueError, match="Toy does not fit: level"):
        state_from(Toy(np.zeros(1)), saved)


def test_a_saved_table_of_another_shape_is_refused() -> None:
    kernel = detectors(load())[0]
    with pytest.raises(ValueError, match="rows"):
        state_from(kernel.start(fleet_of(1)), {"rows": np.zeros(1, [("a", "f8")])})


def test_rows_follow_their_ids() -> None:
    old, new = fleet_of(1, 4).axes["gpu"], fleet_of(2, 3).axes["gpu"]
    rows = rows_from(old, new)
    assert rows.tolist() == [0, 1, 2, -1, -1, -1]
    assert carried(np.array([5.0, 6.0]), rows, np.nan)[:2].tolist() == [5.0, 6.0]
    assert np.isnan(carried(np.array([5.0, 6.0]), rows, np.nan)[2:]).all()
    assert rows_from(None, old).tolist() == [-1] * 4


def test_columns_that_are_missing_or_short_read_as_not_asked() -> None:
    key = ("gpu", "power_w")
    tick = Tick(0.0, {key: np.array([1.0, np.inf, 3.0], np.float32)}, {key: np.array([True, True, False])})
    assert asked(tick, key, 4).tolist() == [True, True, False, False]
    assert column(tick, key, 2)[0] == 1.0 and np.isnan(column(tick, key, 2)[1])
    assert (cell(tick, key, 0), cell(tick, key, 2), cell(tick, key, 9), cell(tick, ("gpu", "x"), 0)) == (
        1,
        None,
        None,
        None,
    )
    assert measures(tick, [key]) and not measures(tick, [("gpu", "x")]) and not measures(Tick(0.0), [key])


def test_findings_speak_of_devices_in_one_voice() -> None:
    gpu = Entity("main", "gpu", "GPU-1", "gpu-0412/gpu3", "gpu-0412")
    assert subject(gpu) == "GPU 3 of gpu-0412"
    assert subject(Entity("main", "gpu", "GPU-1", "", "gpu-0412")) == "GPU GPU-1 of gpu-0412"
    assert subject(Entity("main", "node", "gpu-0412")) == "A GPU of gpu-0412"
    assert (number(1980.4), number(-0.2), counted(1, "GPU"), counted(8, "GPU")) == ("1,980", "0", "1 GPU", "8 GPUs")
