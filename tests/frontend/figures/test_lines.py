"""Lanes, healthy GPUs and ages: figures that plotly.py accepts, honest about gaps and hostile text."""

from __future__ import annotations

import numpy as np
import orjson

from frontend.figures.age import YOUNGEST_S, Age, ages
from frontend.figures.healthy import floor, healthy
from frontend.figures.lanes import Event, Lane, Level, Series, Story, lanes
from frontend.figures.theme import themes, tokens

THEMES = themes(tokens())
STORY = Story(
    1000.0,
    2000.0,
    1200.0,
    (
        Lane("Kernel log of n1", (Event(1200.0, "Xid 79"), Event(1500.0, "Xid 45"))),
        Lane("Silence: n1 GPU 3", levels=(Level(1210.0, 2000.0, "GPU 3: no data", True),)),
        Lane("Power, W", series=Series(np.array([1000.0, 1100.0]), np.array([660, np.nan], np.float32))),
    ),
)


def test_lanes_share_one_time_axis_and_one_line_of_the_first_cause() -> None:
    figure = lanes(STORY, THEMES["light"], narrow=False)
    assert figure["layout"]["xaxis"]["range"] == [1_000_000.0, 2_000_000.0]
    through = [s for s in figure["layout"]["shapes"] if s.get("yref") == "paper"]
    assert len(through) == 1 and through[0]["x0"] == 1_200_000.0 and through[0]["line"]["dash"] == "dot"


def test_absence_is_a_grey_block_with_words() -> None:
    figure = lanes(STORY, THEMES["light"], narrow=False)
    grey = [s for s in figure["layout"]["shapes"] if s.get("fillcolor") == THEMES["light"]["fig-grid"]]
    assert len(grey) == 1
    assert any("no data" in a["text"] for a in figure["layout"]["annotations"])


def test_words_in_a_lane_are_no_longer_than_their_room() -> None:
    levels = tuple(Level(at, 2000.0, "w" * 5 + " word" * 40) for at in (1000.0, 1500.0, 1900.0))
    figure = lanes(Story(1000.0, 2000.0, None, (Lane("x", levels=levels),)), THEMES["light"], narrow=True)
    said = [a["text"] for a in figure["layout"]["annotations"] if "word" in a["text"]]
    assert len(said) == 3 and all(len(text) <= 42 for text in said)


def test_no_lane_and_no_cause_still_make_a_figure() -> None:
    figure = lanes(Story(0.0, 10.0, None), THEMES["dark"], narrow=True)
    assert not figure["layout"].get("shapes")


def test_both_themes_differ_only_in_colour() -> None:
    def bare(theme: str) -> bytes:
        text = orjson.dumps(lanes(STORY, THEMES["light" if theme == "light" else "dark"], False)).decode()
        for token in THEMES["light"]:
            text = text.replace(THEMES["light" if theme == "light" else "dark"][token], token[:0])
        return text.encode()

    assert len(bare("light")) == len(bare("dark"))


def test_the_zoom_of_the_reader_survives_a_redraw() -> None:
    light = THEMES["light"]
    line = healthy(np.array([0.0, 10.0]), np.array([5, 4], np.float32), light, False)
    for figure in (lanes(STORY, light, False), line, ages([], light, False)):
        assert figure["layout"]["uirevision"] == "keep"


def test_the_healthy_axis_starts_where_a_single_gpu_is_still_seen() -> None:
    assert floor(np.array([384, 383], np.float32)) == 375
    assert floor(np.array([3, 0], np.float32)) == 0


def test_a_silent_source_is_a_cross_and_one_that_never_spoke_has_no_dot() -> None:
    rows = [Age("a", 3.0, 60.0), Age("b", 900.0, 60.0), Age("c", None, 60.0)]
    figure = ages(rows, THEMES["light"], False)
    fresh, silent, limits = figure["data"]
    assert list(fresh["y"]) == ["a"] and list(silent["y"]) == ["b"] and silent["marker"]["symbol"] == "x"
    assert list(limits["y"]) == ["a", "b", "c"]


def test_a_source_that_speaks_only_when_there_is_news_is_never_silent() -> None:
    fresh, silent, limits = ages([Age("logs", 90_000.0, None)], THEMES["light"], False)["data"]
    assert list(fresh["y"]) == ["logs"] and not list(silent["y"]) and not list(limits["y"])


def test_the_log_axis_says_so_and_ticks_in_human_units() -> None:
    figure = ages([Age("a", 0.0, 60.0)], THEMES["light"], False)
    assert "log axis" in figure["layout"]["xaxis"]["title"]["text"]
    assert list(figure["layout"]["xaxis"]["ticktext"])[:3] == ["1 s", "10 s", "1 min"]
    assert figure["data"][0]["x"][0] == YOUNGEST_S


def test_hostile_text_is_inert_in_every_figure() -> None:
    bad = "<img src=x onerror=alert(1)>"
    story = Story(0.0, 10.0, 5.0, (Lane(bad, (Event(5.0, bad), Event(6.0, bad)), (Level(1.0, 2.0, bad),)),))
    text = orjson.dumps([lanes(story, THEMES["light"], False), ages([Age(bad, 1.0, 60.0)], THEMES["light"], False)])
    assert b"<img" not in text
