"""How a job goes on: its step, its batches, what each choice costs; and whom to take out of a parallel group."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.decide.decide import decide
from backend.decide.eviction import eviction, groups_of, next_round, pairs
from backend.decide.guards import Limits
from backend.decide.recovery import Costs, choices, restart, spares_wanted
from tests.backend.decide.cases import KINDS, case, cause, incident, job

COSTS = Costs(nodes=64, gpus_per_node=8, lost=1, spares=2, unsaved_s=600.0)


def test_spares_cover_a_day_as_published() -> None:
    assert [spares_wanted(n, 0.0012) for n in (128, 256, 512, 1024)] == [2, 2, 3, 4]
    assert spares_wanted(0, 0.1) == 0


def test_without_spares_the_queue_counts_and_waiting_for_a_repair_costs_its_hours() -> None:
    cost = {choice.name: choice.gpu_h for choice in choices(replace(COSTS, queue_s=7200.0))}
    assert cost["requeue"] == pytest.approx(512 * 900 / 3600)
    assert cost["wait"] == pytest.approx(512 * (14_400 + 900) / 3600)
    none = {choice.name: choice.gpu_h for choice in choices(replace(COSTS, queue_s=7200.0, spares=0))}
    assert none["requeue"] == pytest.approx(512 * 8100 / 3600)


def test_a_fault_that_passes_is_cheapest_restarted_in_place_and_one_that_stays_is_not() -> None:
    passing = choices(replace(COSTS, spares=0, queue_s=3600.0, again=0.1))
    staying = choices(replace(COSTS, spares=0, queue_s=3600.0, again=0.95))
    assert passing[0].name == "in place" and staying[0].name != "in place"


def test_an_elastic_job_goes_on_with_fewer_nodes_where_none_is_spare() -> None:
    assert choices(replace(COSTS, spares=0, queue_s=36_000.0, elastic=True))[0].name == "shrink"


@given(
    st.builds(
        Costs,
        nodes=st.integers(1, 4096),
        gpus_per_node=st.integers(1, 8),
        lost=st.integers(0, 4),
        spares=st.integers(0, 4),
        unsaved_s=st.floats(0, 1e5),
        queue_s=st.floats(0, 1e6),
        again=st.floats(0, 1),
        elastic=st.booleans(),
        price=st.floats(0, 10),
    )
)
@settings(max_examples=80, deadline=None)
def test_the_choices_are_sorted_and_none_is_free_of_the_lost_work(costs: Costs) -> None:
    found = choices(costs)
    assert [c.gpu_h for c in found] == sorted(c.gpu_h for c in found)
    lost = costs.nodes * costs.gpus_per_node * costs.unsaved_s / 3600
    assert all(c.gpu_h >= lost * (1 - 1e-9) for c in found)


def test_hardware_restarts_from_the_newest_and_what_spoils_from_before_its_onset() -> None:
    saved = (100, 200, 300)
    assert restart("gpu_bus_loss", saved, None).step == 300
    assert restart("silent_data_corruption", saved, 250).step == 200
    spike = restart("loss_spike", saved, 250, 270)
    assert (spike.step, spike.skip) == (100, (250, 449))
    assert restart("nan_loss", saved, 120).step == 100
    assert restart("nan_loss", (), 120).step is None
    assert "not known" in restart("nan_loss", saved, None).text


def test_the_smallest_group_of_all_suspects_is_taken_and_its_healthy_nodes_are_counted() -> None:
    groups = {"all": [f"n{i}" for i in range(16)], "stage-1": ["n0", "n1", "n2", "n3"], "stage-2": ["n4", "n5"]}
    found = eviction(["n1", "n2"], groups)
    assert found is not None
    assert (found.group, found.whole, found.healthy, found.rounds) == ("stage-1", ("n0", "n1", "n2", "n3"), 2, 2)
    assert "2 healthy nodes" in found.text
    none = eviction(["n1", "n4"], {k: v for k, v in groups.items() if k != "all"})
    assert none is not None and none.group == "" and "no parallel group" in none.text
    assert eviction([], groups) is None and eviction(["n1"], {}) is None


def test_the_price_of_a_group_stands_in_the_advice_of_a_hang() -> None:
    nodes = tuple(f"gpu-{i:04d}" for i in range(4))
    held = job(nodes=nodes, roles=tuple((name, "stage-3") for name in nodes))
    hang = incident(
        "job_hang",
        "vote",
        entity_kind="rank",
        node=nodes[1],
        hypotheses=(cause("job_hang", "vote", entity_kind="rank", node=nodes[1]),),
    )
    facts = decide(case(incident=hang, jobs=(held,)), KINDS, Limits(), Costs(4, 8, 1, 1))
    assert any("stage-3 (4 nodes)" in text and "3 healthy nodes" in text for text in facts.advice)
    assert any("GPU-hours" in text for text in facts.advice)
    assert groups_of(held) == {"stage-3": nodes}


@given(st.sets(st.integers(0, 99), min_size=2, max_size=33), st.integers(0, 50))
@settings(max_examples=80, deadline=None)
def test_pairs_hold_every_node_once(numbers: set[int], turn: int) -> None:
    nodes = [f"n{n:02d}" for n in numbers]
    made = pairs(nodes, turn)
    assert sorted(itertools.chain(*made)) == sorted(nodes)
    assert all(len(pair) >= 2 for pair in made)


@given(st.integers(4, 24), st.data())
@settings(max_examples=60, deadline=None)
def test_two_rounds_name_the_bad_node_whichever_it_is(size: int, drawn: st.DataObject) -> None:
    nodes = [f"n{i:02d}" for i in range(size)]
    bad = drawn.draw(st.sampled_from(nodes))
    first = {pair: bad not in pair for pair in pairs(nodes)}
    again, named = next_round(first)
    good = [node for pair, fine in first.items() if fine for node in pair]
    assert not named or named == (bad,)
    _, found = next_round({pair: bad not in pair for pair in again}, good)
    assert {*named, *found} == {bad}
