"""One rank among others: wrong, slow, missing; a link; a whole job."""

from __future__ import annotations

from collections.abc import Iterable
from time import process_time
from typing import Any

import numpy as np
import pytest

from detectors.catalogue import load
from detectors.detector import Detector
from detectors.model import Event, Finding, Severity, Tick
from detectors.training import memory
from detectors.training.collectives import Collectives
from detectors.training.copies import Copies
from detectors.training.matrix import syndromes
from detectors.training.pace import Pace as Pacing
from tests.detectors.fleets import entity, fleet_of
from tests.detectors.training.ranks import Pace, copies, paced, recomputed
from tests.detectors.training.telling import NOWHERE, T0, row

Raised = dict[str, tuple[int, float, Finding]]


def first(detectors: Iterable[Detector[Any]], ticks: Iterable[tuple[int, Tick]], score: float = 0.0) -> Raised:
    """By kind and entity, the step and time at which it was raised with at least that score."""
    states = [(one, one.start(NOWHERE)) for one in detectors]
    found: dict[str, tuple[int, float, Finding]] = {}
    for step, tick in ticks:
        for one, state in states:
            for finding in one.step(state, tick, NOWHERE).findings:
                if finding.score >= score:
                    found.setdefault(f"{finding.kind} {finding.entity}", (step, tick.at, finding))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_replica_with_other_bits_is_outvoted_at_once(seed: int) -> None:
    found = first([Copies(load())], enumerate(copies(seed, bad=2, at=10, steps=15), 1))
    assert {name: step for name, (step, _, _) in found.items()} == {"silent_data_corruption run:r/rank:2": 10}


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_whose_arithmetic_is_wrong_is_named_by_batches_computed_twice(seed: int) -> None:
    bad = seed + 1
    found = first([Copies(load())], enumerate(recomputed(seed, bad, at=10, steps=20), 1), 0.8)
    sure = {name: step for name, (step, _, _) in found.items()}
    assert set(sure) == {f"silent_data_corruption run:r/rank:{bad}"} and min(sure.values()) <= 13


def test_shards_that_never_agree_have_no_vote() -> None:
    ticks = [
        Tick(
            T0 + step,
            events=tuple(row("r", T0 + step, step, {"param_hash": f"{rank}-{step}"}, rank=rank) for rank in range(4)),
        )
        for step in range(20)
    ]
    assert not first([Copies(load())], enumerate(ticks))


def test_a_step_that_does_not_repeat_names_the_gpu_and_what_its_memory_said_before() -> None:
    fleet, detector = fleet_of(2, 2), Copies(load())
    state, gpu = detector.start(fleet), entity(fleet, "gpu-0001/gpu1")
    code = Event(T0, gpu, "xid", "94", "", 1)
    told = [
        row("r", T0 + 1, 5, {"grad_hash": "a"}, rank=3, host="gpu-0001", gpu="1"),
        row("r", T0 + 2, 5, {"recompute_of": "3", "recompute_hash": "b"}, rank=3, host="gpu-0001", gpu="1"),
    ]
    (found,) = detector.step(state, Tick(T0 + 2, events=(code, *told)), fleet).findings
    assert found.entity == gpu and "gives another result" in found.reason
    assert [(e.what, e.value) for e in found.evidence[1:]] == [("Memory codes heard of this GPU", "1")]


def test_nothing_is_said_of_ranks_whose_batches_differ_in_length() -> None:
    for seed in range(3):
        assert not first([Pacing(load()), Collectives(load())], paced(Pace(), seed, 120))


def test_a_slow_rank_is_named_within_three_steps() -> None:
    named = []
    for seed in range(12):
        slow = seed % 8
        found = first([Pacing(load()), Collectives(load())], paced(Pace(slow=slow, times=1.25), seed, 64))
        names = {name for name, (step, _, _) in found.items() if step <= 62}
        named.append(names == {f"job_slow run:r/rank:{slow}"})
    assert np.mean(named) >= 0.97


