"""Wilson, exact Poisson, order statistics and the cluster bootstrap against published and worked values."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.reliability.intervals import bootstrap, mean, quantile, rate, share, wilson


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_newcombes_published_values(k: int, n: int, low: float, high: float) -> None:
    found = wilson(k, n)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-5)


def test_all_of_n_mirrors_none_of_n() -> None:
    none, every = wilson(0, 20), wilson(20, 20)
    assert none is not None and every is not None
    assert (every.low, every.high) == pytest.approx((1 - none.high, 1.0))


def test_nothing_of_nothing_has_neither_value_nor_interval() -> None:
    empty = share([], [], 0, 10)
    assert (empty.value, empty.interval, empty.by_run, empty.n) == (None, None, None, 0)


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0.0, 3.6889), (1, 0.0253, 5.5716), (10, 4.7954, 18.3904)])
def test_exact_poisson_gives_the_tabled_bounds(count: int, low: float, high: float) -> None:
    found = rate(count, 1.0).interval
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


def test_no_event_in_ten_days_bounds_the_rate_by_a_tenth() -> None:
    found = rate(0, 10.0)
    assert found.value == 0.0 and found.interval is not None
    assert found.interval.high == pytest.approx(0.36889, abs=1e-5)


def test_no_exposure_gives_no_rate() -> None:
    assert rate(3, 0.0).value is None and rate(3, 0.0).interval is None


def test_five_values_cannot_bound_their_median_and_six_can() -> None:
    five, six = quantile([1, 2, 3, 4, 5], 0.5), quantile([6, 5, 4, 3, 2, 1], 0.5)
    assert (five.value, five.low, five.high) == (3, None, None)
    assert (six.value, six.low, six.high) == (3, 1, 6)  # 1 - 2 / 2^6 = 96.9 %


def test_of_ten_values_the_second_and_the_ninth_bound_the_median() -> None:
    ten = quantile(list(range(1, 11)), 0.5)
    assert (ten.value, ten.low, ten.high) == (5, 2, 9)  # 97.9 %


def test_the_longest_of_n_has_no_upper_bound() -> None:
    longest = quantile([3.0, 9.0, 4.0], 1.0)
    assert (longest.value, longest.high) == (9.0, None)
    assert quantile([], 0.5).value is None


def test_runs_that_hit_or_miss_as_a_whole_widen_the_share() -> None:
    hits = [True] * 50 + [False] * 50
    apart, together = (share(hits, [f"r{i // size}" for i in range(100)], 0, 2000) for size in (1, 10))
    assert apart.by_run is None and apart.interval is not None and together.by_run is not None
    assert together.by_run.high - together.by_run.low > 2 * (apart.interval.high - apart.interval.low)


def test_few_runs_or_one_outcome_have_no_bootstrap() -> None:
    assert share([True, False] * 4, ["a", "b"] * 4, 0, 100).by_run is None
    assert share([True] * 20, [f"r{i // 2}" for i in range(20)], 0, 100).by_run is None
    assert mean([1.0, 2.0], ["a", "b"], 0, 100).interval is None
    assert mean([], [], 0, 100).value is None


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 10), st.sampled_from("abcdef")), min_size=6, max_size=20), st.randoms())
def test_the_bootstrap_is_seeded_and_blind_to_order(rows: list[tuple[float, str]], dice: object) -> None:
    shuffled = list(rows)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    once, again = (bootstrap([v for v, _ in r], [g for _, g in r], 7, 50) for r in (rows, shuffled))
    assert once == again
