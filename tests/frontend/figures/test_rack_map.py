"""The rack map: places, codes, rings and names."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.figures.rack_map import MOST_GPUS, MOST_RINGS, Mark, Place, grid, names, names_version, plan, rack_map
from frontend.figures.theme import themes, tokens
from frontend.words import STATES

LIGHT = themes(tokens())["light"]
CODE = {state: i + 1 for i, state in enumerate(STATES)}


def fleet(racks: int = 6, nodes: int = 8, gpus: int = 8) -> list[Place]:
    return [Place(f"n{r:03d}-{i}", f"r{r:03d}", ("ok",) * gpus) for r in range(1, racks + 1) for i in range(nodes)]


def cells(figure: dict[str, Any]) -> np.ndarray[Any, Any]:
    z = figure["data"][0]["z"]
    rows, columns = (int(n) for n in z["shape"].split(", "))
    return np.frombuffer(base64.b64decode(z["bdata"]), np.uint8).reshape(rows, columns)


def test_one_cell_is_one_gpu_and_racks_stand_apart() -> None:
    drawn = cells(rack_map(fleet(), [], LIGHT, narrow=False))
    assert drawn.shape == (8, 6 * 9 - 1)
    assert (drawn == CODE["ok"]).sum() == 384
    assert not drawn[:, 8].any()


def test_the_figure_is_one_that_plotly_knows() -> None:
    figure = rack_map(
        fleet(), [Mark("n002-1", 3, "failed", "812"), Mark("n001-0", None, "suspect", "9")], LIGHT, narrow=False
    )
    go.Figure(figure)


def test_no_cell_carries_a_text() -> None:
    trace = rack_map(fleet(), [], LIGHT, narrow=False)["data"][0]
    assert not {"customdata", "text", "hovertext"} & set(trace)


def test_places_never_move_when_states_change() -> None:
    calm, sick = fleet(), fleet()
    sick[10] = Place(sick[10].node, sick[10].rack, ("ok", "failed", *("ok",) * 6))
    before, after = grid(plan(calm, False)), grid(plan(sick, False))
    assert [tuple(map(int, at)) for at in np.argwhere(before != after)] == [(2, 10)]


def test_a_narrow_page_folds_the_aisle_and_keeps_neighbours() -> None:
    wide, narrow = plan(fleet(64), False), plan(fleet(64), True)
    assert (wide.across, narrow.across) == (16, 8)
    assert narrow.blocks == wide.blocks


def test_above_twenty_thousand_gpus_a_cell_is_the_worst_of_a_node() -> None:
    places = fleet(racks=400)
    assert len(places) * 8 > MOST_GPUS
    places[3] = Place(places[3].node, places[3].rack, ("ok",) * 7 + ("failed",))
    drawn = plan(places, False)
    assert drawn.per_node and (drawn.wide, drawn.tall, drawn.across) == (2, 4, 80)
    assert (grid(drawn) == CODE["failed"]).sum() == 1


def test_a_node_without_known_gpus_is_not_drawn_healthy() -> None:
    drawn = grid(plan([Place("n1", "r1", ())], False))
    assert CODE["ok"] not in drawn


def test_a_hundred_thousand_gpus_stay_small_on_the_wire() -> None:
    figure = rack_map(fleet(racks=1600), [], LIGHT, narrow=False)
    assert len(figure["data"][0]["z"]["bdata"]) < 60_000


def test_at_most_twenty_rings_worst_first() -> None:
    marks = [Mark(p.node, None, "suspect", str(i)) for i, p in enumerate(fleet())] + [Mark("n006-7", 0, "failed", "x")]
    figure = rack_map(fleet(), marks, LIGHT, narrow=False)
    assert len(figure["layout"]["shapes"]) == MOST_RINGS
    assert figure["layout"]["annotations"][0]["text"].endswith("x")


@pytest.mark.parametrize("node", ["n001-0", "n001-7", "n006-0", "n006-7"])
@pytest.mark.parametrize("gpu", [None, 0, 7])
@pytest.mark.parametrize("racks", [6, 64])
def test_no_ring_is_cut_off_at_an_edge(racks: int, node: str, gpu: int | None) -> None:
    layout = rack_map(fleet(racks), [Mark(node, gpu, "failed", "1")], LIGHT, narrow=False)["layout"]
    ring, (low, high), (bottom, top) = layout["shapes"][0], layout["xaxis"]["range"], layout["yaxis"]["range"]
    assert low <= ring["x0"] and ring["x1"] <= high and top <= ring["y0"] and ring["y1"] <= bottom


def test_a_ring_of_an_unknown_node_is_left_out() -> None:
    assert not rack_map(fleet(), [Mark("gone", None, "failed", "1")], LIGHT, narrow=False)["layout"]["shapes"]


def test_names_follow_the_blocks_and_change_their_version_only_with_the_fleet() -> None:
    places = fleet()
    assert names(places, False)["blocks"][1] == ["r002", [f"n002-{i}" for i in range(8)]]
    sick = [Place(p.node, p.rack, ("failed",) * 8) for p in places]
    assert names_version(places) == names_version(sick) != names_version(places[1:])


def test_hostile_names_are_inert() -> None:
    figure = rack_map(
        [Place("n<b>1", "<img src=x>", ("ok",))], [Mark("n<b>1", 0, "failed", "<b>1")], LIGHT, narrow=False
    )
    assert "<" not in figure["layout"]["annotations"][0]["text"]
    assert not [tag for tag in figure["layout"]["annotations"] if "<" in tag["text"]]
    many = rack_map([Place(f"n{i}", f"<b>{i // 8}", ("ok",) * 8) for i in range(160)], [], LIGHT, narrow=False)
    assert many["layout"]["yaxis"]["ticktext"] and "<" not in many["layout"]["yaxis"]["ticktext"][0]


def test_every_rack_is_named_once_where_there_is_room_and_each_aisle_where_there_is_not() -> None:
    def told(racks: int, nodes: int) -> tuple[list[str], list[str]]:
        layout = rack_map(fleet(racks, nodes), [], LIGHT, narrow=False)["layout"]
        return [tag["text"] for tag in layout["annotations"]], list(layout["yaxis"]["ticktext"])

    assert told(3, 16) == (["r001", "r002", "r003"], [])
    assert told(32, 8) == ([], ["r001", "r017"])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=60), st.booleans())
@settings(max_examples=40, deadline=None)
def test_every_gpu_has_exactly_one_cell(shape: list[tuple[int, int]], narrow: bool) -> None:
    places = [Place(f"n{i}", f"r{rack}", ("suspect",) * gpus) for i, (rack, gpus) in enumerate(sorted(shape)) if gpus]
    drawn = plan(places, narrow)
    assert (grid(drawn) == CODE["suspect"]).sum() == sum(len(p.states) for p in places)


@pytest.mark.parametrize("narrow", [False, True])
def test_an_empty_fleet_draws_nothing_and_raises_nothing(narrow: bool) -> None:
    assert not cells(rack_map([], [], LIGHT, narrow)).any()
