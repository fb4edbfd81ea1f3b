"""Published numbers and a simulation hold the formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from backend.reliability.expected import (
    daly_first_s,
    daly_s,
    effective_share,
    expected_ettr,
    mttf_s,
    standbys,
    young_s,
)

MINUTE = 60.0


@pytest.mark.parametrize(
    ("nodes", "per_1000", "restart_min", "every_min", "share"),
    [
        (2000, 6.5, 5, 60, 0.684),
        (2000, 6.5, 5, 5, 0.932),
        (1000, 6.5, 5, 30, 0.910),
        (12_500, 2.34, 2, 2, 0.939),
        (12_500, 6.5, 5, 7, 0.520),
    ],
)
def test_expected_ettr_is_the_published_one(
    nodes: int, per_1000: float, restart_min: float, every_min: float, share: float
) -> None:
    found = expected_ettr(mttf_s(nodes, per_1000 / 1000), restart_min * MINUTE, every_min * MINUTE)
    assert found == pytest.approx(share, abs=0.001)


@pytest.mark.parametrize(("gpus", "hours"), [(16_384, 1.80), (131_072, 0.225), (1_024, 28.8)])
def test_the_mttf_of_one_rate_is_the_published_one(gpus: int, hours: float) -> None:
    assert mttf_s(gpus / 8, 6.5e-3) / 3600 == pytest.approx(hours, rel=0.005)


def test_the_interval_is_young_s_and_daly_s() -> None:
    d, m = 5 * MINUTE, 110.77 * MINUTE
    assert young_s(d, m) / MINUTE == pytest.approx(33.28, abs=0.005)
    assert daly_first_s(d, m) / MINUTE == pytest.approx(28.28, abs=0.005)
    assert daly_s(d, m) / MINUTE == pytest.approx(30.03, abs=0.005)
    assert daly_s(3 * m, m) == m
    assert math.isinf(daly_s(d, math.inf))


@pytest.mark.parametrize(("nodes", "spare"), [(128, 2), (256, 2), (512, 3), (1024, 4)])
def test_standbys_are_the_published_ones(nodes: int, spare: int) -> None:
    assert standbys(nodes, 0.0012) == spare


def test_stalls_leave_the_published_share() -> None:
    assert effective_share(18 * MINUTE, 10 * MINUTE) == pytest.approx(0.444, abs=0.001)
    assert effective_share(18 * MINUTE, 3 * MINUTE) == pytest.approx(0.833, abs=0.001)


@pytest.mark.parametrize(
    ("mttf_min", "restart_min", "every_min", "write_min"),
    [(600, 5, 30, 0), (600, 5, 60, 2), (1440, 10, 30, 1), (300, 3, 15, 0.5)],
)
def test_a_simulation_agrees_within_five_percent(
    mttf_min: float, restart_min: float, every_min: float, write_min: float
) -> None:
    rng = np.random.default_rng(5)
    lives = rng.exponential(mttf_min, 200_000)
    stepping = np.maximum(0.0, lives - restart_min)
    kept = np.floor(stepping / (every_min + write_min)) * every_min
    simulated = kept.sum() / lives.sum()
    assert expected_ettr(mttf_min, restart_min, every_min, write_min) == pytest.approx(simulated, rel=0.05)
