"""The small figure of a mail: drawn without a browser, bounded, and honest about gaps."""

from __future__ import annotations

import io
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from frontend.mail.figure import SCALE, WIDTH, figure, thinned, words_of

LINE = ("Power", "W", tuple((1000.0 + n, float(n % 7)) for n in range(50)))


def test_it_is_a_small_png_of_one_width_and_the_same_bytes_each_time() -> None:
    made = figure([LINE], [(1010.0, "Xid 79")])
    assert made == figure([LINE], [(1010.0, "Xid 79")])
    assert Image.open(io.BytesIO(made)).width == WIDTH * SCALE and len(made) < 20_000


@pytest.mark.parametrize(
    ("curves", "moments"), [([], []), ([], [(1.0, "alone")]), ([("dark", "W", ((1.0, math.nan),))], [])]
)
def test_nothing_to_draw_is_no_picture(curves: list[object], moments: list[tuple[float, str]]) -> None:
    assert figure(curves, moments) == b""  # type: ignore[arg-type]  # lists of tuples


def test_a_spike_of_one_sample_survives_and_a_gap_stays_a_gap() -> None:
    points = [(float(n), 0.0) for n in range(10_000)]
    points[4321], points[7000] = (4321.0, 99.0), (7000.0, math.nan)
    kept = thinned(points)
    assert (4321.0, 99.0) in kept and len(kept) < 1500
    assert any(math.isnan(value) for _, value in kept)


def test_the_figure_is_told_in_words_too() -> None:
    assert words_of([LINE], [(1010.0, "Xid 79")]) == "Power: 0 to 0 W. 00:16:50 Xid 79"


NUMBERS = st.floats(-1e12, 1e12) | st.just(math.nan)
POINTS = st.lists(st.tuples(st.floats(0, 4e9), NUMBERS), max_size=30).map(lambda found: tuple(sorted(found)))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=8), POINTS), max_size=4), st.lists(st.tuples(st.floats(0, 4e9), st.text(max_size=80)), max_size=8))  # fmt: skip  # noqa: E501
def test_anything_is_drawn_or_left_out(curves: list[object], moments: list[tuple[float, str]]) -> None:
    made = figure(curves, moments)  # type: ignore[arg-type]  # lists of tuples
    assert made == b"" or Image.open(io.BytesIO(made)).height < 1000
