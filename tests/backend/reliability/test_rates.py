"""Failure rates, times between failures, exclusions, checkpoint advice, plans: exact on small histories."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from time import process_time
from typing import Any

import numpy as np
import pytest
from scipy import stats

from backend.facts import OutageFacts
from backend.reliability.checkpoints import advice, cost, save_every_s
from backend.reliability.exclusions import drains, exclusions, gini
from backend.reliability.expected import daly_s, exact_ettr
from backend.reliability.intervals import wilson
from backend.reliability.mttf import failures
from backend.reliability.planner import Bid, Plan, check, choose, outlook, what_if
from backend.reliability.repair import lives_of, survival
from backend.reliability.report import reliability_json
from backend.reliability.retries import quartiles
from tests.backend.reliability.facts import accounted, attempt, save, steps

DAY = 86_400.0


def test_rates_are_counts_over_node_days_with_exact_intervals() -> None:
    rows = [
        attempt(str(i), state="NODE_FAIL" if i < 3 else "COMPLETED", start=0.0, end=DAY, nodes=("a", "b"), run=f"r{i}")
        for i in range(10)
    ]
    told = accounted(rows, DAY)
    found = reliability_json(told)["failures"]
    assert found["infra_job_failures"] == 3
    assert found["allocated_node_days"] == 20
    assert found["rf_per_1000_node_days"] == 150
    low, high = stats.chi2.ppf(0.025, 6) / 2, stats.chi2.ppf(0.975, 8) / 2
    assert found["rf_ci95"] == pytest.approx([low / 20 * 1000, high / 20 * 1000], rel=1e-5)
    assert found["job_mttf_hours"] == 80
    assert found["job_mttf_ci95"] == pytest.approx([240 / high, 240 / low], rel=1e-5)
    assert found["fleet_mttf_hours"] == 8
    by_run = failures(told, told.attempts, by_nodes=True).by_run
    assert by_run is not None and by_run.low < 0.15 < by_run.high


def test_what_never_failed_has_a_bound_and_no_mean() -> None:
    found = reliability_json(accounted([attempt(start=0.0, end=DAY)], DAY))["failures"]
    assert found["job_mttf_hours"] is None
    assert found["job_mttf_ci95"] == [pytest.approx(24 / 3.689, rel=1e-3), None]


def test_exclusions_count_once_a_job_and_restart() -> None:
    rows = [
        attempt("1", excluded=("a", "b"), end=40.0),
        attempt("1", excluded=("a", "b"), end=40.0),
        attempt("1", 1, excluded=("a",), start=50.0, submit=40.0, end=60.0),
        attempt("2", excluded=("c", "d"), end=40.0),
        attempt("3", 0, "PENDING", excluded=("e",), start=None),
    ]
    found = exclusions([a.attempt for a in accounted(rows, 1000.0).attempts], 63)
    assert found.total == 6
    assert found.top3 == [("a", 2), ("b", 1), ("c", 1)]
    assert found.top3_share == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    ("counts", "n", "value"), [([1, 1, 1, 1], 4, 0.0), ([4], 4, 0.75), ([1, 3], 2, 0.25), ([], 4, None)]
)
def test_gini_is_0_for_all_alike_and_near_1_for_one(counts: list[int], n: int, value: float | None) -> None:
    assert gini(counts, n) == (value if value is None else pytest.approx(value))


def test_drains_are_counted_apart_and_once() -> None:
    outages = [
        OutageFacts("a", 0.0, 50.0, "DRAIN", "ecc"),
        OutageFacts("a", 40.0, 90.0, "DRAINED*", "ecc"),
        OutageFacts("a", 200.0, None, "draining"),
        OutageFacts("b", 0.0, 50.0, "DOWN"),
    ]
    assert dict(drains(outages, 4).counts) == {"a": 2}


def test_the_published_chain_rates_have_their_intervals() -> None:
    found = wilson(4, 12)
    assert found is not None and found.low < 1 / 3 < found.high
    assert quartiles([600, 660, 660, 720]).median_s == 660


def test_cost_and_interval_are_measured_and_the_advice_follows_from_both() -> None:
    rows = steps(110, 3000, 10)
    saves = [save(at, 20) for at in (500, 1100, 1700, 2300, 2900)]
    facts = [
        attempt(state="NODE_FAIL", end=3000.0),
        attempt("2", run="x", user="v", state="NODE_FAIL", start=0.0, end=3 * DAY, nodes=("a", "b")),
    ]
    told = accounted(facts, 3 * DAY, steps=[r for r in rows if not 480 < r.at % 600 < 500], checkpoints=saves)
    run = next(run for run in told.runs if run.run.name == "r")
    assert save_every_s(run) == 580
    assert cost(run.checkpoints).mean_s == 20
    (found,) = advice(told)
    per_day = 2 / (3000 - 10 + 2 * 3 * DAY) * DAY
    assert found.mttf_s == pytest.approx(DAY / per_day)
    assert found.daly_s == pytest.approx(daly_s(20, found.mttf_s))
    assert found.bounds.low < found.daly_s < found.bounds.high
    assert found.ettr_now is not None and found.ettr_then > found.ettr_now
    assert found.best.low < found.best_s < found.best.high
    assert found.gain is not None and found.gain.low < found.ettr_then - found.ettr_now < found.gain.high
    assert found.pays is not None and 0.5 < found.pays <= 1
    assert found.ettr_then >= max(
        exact_ettr(found.mttf_s, found.restart_s, t, 20) for t in (found.young_s, found.daly_s)
    )


def test_survival_is_the_product_of_what_was_left_at_risk() -> None:
    found = survival([(1, True), (2, False), (3, True), (4, True), (5, False)])
    assert found.hours.tolist() == [1, 3, 4]
    assert found.survived.tolist() == pytest.approx([0.8, 0.8 * 2 / 3, 0.8 / 3])
    assert (found.low <= found.survived).all() and (found.survived <= found.high).all()
    told = accounted([attempt(state="NODE_FAIL", start=0.0, end=3600.0)], 7200.0)
    assert lives_of(told) == [(1.0, True)]
    assert survival([]).n == 0


def test_a_plan_gives_the_share_of_its_parts() -> None:
    base = Plan(nodes=2000, per_node_day=6.5e-3, write_s=0.0, restart_s=300.0, interval_s=3600.0)
    assert outlook(base).first_order == pytest.approx(0.684, abs=0.001)
    share, error = check(outlook(base), lives=200_000) or (0.0, 0.0)
    assert outlook(base).ettr == pytest.approx(share, abs=5 * error)
    assert outlook(base).failures == pytest.approx(13)
    sizes = [128, 2048, 16_384, 125_000]
    shares = [found.ettr for found in what_if(base, sizes)]
    assert shares == sorted(shares, reverse=True)
    assert 0 < shares[-1] < 0.001


def test_standbys_and_recovery_by_step_make_a_plan_better() -> None:
    base = Plan(nodes=1024, per_node_day=0.0012, write_s=30.0, restart_s=768.0)
    kept = replace(base, standby=4, standby_restart_s=65.0)
    assert outlook(base).standby_p99 == 4
    assert outlook(kept).ettr > outlook(base).ettr
    half = replace(base, standby=1, standby_restart_s=65.0)
    assert outlook(base).ettr < outlook(half).ettr < outlook(kept).ettr
    assert outlook(kept).covered >= 0.99 > outlook(half).covered > 0
    replicas = replace(base, replicas=16, per_step_recovery=True)
    assert outlook(replicas).ettr > outlook(base).ettr
    assert outlook(replace(replicas, stall_s=180.0)).ettr < outlook(replicas).ettr
    assert check(outlook(replicas)) is None


def test_replicas_that_come_and_go_leave_the_published_share_of_a_hundred_thousand_gpus() -> None:
    mtbf = 18 * 60.0
    nodes = 98_304 // 8
    run = Plan(nodes, DAY / (nodes * mtbf), 0.0, 0.0, 3600.0, replicas=32, per_step_recovery=True, stall_s=180.0)
    assert outlook(run).ettr == pytest.approx(15 / 18, abs=1e-9)
    assert outlook(replace(run, stall_s=600.0)).ettr == pytest.approx(8 / 18, abs=1e-9)
    away = outlook(replace(run, stall_s=0.0, restart_s=1800.0)).ettr
    own = 32 * mtbf
    assert away == pytest.approx(own / (own + 1800.0))


@pytest.mark.parametrize("wrong", [{"nodes": 0}, {"write_s": -1.0}, {"interval_s": 0.0}, {"replicas": 9}])
def test_a_plan_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="."):
        outlook(replace(Plan(8, 0.001, 10.0, 60.0), **wrong))


def test_a_plan_that_never_fails_saves_rarely() -> None:
    found = outlook(Plan(nodes=8, per_node_day=0.0, write_s=10.0, restart_s=60.0))
    assert math.isinf(found.mttf_s)
    assert found.ettr > 0.99999


def test_the_choice_of_jobs_and_sizes_is_worth_most_for_the_nodes_there_are() -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        bids = []
        for i in range(5):
            size = int(rng.integers(2, 9))
            sizes = tuple(sorted({size, max(1, size // 2)})) if i % 2 else ()
            now = int(rng.choice([0, size]))
            bids.append(Bid(f"j{i}", Plan(size, 0.005, 30.0, 3000.0), float(rng.uniform(0.5, 2)), sizes, now))
        options = [(0, *(bid.sizes or (bid.plan.nodes,))) for bid in bids]
        best = max(
            sum(_worth(bid, size) for bid, size in zip(bids, sizes, strict=True))
            for sizes in itertools.product(*options)
            if sum(sizes) <= 12
        )
        taken = choose(bids, 12)
        assert sum(one.nodes for one in taken) <= 12
        assert sum(_worth(one.bid, one.nodes) for one in taken) == pytest.approx(best)
        assert sum(one.value for one in taken) == pytest.approx(best)


def _worth(bid: Bid, size: int) -> float:
    if not size:
        return 0.0
    hours = 24 - (0 if bid.now in (0, size) else bid.plan.restart_s / 3600)
    return outlook(replace(bid.plan, nodes=size)).ettr * size * 8 * bid.worth * hours


def test_the_largest_choice_that_may_be_asked_for_takes_no_longer_than_a_request_may() -> None:
    plan = Plan(1, 0.0065, 60.0, 300.0)
    few = [Bid(f"j{i}", plan, 1 + i / 10, tuple(25_000 * k for k in range(1, 11))) for i in range(8)]
    many = [Bid(f"j{i}", plan, sizes=tuple(1 + i + 3 * k for k in range(64))) for i in range(200)]
    began = process_time()
    assert sum(one.nodes for one in choose(few, 250_000)) <= 250_000
    assert sum(one.nodes for one in choose(many, 1_500)) <= 1_500
    assert process_time() - began < 5.0
