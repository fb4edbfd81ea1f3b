"""Healthy GPUs over a day, from spans."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.answers.healthy_day import Span, sweep

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
START = NOW - timedelta(hours=24)


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def span(gpus: int, start: float, end: float | None, first: int = 0) -> Span:
    return Span(
        frozenset(("n1", first + i) for i in range(gpus)), at(start), at(end) if end is not None else None, "lost"
    )


def test_a_calm_day_is_one_step() -> None:
    assert [(s.at, s.healthy) for s in sweep([], START, NOW, 8)] == [(START, 8)]


def test_each_change_is_a_step_at_its_own_time() -> None:
    steps = sweep([span(1, 2, 5), span(2, 3, None, first=1)], START, NOW, 8)
    assert [(s.at, s.healthy) for s in steps] == [(START, 8), (at(2), 7), (at(3), 5), (at(5), 6)]
    assert steps[-1].why == "lost: over"


def test_a_gpu_that_is_out_twice_counts_once() -> None:
    steps = sweep([span(8, 2, 10), span(1, 4, 6)], START, NOW, 8)
    assert [s.healthy for s in steps] == [8, 0, 8]


def test_what_was_out_before_the_day_is_out_at_its_start() -> None:
    steps = sweep([span(3, -5, 1)], START, NOW, 8)
    assert [(s.at, s.healthy) for s in steps] == [(START, 5), (at(1), 8)]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(-2, 24), st.integers(0, 30)), max_size=20))
@settings(max_examples=60, deadline=None)
def test_never_below_zero_never_above_the_fleet_and_always_in_order(rows: list[tuple[int, int, int]]) -> None:
    spans = [span(1, start, start + length if length else None, first=gpu) for gpu, start, length in rows]
    steps = sweep([s for s in spans if s.start <= NOW], START, NOW, 8)
    assert all(0 <= s.healthy <= 8 for s in steps)
    assert [s.at for s in steps] == sorted(s.at for s in steps)
