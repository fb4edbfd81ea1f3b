"""Fewer points for the same line: no spike is lost, whatever is left out."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.figures.decimate import binned, kept

FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=32)


@settings(max_examples=80, deadline=None)
@given(values=st.lists(FLOATS, min_size=1, max_size=600), most=st.integers(10, 80))
def test_lowest_and_highest_of_every_stretch_are_kept_and_the_order_too(values: list[float], most: int) -> None:
    array = np.array(values, np.float64)
    places = kept(array, most)
    assert len(places) <= max(most, 0) or len(array) <= most
    assert (np.diff(places) > 0).all()
    assert places[0] == 0
    assert places[-1] == len(array) - 1
    width = 1 if len(array) <= most else -(-len(array) // ((most - 2) // 4))
    for start in range(0, len(array), width):
        piece = array[start : start + width]
        good = piece[np.isfinite(piece)]
        shown = array[places[(places >= start) & (places < start + width)]]
        if good.size:
            finite = shown[np.isfinite(shown)]
            assert finite.min() == good.min()
            assert finite.max() == good.max()
        assert np.isnan(piece).any() == np.isnan(shown).any()
        assert np.isinf(piece).any() == np.isinf(shown).any()


def test_one_spike_among_a_million_steps_is_drawn() -> None:
    values = np.full(1_000_000, 2.0)
    values[777_777], values[123_456] = 9.0, np.nan
    shown = values[kept(values)]
    assert len(shown) <= 2_400
    assert shown[np.isfinite(shown)].max() == 9.0
    assert np.isnan(shown).sum() == 1


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), size=st.integers(0, 300))
def test_a_map_shows_the_highest_of_each_cell(seed: int, size: int) -> None:
    dice = np.random.default_rng(seed)
    rows, at, values = dice.integers(-1, 5, size), dice.uniform(-1, 11, size), dice.normal(size=size)
    cells = binned(rows, at, values, (4, 6), 0.0, 10.0)
    for row in range(4):
        for column in range(6):
            inside = (rows == row) & (at >= 0) & (at <= 10) & (np.minimum(at / 10 * 6, 5).astype(int) == column)
            expected = values[inside].max() if inside.any() else np.nan
            np.testing.assert_allclose(cells[row, column], expected, rtol=1e-6)
