"""The fleet's own quiet looks become a model on a schedule of ticks; it is kept, taken up again, and shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sqlmodel import col, select

from backend import teaching
from backend.clock import ManualClock, unix
from backend.model.learning import ModelArtifact
from backend.store.arrays import pack
from backend.store.engine import Store
from backend.watch import Watch
from detectors.model import Tick
from detectors.telemetry.shape import KEPT, F, Shape
from tests.backend.bench import Bench

NAME = "telemetry/shape"
DAY_S = 86_400.0


@pytest.fixture
def watch(sqlite_store: Store, clock: ManualClock) -> Watch:
    return Bench(sqlite_store, clock).watch


def shape_of(watch: Watch) -> Shape:
    return next(one for one in watch.detectors if isinstance(one, Shape))


def saw_quiet(watch: Watch) -> None:
    state: Any = watch.states[NAME]
    state.quiet[:] = np.random.default_rng(2).normal(0, 0.004, (KEPT, F)).astype(np.float32)
    state.taken[0] = KEPT


def learnt_at(watch: Watch, at: float) -> list[ModelArtifact]:
    made = watch.learn(Tick(at))
    with watch.store.write() as session:
        watch.keep(session, made)
        watch.save(session, watch.clock.now())
    return made


def kept(watch: Watch) -> list[tuple[int, int]]:
    with watch.store.read() as session:
        rows = session.exec(select(ModelArtifact).order_by(col(ModelArtifact.version)))
        return [(row.version, row.n) for row in rows if row.name == NAME]


def test_nothing_is_learnt_before_there_was_enough_quiet(watch: Watch) -> None:
    assert learnt_at(watch, unix(watch.clock.now())) == []
    assert shape_of(watch).learnt is None


def test_a_lesson_is_used_at_once_kept_and_not_repeated_within_the_day(watch: Watch) -> None:
    saw_quiet(watch)
    at = unix(watch.clock.now())
    learnt_at(watch, at)
    learnt_at(watch, at + DAY_S / 2)
    assert kept(watch) == [(1, KEPT)]
    model = shape_of(watch).learnt
    assert model is not None and model.version == 1
    learnt_at(watch, at + DAY_S)
    assert [version for version, _ in kept(watch)] == [1, 2]


def test_a_new_process_takes_up_the_newest_model(watch: Watch, sqlite_store: Store, clock: ManualClock) -> None:
    saw_quiet(watch)
    learnt_at(watch, unix(clock.now()))
    again = Bench(sqlite_store, clock).watch
    model, before = shape_of(again).learnt, shape_of(watch).learnt
    assert model is not None and before is not None and model.version == 1
    assert np.array_equal(model.whiten, before.whiten)
    assert again.learn(Tick(unix(clock.now()) + 60)) == []


def test_a_model_of_another_release_is_left_alone_and_learnt_anew(
    watch: Watch, sqlite_store: Store, clock: ManualClock
) -> None:
    saw_quiet(watch)
    row = learnt_at(watch, unix(clock.now()))[0]
    with sqlite_store.write() as session:
        found = session.exec(select(ModelArtifact).where(col(ModelArtifact.version) == 1)).one()
        found.arrays = pack({"middle": np.zeros(F)})
    again = Bench(sqlite_store, clock).watch
    assert row.version == 1 and shape_of(again).learnt is None
    saw_quiet(again)
    assert [one.version for one in again.learn(Tick(unix(clock.now()) + 60))] == [2]


def test_rows_that_cannot_be_learnt_cost_nothing_but_the_lesson(watch: Watch) -> None:
    saw_quiet(watch)
    watch.states[NAME].quiet[:] = np.nan
    assert learnt_at(watch, unix(watch.clock.now())) == []
    assert shape_of(watch).learnt is None


def test_words_say_what_was_learnt_and_what_is_missing() -> None:
    assert "not learnt yet" in teaching.words(None)
    row = ModelArtifact(cluster="main", name=NAME, version=3, n=4096, facts={"every_s": DAY_S}, arrays=b"")
    assert teaching.words(row) == (
        "What GPUs look like in health: version 3, from 4,096 quiet looks; learnt anew every 24 h."
    )
