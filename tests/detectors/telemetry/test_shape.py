"""The shape of a GPU's readings: what quiet times teach, and that several small oddities at once are one sign."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from detectors.catalogue import load
from detectors.detector import History
from detectors.model import Finding, Fleet, Tick
from detectors.telemetry.forest import Forest, grow
from detectors.telemetry.shape import KEPT, LEAST, METRICS, F, Shape, ShapeState, quiet_rows
from tests.detectors.fleets import fleet_of

TICK_S = 30.0
BASE = (600.0, 1700.0, 0.6, 0.4, 2e9)


class Run:
    """A job of 4 nodes at work; ``spread`` is the noise of each reading as a share, each its own."""

    def __init__(self, shape: Shape, spread: float = 0.004) -> None:
        self.fleet: Fleet = fleet_of(4)
        self.shape, self.state = shape, shape.start(self.fleet)
        self.rng, self.at, self.spread = np.random.default_rng(7), 1_000_000.0, spread

    def look(self, off: NDArray[np.float64] | None = None, row: int = 5) -> tuple[Finding, ...]:
        n = len(self.fleet.axes["gpu"])
        values = {
            key: base * (1 + self.spread * self.rng.standard_normal(n)) for key, base in zip(METRICS, BASE, strict=True)
        }
        for place, key in enumerate(METRICS):
            if off is not None:
                values[key][row] *= 1 + off[place]
        values["gpu", "utilisation_pct"] = np.full(n, 98.0)
        self.at += TICK_S
        tick = Tick(self.at, values={key: column.astype(np.float32) for key, column in values.items()})
        return self.shape.step(self.state, tick, self.fleet).findings

    def looks(self, times: int, off: NDArray[np.float64] | None = None) -> tuple[Finding, ...]:
        found: tuple[Finding, ...] = ()
        for _ in range(times):
            found = self.look(off)
        return found


def taught(shape: Shape, run: Run) -> Shape:
    return shape.taught(shape.fit(History(quiet=quiet_rows(run.state))), 1)


@pytest.fixture(scope="module")
def quiet() -> Run:
    run = Run(Shape(load()))
    run.looks(330)
    return run


def test_a_lesson_waits_for_a_full_ring_of_quiet_looks(quiet: Run) -> None:
    shape = Shape(load())
    assert shape.lesson(shape.start(quiet.fleet)) is None
    lesson = shape.lesson(quiet.state)
    assert lesson is not None and lesson.quiet.shape == (KEPT, F)


def test_too_few_rows_teach_nothing() -> None:
    with pytest.raises(ValueError, match="too few"):
        Shape(load()).fit(History(quiet=np.zeros((LEAST - 1, F), np.float32)))


def test_a_model_of_other_readings_is_refused(quiet: Run) -> None:
    shape = Shape(load())
    arrays = dict(shape.fit(History(quiet=quiet_rows(quiet.state))))
    with pytest.raises(ValueError, match="without"):
        shape.taught({name: array for name, array in arrays.items() if name != "cut"}, 1)
    with pytest.raises(ValueError, match="other readings"):
        shape.taught({**arrays, "middle": np.zeros(F + 1)}, 1)


def test_what_was_learnt_sees_small_oddities_at_once_that_plain_spread_does_not(quiet: Run) -> None:
    off = np.array([-0.03, -0.03, 0.03, -0.03, 0.03])  # each less than any limit of one reading
    plain, learnt = Run(Shape(load())), Run(taught(Shape(load()), quiet))
    for run in (plain, learnt):
        run.looks(60)
    assert plain.looks(40, off) == ()
    found = learnt.looks(40, off)
    assert [one.kind for one in found] == ["silent_slow_gpu"]
    assert found[0].entity == learnt.fleet.entity("gpu", 5)


def test_a_taught_shape_is_silent_in_quiet_times(quiet: Run) -> None:
    run = Run(taught(Shape(load()), quiet))
    assert all(run.look() == () for _ in range(200))


def test_a_model_does_not_narrow_what_teaches_the_next(quiet: Run) -> None:
    """A fleet that has grown noisier keeps on giving rows."""
    run = Run(taught(Shape(load()), quiet), spread=0.02)
    run.looks(60)
    assert int(run.state.taken[0]) > 100


def test_the_same_rows_grow_the_same_forest_and_it_survives_saving() -> None:
    rows = np.random.default_rng(1).standard_normal((1500, F)).astype(np.float32)
    first, again = grow(rows), Forest.of(grow(rows).arrays())
    assert np.array_equal(first.score(rows), again.score(rows))


def test_a_forest_scores_as_scikit_learn_does_and_finds_what_lies_between_two_crowds() -> None:
    from sklearn.ensemble import IsolationForest

    rng = np.random.default_rng(3)
    rows = np.concatenate([rng.normal(-1, 0.1, (800, F)), rng.normal(1, 0.1, (800, F))]).astype(np.float32)
    theirs = IsolationForest(n_estimators=64, max_samples=256, random_state=0).fit(rows)
    ours = grow(rows)
    asked = rng.normal(0, 1, (50, F)).astype(np.float32)
    np.testing.assert_allclose(ours.score(asked), -theirs.score_samples(asked), rtol=2e-3)
    between = np.zeros((1, F), np.float32)  # its distance from the middle is 0: only the forest finds it odd
    assert ours.score(between)[0] > np.quantile(ours.score(rows), 0.998)


def test_state_of_a_taught_shape_is_that_of_an_untaught_one(quiet: Run) -> None:
    assert isinstance(taught(Shape(load()), quiet).start(quiet.fleet), ShapeState)
