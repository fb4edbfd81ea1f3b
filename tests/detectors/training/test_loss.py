"""Spikes, divergence and numbers that are none: real small runs, and rows where the point is who told first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from detectors.catalogue import load
from detectors.model import Event, Finding, Tick
from detectors.training.loss import Loss
from tests.detectors.training import scenes
from tests.detectors.training.telling import NOWHERE, T0, raised, row, save, ticks_of
from tests.detectors.training.trainer import Plan, train

NAN = float("nan")


def said(events: Iterable[Iterable[Event]]) -> list[Finding]:
    """What stands after the last tick."""
    detector = Loss(load())
    state = detector.start(NOWHERE)
    found: tuple[Finding, ...] = ()
    for place, some in enumerate(events):
        found = detector.step(state, Tick(T0 + place, events=tuple(some)), NOWHERE).findings
    return list(found)


def usual(n: int) -> list[list[Event]]:
    return [[row("r", T0 + i, i, {"loss": 2.0 + 0.01 * (i % 7), "grad_norm": 1.0 + 0.01 * (i % 5)})] for i in range(n)]


@pytest.mark.parametrize("what", scenes.LOUD)
def test_a_fault_that_spoils_the_loss_of_a_real_run_is_raised(what: str) -> None:
    fault = replace(scenes.LOUD[what], at=200)
    steps = train(Plan(scenes.DENSE, steps=230, rate=3e-3, constant=True), 11, fault)
    found = raised([Loss(load())], ticks_of(steps))
    assert found and min(place for place, _ in found) >= 200


def test_nan_names_the_step_the_first_rank_and_the_layer() -> None:
    story = usual(20)
    story.append([row("r", T0 + 20, 20, {"loss": NAN if rank == 3 else 2.0}, rank=rank) for rank in range(4)])
    story[-1] += [row("r", T0 + 20, 20, {"nonfinite": 5.0 if layer >= 2 else 0.0}, layer=layer) for layer in range(4)]
    story.append([row("r", T0 + 21, 21, {"loss": NAN}, rank=rank) for rank in range(4)])
    (found,) = said(story)
    assert found.kind == "nan_loss"
    assert "at step 20: first on rank 3, layer 2 is suspect" in found.reason


def test_of_broken_gradients_the_highest_layer_below_a_sound_one_is_where_it_began() -> None:
    norms = {layer: 1.0 if layer == 3 else NAN for layer in range(4)}
    story = [*usual(20), [row("r", T0 + 20, 20, {"grad_norm": value}, layer=layer) for layer, value in norms.items()]]
    (found,) = said(story)
    assert "layer 2 is suspect" in found.reason


def test_single_overflows_of_a_scaled_loss_are_its_way_and_many_in_a_row_are_not() -> None:
    def story(overflows: int) -> list[list[Event]]:
        values = {"loss": 2.0, "grad_norm": float("inf"), "loss_scale": 4096.0}
        return [*usual(20), *[[row("r", T0 + 20 + i, 20 + i, values)] for i in range(overflows)]]

    assert not said(story(3))
    assert [f.kind for f in said(story(9))] == ["nan_loss"]


def test_advice_names_the_save_before_and_the_batches_to_leave_out() -> None:
    story = usual(200)
    for step in (50, 100, 150):
        story[step].append(save("r", T0 + step, step))
    story.append([row("r", T0 + 200, 200, {"loss": 40.0})])
    (found,) = said(story)
    assert found.kind == "loss_spike"
    assert "save of step 150" in found.reason and "leave out steps 100 to 300" in found.reason


def test_after_a_rollback_the_same_steps_are_judged_again_and_the_old_window_is_no_measure() -> None:
    story = usual(200)
    again = [[row("r", T0 + 300 + i, 60 + i, {"loss": 3.0, "grad_norm": 1.0})] for i in range(80)]
    assert not said([*story, *again])


def test_one_gradient_that_jumps_is_counted_and_not_told() -> None:
    story = usual(200)
    story.append([row("r", T0 + 200, 200, {"loss": 2.0, "grad_norm": 30.0})])
    assert not said([*story, *[[row("r", T0 + 201 + i, 201 + i, {"loss": 2.03, "grad_norm": 1.0})] for i in range(9)]])