def test_a_rank_that_never_comes_is_named_within_three_expected_steps() -> None:
    named = []
    for seed in range(12):
        hangs = seed % 8
        ticks = list(paced(Pace(hangs=hangs), seed, 64))
        found = first([Pacing(load()), Collectives(load())], ticks)
        begun = next(tick.at for step, tick in ticks if step == 60)  # all the others have come
        at = found.get(f"job_hang run:r/rank:{hangs}", (0, np.inf, None))[1]
        others = [name for name in found if "rank:" in name and f"rank:{hangs}" not in name]
        named.append(at - begun <= 3 * 4.5 and not others)
    assert np.mean(named) >= 0.97


def test_a_slow_link_and_a_job_slow_as_a_whole_are_told_as_such() -> None:
    (link,) = first([Collectives(load())], paced(Pace(link=(2, 3), times=3.0), 1, 70))
    assert link == "job_slow link:2-3"
    whole = Pace(everyone=True, times=1.3, at=150, lengths=False)
    assert set(first([Pacing(load())], paced(whole, 1, 170))) == {"job_slow job:7"}


def test_the_ranks_of_a_tick_are_met_at_once_and_bounded_by_those_heard_of_last() -> None:
    detector = Pacing(load())
    state = detector.start(NOWHERE)
    events = tuple(row("r", T0 + rank, 1, {"step_time_s": 2.0}, rank=rank) for rank in range(8_000))
    began = process_time()
    detector.step(state, Tick(T0 + 8_000, events=events), NOWHERE)
    assert process_time() - began < 2.0
    assert sorted(state.rank_number.tolist()) == list(range(8_000))
    memory.bound(state, "rank", 500)
    assert sorted(state.rank_number.tolist()) == list(range(7_500, 8_000))
    assert (state.rank[1:] > state.rank[:-1]).all()


def test_a_job_that_the_fleet_has_no_more_has_ended_and_does_not_hang() -> None:
    detector, fleet = Pacing(load()), fleet_of(2, 2, {"7": range(2)})
    state = detector.start(fleet)
    for step in range(40):
        detector.step(state, Tick(T0 + 2 * step, events=(row("r", T0 + 2 * step, step, {"loss": 2.0}),)), fleet)
    assert [f.kind for f in detector.step(state, Tick(T0 + 400), fleet).findings] == ["job_hang"]
    assert not detector.step(state, Tick(T0 + 401), fleet_of(2, 2, {})).findings


@pytest.mark.parametrize(("jobs", "loud"), [({}, Severity.INFO), ({"7": range(2)}, Severity.HIGH)])
def test_a_run_that_falls_silent_is_loud_only_where_the_fleet_knows_its_job(
    jobs: dict[str, range], loud: Severity
) -> None:
    detector, fleet = Pacing(load()), fleet_of(2, 2, jobs)
    state = detector.start(fleet)
    for step in range(120):
        detector.step(state, Tick(T0 + 2 * step, events=(row("r", T0 + 2 * step, step, {"loss": 2.0}),)), fleet)
    found = detector.step(state, Tick(T0 + 12_000), fleet).findings
    assert [(f.kind, f.severity) for f in found] == [("job_hang", loud)]


@pytest.mark.parametrize(
    ("slow", "want"),
    [
        ({(1, 2)}, [("link", 1, 2)]),
        ({(1, 0), (1, 2), (1, 3)}, [("sender", 1, -1)]),
        ({(0, 2), (1, 2), (3, 2)}, [("receiver", -1, 2)]),
        (set(), []),
    ],
)
def test_the_matrix_parts_link_sender_and_receiver(
    slow: set[tuple[int, int]], want: list[tuple[str, int, int]]
) -> None:
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    source, target = (np.array(side) for side in zip(*pairs, strict=True))
    took = np.array([0.3 if pair in slow else 0.1 for pair in pairs])
    found = syndromes(source, target, took, np.zeros(len(pairs), np.uint64), 1.5)
    assert [(one.what, one.source, one.target) for one in found] == want
