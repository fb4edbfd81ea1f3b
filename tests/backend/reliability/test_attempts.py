"""The parts of an attempt: non-negative, exclusive, together the attempt; each rule by an example."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.facts import CheckpointFacts, StepFacts
from backend.reliability.account import Account
from backend.reliability.ettr import ettr
from backend.reliability.parts import PARTS
from tests.backend.reliability.facts import accounted, attempt, load, parts, save, steps


def one(rows: list[StepFacts], saves: list[CheckpointFacts], end: float = 2000.0, **how: Any) -> Account:
    """The only attempt: from 10 to 2,000, completed where nothing else is said."""
    span = {key: how.pop(key) for key in ("span_end", "span_start", "whole") if key in how}
    facts = attempt(end=None if how.get("state") == "RUNNING" else end, **how)
    told = accounted(
        [facts],
        span.get("span_end", 2000.0),
        span.get("span_start", 0.0),
        steps=rows,
        checkpoints=saves,
        checkpoints_whole=span.get("whole", True),
    )
    (found,) = told.attempts
    assert sum(b.low for b in found.parts.values()) == pytest.approx(found.wall_s)
    return found


def test_the_end_of_a_completed_attempt_is_teardown() -> None:
    found = parts(one(steps(110, 1900, 10), []))
    assert (found["startup"], found["productive"], found["teardown"]) == (90, 1800, 100)
    assert found["hang"] == found["lost_since_checkpoint"] == 0


def test_without_a_save_a_broken_attempt_lost_all_it_stepped() -> None:
    found = parts(one(steps(110, 1990, 10), [], state="FAILED"))
    assert (found["productive"], found["lost_since_checkpoint"]) == (0, 1900)


def test_a_silence_shorter_than_a_hang_is_a_step_that_was_not_finished() -> None:
    found = parts(one(steps(110, 1950, 10), [save(500, 5)], state="FAILED"))
    assert found["hang"] == 0
    assert found["lost_since_checkpoint"] == 1500


def test_slow_steps_make_a_hang_later() -> None:
    found = parts(one(steps(130, 1810, 120), [save(1000, 5)], state="FAILED"))
    assert found["hang"] == 0  # 190 s of silence; 3 x 120 s would be one
    assert parts(one(steps(130, 1570, 120), [save(1000, 5)], state="FAILED"))["hang"] == 430


def test_an_evaluation_counts_as_stepping() -> None:
    rows = steps(110, 900, 10) + steps(1200, 1900, 10, from_step=80)
    assert parts(one(rows, []))["productive"] == 1800


def test_a_save_beside_the_steps_stalls_nothing_and_holds_what_was_there_when_it_began() -> None:
    told = save(1000, 200, blocking=False)
    found = parts(one(steps(110, 1950, 10), [told], state="FAILED"))
    assert (found["save_stall"], found["productive"], found["lost_since_checkpoint"]) == (0, 700, 1200)


def test_rows_inside_a_save_show_that_nobody_waited_for_it() -> None:
    found = parts(one(steps(110, 1900, 10), [save(1000, 200)]))
    assert (found["save_stall"], found["productive"]) == (0, 1800)


def test_several_ranks_are_one_progress_whatever_one_clock_says() -> None:
    rows = steps(110, 1900, 10)
    ranks = [
        StepFacts(at=r.at + skew, run=r.run, job=r.job, step=r.step, step_time_s=10.0, rank=rank)
        for r in rows
        for rank, skew in ((0, 0.0), (1, 0.1), (2, 250.0))
    ]
    found = parts(one(ranks, []))
    assert found["productive"] == pytest.approx(1800, abs=0.2)


def test_rows_of_many_steps_cover_their_own_steps() -> None:
    rows = [StepFacts(at=200.0 + 50 * i, run="r", job="1", step=5 * (i + 1), step_time_s=10.0) for i in range(35)]
    assert parts(one(rows, []))["startup"] == 140
    found = parts(one(rows, [load(150, 20, step=2)]))  # 130 to 150; three own steps from 170
    assert (found["startup"], found["load"], found["productive"]) == (140, 20, 1730)


def test_without_step_times_the_distance_of_rows_says_how_long_a_step_is() -> None:
    rows = [StepFacts(at=200.0 + 50 * i, run="r", job="1", step=5 * (i + 1)) for i in range(35)]
    assert parts(one(rows, []))["startup"] == 140


def test_a_run_still_going_keeps_all() -> None:
    found = parts(one(steps(110, 1980, 10), [save(500, 5)], state="RUNNING"))
    assert (found["productive"], found["lost_since_checkpoint"], found["hang"]) == (1895, 0, 0)


def test_a_run_that_stands_still_at_the_end_of_the_data_hangs() -> None:
    assert parts(one(steps(110, 1000, 10), [], state="RUNNING"))["hang"] == 1000


def test_what_lies_before_the_data_is_not_accounted() -> None:
    found = one(steps(1010, 1900, 10), [], span_start=1000.0)
    assert found.wall_s == 1000
    assert parts(found)["startup"] == 0
    assert parts(found)["productive"] == 900


def test_a_restart_inside_the_job_loses_what_its_load_did_not_bring_back() -> None:
    rows = steps(110, 600, 10) + steps(1010, 1900, 10, from_step=20)
    found = parts(one(rows, [save(300.5, 0.5, step=20), load(1000, 100, step=20)]))
    # stepped 100 to 600; the load brought back step 20, of 300; silence from 600 to 900
    assert found["load"] == 100
    assert found["hang"] == 300
    assert found["lost_since_checkpoint"] == pytest.approx(300 - 0.5)
    assert found["productive"] == pytest.approx(200 + 900)


def test_a_load_that_sets_nothing_back_loses_nothing() -> None:
    rows = steps(110, 600, 10) + steps(660, 1900, 10, from_step=50)
    found = parts(one(rows, [load(650, 45, step=50)]))
    assert found["lost_since_checkpoint"] == 0
    assert found["load"] == 45
    assert found["productive"] == pytest.approx(500 + 5 + 1250)


def test_an_attempt_that_never_stepped_was_starting() -> None:
    told = accounted(
        [attempt(state="FAILED", end=500.0), attempt("1", 1, start=700.0, eligible=600.0, submit=600.0, end=2000.0)],
        2000.0,
        steps=steps(810, 1900, 10),
    )
    assert parts(told.attempts[0])["startup"] == 490


def test_saves_that_nobody_told_leave_bounds() -> None:
    found = one(steps(110, 1990, 10), [], whole=True, state="FAILED")
    assert found.parts["productive"].high == 0
    told = accounted([attempt(state="FAILED", end=2000.0)], 2000.0, steps=steps(110, 1990, 10))
    bounds = told.attempts[0].parts["productive"]
    assert (bounds.low, bounds.high) == (0, 1900)
    share = ettr(told.attempts).ettr
    assert share is not None and share.width > 0.9


def test_a_lost_replica_costs_its_share() -> None:
    rows = steps(110, 1000, 10, replicas_live=4, replicas_total=4)
    rows += steps(1010, 1900, 10, from_step=90, replicas_live=3, replicas_total=4)
    found = one(rows, [])
    assert found.told is not None
    assert found.told.degraded_s == pytest.approx(900)
    assert found.told.weighted_s == pytest.approx(1800 - 225)
    share = ettr([found])
    assert share.weighted is not None and share.ettr is not None
    assert share.weighted.middle == pytest.approx((1800 - 225) / 2000)
    assert share.ettr.middle == pytest.approx(0.9)


def test_what_was_merged_says_more_than_who_was_there() -> None:
    rows = steps(110, 1000, 10, replicas_live=4, replicas_total=4, tokens=400.0)
    rows += steps(1010, 1400, 10, from_step=90, replicas_live=3, replicas_total=4, tokens=300.0)
    rows += steps(1410, 1900, 10, from_step=130, replicas_live=4, replicas_total=4, tokens=350.0)  # one lags
    found = one(rows, [])
    assert found.told is not None
    assert found.told.weighted_s == pytest.approx(900 + 0.75 * 400 + 0.875 * 500)


def test_tokens_without_replicas_are_a_batch_size_and_no_loss() -> None:
    found = one(steps(110, 1000, 10, tokens=100.0) + steps(1010, 1900, 10, from_step=90, tokens=400.0), [])
    assert found.told is not None and found.told.weighted_s == pytest.approx(1800)


def test_a_step_below_the_quorum_was_not_committed() -> None:
    rows = steps(110, 1000, 10, replicas_live=4, replicas_total=4)
    rows += steps(1010, 1900, 10, from_step=90, replicas_live=1, replicas_total=4, attrs={"quorum": 2.0})
    found = one(rows, [])
    assert found.told is not None and found.told.weighted_s == pytest.approx(900)


def test_one_row_alone_steps_as_many_steps_as_the_others_of_its_run() -> None:
    rows = [r for r in steps(110, 900, 10) if r.step % 5 == 0] + [replace(steps(1570, 1570, 10)[0], step=85)]
    told = accounted(
        [attempt(state="NODE_FAIL", end=1000.0), attempt("1", 1, "NODE_FAIL", start=1100.0, end=1575.0)],
        2000.0,
        steps=rows,
        checkpoints=[save(905.0, 5.0, 80), load(1400.0, 100.0, 80)],
        checkpoints_whole=True,
    )
    assert told.attempts[1].parts["lost_since_checkpoint"].middle == pytest.approx(55)


def test_slow_rows_are_told_and_a_hiccup_is_none() -> None:
    times = np.concatenate([np.full(60, 10.0), [14.0], np.full(30, 10.0), np.full(20, 14.0)])
    at = 100 + np.cumsum(times)
    rows = [
        StepFacts(at=float(t), run="r", job="1", step=i + 1, step_time_s=float(s))
        for i, (t, s) in enumerate(zip(at, times, strict=True))
    ]
    found = one(rows, [])
    assert found.told is not None
    assert found.told.slow_s == pytest.approx(20 * 14, abs=14 * 2)


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[StepFacts], list[CheckpointFacts], str, float]:
    """Anything that rows may say of one attempt, sensible or not."""
    at = st.floats(-100, 2500, allow_nan=False)
    rows = [
        StepFacts(
            at=draw(at),
            run="r",
            job=draw(st.sampled_from(["1", ""])),
            step=draw(st.integers(0, 50)),
            step_time_s=draw(st.none() | st.floats(0, 500)),
            replicas_live=draw(st.none() | st.integers(0, 4)),
            replicas_total=draw(st.none() | st.integers(0, 4)),
            rank=draw(st.none() | st.integers(0, 2)),
        )
        for _ in range(draw(st.integers(0, 12)))
    ]
    saves = [
        CheckpointFacts(
            at=draw(at),
            run="r",
            step=draw(st.integers(0, 50)),
            kind=draw(st.sampled_from(["save", "load"])),
            duration_s=draw(st.floats(0, 800)),
            job=draw(st.sampled_from(["1", ""])),
            blocking=draw(st.booleans()),
        )
        for _ in range(draw(st.integers(0, 6)))
    ]
    state = draw(st.sampled_from(["COMPLETED", "FAILED", "RUNNING", "TIMEOUT", "NODE_FAIL"]))
    return rows, saves, state, draw(st.sampled_from([0.0, 500.0]))


@settings(max_examples=60, deadline=None)
@given(lives(), st.randoms(use_true_random=False), st.booleans())
def test_parts_are_non_negative_and_sum_to_the_attempt(
    life: tuple[list[StepFacts], list[CheckpointFacts], str, float], random: Any, whole: bool
) -> None:
    rows, saves, state, begin = life
    facts = attempt(state=state, end=None if state == "RUNNING" else 2000.0)
    told = accounted([facts], 2000.0, begin, steps=rows, checkpoints=saves, checkpoints_whole=whole).attempts[0]
    assert all(-1e-6 <= b.low <= b.high + 1e-9 for b in told.parts.values())
    lows, highs = (sum(getattr(told.parts[p], side) for p in PARTS) for side in ("low", "high"))
    assert lows - 1e-6 <= told.wall_s <= highs + 1e-6
    if told.told is not None:
        exact = told.told.parts
        assert sum(b.low for b in exact.values()) == pytest.approx(told.wall_s, abs=1e-6)
        assert -1e-6 <= told.told.weighted_s <= exact["productive"].high + 1e-6
        assert told.told.slow_s <= exact["productive"].high + 1e-6
        spans = sorted(tuple(span) for part in PARTS for span in told.told.by_part[part].tolist())
        assert all(a[1] <= b[0] + 1e-6 for a, b in zip(spans, spans[1:], strict=False))
    random.shuffle(rows)
    random.shuffle(saves)
    again = accounted([facts], 2000.0, begin, steps=rows, checkpoints=saves, checkpoints_whole=whole).attempts[0]
    assert {p: (round(b.low, 6), round(b.high, 6)) for p, b in again.parts.items()} == {
        p: (round(b.low, 6), round(b.high, 6)) for p, b in told.parts.items()
    }
