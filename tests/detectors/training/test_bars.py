"""The bars of the training family on many seeds, by hand: ``make test-training`` (40 minutes on one core)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.detectors.training import scenes
from tests.detectors.training.model import Shape
from tests.detectors.training.score import FIRST
from tests.detectors.training.trainer import Fault

pytestmark = pytest.mark.slow
SEEDS, HEALTHY = 20, 52


@pytest.mark.parametrize(("faults", "shape"), [(scenes.ATTENTION, scenes.DENSE), (scenes.ROUTER, scenes.MIXTURE)])
def test_faults_of_attention_and_routers_are_raised_three_times_earlier_than_by_the_loss(
    faults: Mapping[str, Fault], shape: Shape
) -> None:
    for what, fault in faults.items():
        leads = [scenes.lead(seed, fault, shape) for seed in range(FIRST, FIRST + SEEDS)]
        assert np.median([lead.factor for lead in leads]) >= 3, what
        assert np.mean([lead.ours is not None or lead.loss is not None for lead in leads]) >= 0.9, what


@pytest.mark.parametrize("what", scenes.LOUD)
def test_what_spoils_the_loss_is_always_raised(what: str) -> None:
    leads = [scenes.lead(seed, scenes.LOUD[what], scenes.DENSE, 900) for seed in range(FIRST, FIRST + SEEDS)]
    assert all(lead.loss is not None for lead in leads)


def test_healthy_runs_raise_at_most_one_alarm_in_100000_steps() -> None:
    steps = alarms = 0
    for seed in range(FIRST, FIRST + HEALTHY):
        for experts in (False, True):
            n, found = scenes.false_alarms(seed, experts=experts)
            steps += n
            alarms += sum(len(reasons) for reasons in found.values())
    assert steps >= 300_000
    assert alarms <= steps / 100_000, alarms
