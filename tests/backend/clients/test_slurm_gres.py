"""GPUs in Slurm's words: counts, models, and the indices that a job holds on each node."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.clients.slurm_gres import held_indices, parse_gpus, parse_indices


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("gpu:a100:4(IDX:0-3)", (0, 1, 2, 3)),
        ("gpu:h100:2(IDX:4-5),gpu:a100:1(IDX:7)", (4, 5, 7)),
        ("gpu:4(IDX:0,2-3)", (0, 2, 3)),
        ("gpu(IDX:0-1)", (0, 1)),
        ("gpu:h100:0(IDX:N/A)", ()),
        ("gres/gpu:h100:1(IDX:6)", (6,)),
        ("gres:gpu:2(IDX:1,3)", (1, 3)),
        ("nic:2(IDX:0-1),gpu:1(IDX:5)", (5,)),
        ("mps:100(IDX:0-7)", ()),
        ("gpu:nvidia_h100_80gb_hbm3:8(S:0-1)", ()),
        ("GRES_IDX=gpu(IDX:2-3)", (2, 3)),
        ("gpu:1(IDX:x)", ()),
        ("", ()),
    ],
)
def test_indices_are_those_of_gpus_and_of_nothing_else(text: str, indices: tuple[int, ...]) -> None:
    assert parse_indices(text) == indices


def test_a_jobs_indices_stand_at_its_nodes() -> None:
    told = ["gpu:h100:4(IDX:0-3)", "gpu:h100:2(IDX:6-7)"]
    assert held_indices(["a", "b"], told) == (("a", (0, 1, 2, 3)), ("b", (6, 7)))


def test_where_nodes_and_texts_do_not_match_nothing_is_said() -> None:
    assert held_indices(["a", "b", "c"], ["gpu:1(IDX:0)"]) == ()
    assert held_indices(["a", "b"], ["gpu:1(IDX:0)", ""]) == (("a", (0,)),)


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 15), max_size=16))
def test_any_set_of_indices_is_read_back(held: set[int]) -> None:
    text = ",".join(str(i) for i in sorted(held))
    assert parse_indices(f"gpu:h100:{len(held)}(IDX:{text})") == tuple(sorted(held))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40))
def test_no_text_is_too_much(text: str) -> None:
    assert all(0 <= i <= 1023 for i in parse_indices(f"gpu:1(IDX:{text})"))
    parse_gpus(text)
