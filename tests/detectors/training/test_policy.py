"""A sampler that gets no new weights: told before reward or loss move."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.catalogue import load
from detectors.model import Tick
from detectors.training.policy import Policy
from detectors.training.probe import Probe
from tests.detectors.training.ranks import sampled
from tests.detectors.training.telling import NOWHERE, T0, raised, row, save


def told(seed: int, at: int, steps: int) -> tuple[dict[str, int], int]:
    """By kind the step it was raised at; the first step at which reward or loss left six deviations of its last 128."""
    detector = Policy(load())
    state, found, moved = detector.start(NOWHERE), dict[str, int](), steps + 1
    past: dict[str, list[float]] = {"loss": [], "reward": []}
    for step, tick in enumerate(sampled(seed, at, steps), 1):
        for finding in detector.step(state, tick, NOWHERE).findings:
            what = finding.kind if finding.kind == "async_rl_stale" else f"{finding.kind} {finding.evidence[0].what}"
            found.setdefault(what, step)
            for piece in finding.evidence:
                found.setdefault(piece.what, step)
        for name, values in past.items():
            value = float(tick.events[0].attrs[name])
            window = np.array(values[-128:])
            if step >= at and abs(value - window.mean()) > 6 * window.std(ddof=1):
                moved = min(moved, step)
            values.append(value)
    return found, moved


@pytest.mark.parametrize("seed", range(3))
def test_a_sampler_left_behind_is_told_before_reward_or_loss_move(seed: int) -> None:
    found, moved = told(seed, 150, 400)
    assert 150 <= found["async_rl_stale"] <= 170
    assert 150 <= found["ess"] < moved


def test_a_sampler_in_step_raises_nothing() -> None:
    assert told(5, 10**6, 200) == ({}, 201)


def test_a_probe_that_breaks_its_forecast_names_the_last_accepted_snapshot() -> None:
    def story(broken: bool) -> list[Tick]:
        ticks = []
        for step in range(0, 2000, 50):
            at, ill = T0 + step, broken and step >= 1500
            value = 3.0 * 0.999**step + 0.003 * np.sin(step) + (0.3 if ill else 0.0)
            events = [row("r", at, step, {"val_loss": value})] + ([save("r", at, step)] if step % 200 == 0 else [])
            ticks.append(Tick(at, events=tuple(events)))
        return ticks

    assert not raised([Probe(load())], ((None, tick) for tick in story(False)))  # type: ignore[misc]
    (found,) = raised([Probe(load())], ((None, tick) for tick in story(True)))  # type: ignore[misc]
    assert "save of step 1,400: roll back to it" in found[1].reason
