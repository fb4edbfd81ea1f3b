"""Attention and routers of real small runs: raised by layer, long before the loss tells."""

from __future__ import annotations

import pytest

from detectors.catalogue import load
from detectors.training.bands import Bands
from detectors.training.signals import load as signals
from tests.detectors.training import scenes
from tests.detectors.training.model import Shape
from tests.detectors.training.telling import raised, ticks_of
from tests.detectors.training.trainer import Fault, Plan, train


@pytest.mark.parametrize(
    ("fault", "shape", "kind"),
    [
        (scenes.ATTENTION["attention weights cut to 1 bit"], scenes.DENSE, "attention_instability"),
        (scenes.ROUTER["router drawn together by half"], scenes.MIXTURE, "router_collapse"),
    ],
)
def test_a_layer_whose_computation_goes_wrong_leaves_its_band_and_is_named(
    fault: Fault, shape: Shape, kind: str
) -> None:
    plan = Plan(shape, steps=680, rate=3e-3, constant=True)
    found = raised([Bands(load(), signals())], ticks_of(train(plan, 302, fault)))
    assert [f.kind for _, f in found[:1]] == [kind]
    place, first = found[0]
    assert 600 <= place <= 640 and "of layer 0" in first.reason
    assert "No threshold holds for every model" in first.reason and "save of step 600" in first.reason or place == 600


def test_warm_up_decay_and_a_restart_raise_nothing() -> None:
    plan = Plan(scenes.DENSE, steps=900, rate=3e-3, warm=300, restarts=(620,))
    assert not raised([Bands(load(), signals())], ticks_of(train(plan, 401)))
