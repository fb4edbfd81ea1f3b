"""Risk, repairs, churn, lost time, differences, tiers, storage, loops, roles: small cases whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from backend.facts import NodeFacts, OutageFacts
from backend.reliability.churn import churn, pareto
from backend.reliability.components import component_table
from backend.reliability.differential import differences
from backend.reliability.efficacy import efficacy, what_of
from backend.reliability.expected import best_interval_s, exact_ettr, simulated_ettr
from backend.reliability.loops import crash_loops
from backend.reliability.lost import lost, usage
from backend.reliability.risk import failure_risk
from backend.reliability.storage import Counters, phases
from backend.reliability.tiers import Tier, survives, tiers_outlook
from tests.backend.reliability.facts import accounted, attempt

DAY = 86_400.0


def test_the_exact_share_is_that_of_a_simulation_also_where_the_first_order_fails() -> None:
    for mttf, restart, every, write in ((600.0, 60.0, 100.0, 5.0), (128.0, 60.0, 60.0, 2.0)):
        share, error = simulated_ettr(mttf, restart, every, write, lives=200_000)
        assert exact_ettr(mttf, restart, every, write) == pytest.approx(share, abs=5 * error)
    best = best_interval_s(600.0, 5.0)
    assert exact_ettr(600.0, 60.0, best, 5.0) >= max(exact_ettr(600.0, 60.0, best * f, 5.0) for f in (0.8, 1.25))


def test_a_short_past_says_nothing_of_the_next_day() -> None:
    found = failure_risk(accounted([attempt(end=DAY)], 3 * DAY))
    assert not found.nodes
    assert "28 are needed" in found.silent


def test_a_repair_held_where_no_fault_came_back_within_a_week() -> None:
    outages = [
        OutageFacts("a", DAY, DAY + 600, "DOWN", "gpu replaced"),
        OutageFacts("b", DAY, DAY + 600, "DOWN", "rebooted"),
        OutageFacts("b", 3 * DAY, 3 * DAY + 600, "DOWN", "rebooted"),
    ]
    rows = {row.what: row for row in efficacy(accounted([], 20 * DAY, outages=outages))}
    assert (rows["replace"].held, rows["replace"].n) == (1, 1)
    assert (rows["reboot"].held, rows["reboot"].n) == (1, 2)
    assert what_of("who knows") == "not said"


def test_exclusions_that_come_and_go_are_counted_with_their_hand_and_their_proof() -> None:
    rows = [
        attempt("1", 0, "NODE_FAIL", end=DAY, excluded=("x",)),
        attempt("1", 1, "COMPLETED", submit=DAY, start=DAY + 10, end=2 * DAY, excluded=("n1",)),
    ]
    found = churn(accounted(rows, 20 * DAY))
    assert {s.node for s in found.stands} == {"x", "n1"}
    assert found.by == {"u": 2}
    assert (found.proof.right, found.proof.n) == (1, 2)
    assert pareto({"a": 3, "b": 1}) == (("a", 3, 0.75), ("b", 1, 1.0))


def test_lost_time_goes_to_the_team_and_the_rack_with_its_price() -> None:
    facts = attempt(state="NODE_FAIL", end=3610.0, account="llm")
    told = accounted([facts], 7200.0, nodes=[NodeFacts("n1", rack="r1")])
    (team,) = lost(told, "team", price=2.0)
    assert (team.name, team.failures) == ("llm", 1)
    assert team.money is not None
    assert team.money.high == pytest.approx(2 * team.gpu_hours.high)
    assert [row.name for row in lost(told, "rack")] == ["r1"]
    assert usage(told).held == pytest.approx(8.0)


def test_the_rack_whose_nodes_fail_stands_out_and_the_others_do_not() -> None:
    nodes = [NodeFacts(f"n{i:02d}", rack=f"r{i // 10}") for i in range(40)]
    outages = [OutageFacts(f"n{i:02d}", DAY * (1 + i), DAY * (1 + i) + 60, "DOWN") for i in range(9)]
    found = differences(accounted([], 28 * DAY, nodes=nodes, outages=outages))
    assert [(row.attribute, row.value) for row in found if row.stands_out] == [("rack", "r0")]


def test_copies_on_peers_survive_a_node_and_not_their_whole_group() -> None:
    twin = Tier("peer", 60.0, 0.1, 5.0, group=2)
    assert survives(twin, 64, 1) == 1.0
    assert survives(twin, 64, 2) == pytest.approx(1 - 1 / 63)
    assert survives(Tier("erasure", 60.0, 0.1, 5.0, group=8, parity=2), 64, 2) == 1.0
    disk = Tier("disk", 3600.0, 60.0, 300.0)
    assert tiers_outlook([twin, disk], 64, DAY, 120.0).ettr > tiers_outlook([disk], 64, DAY, 120.0).ettr


def test_a_save_shows_its_ceiling_its_queue_and_the_client_that_lags() -> None:
    at = np.arange(0.0, 600.0, 15.0)
    written = np.zeros((len(at), 8))
    written[10:20] = 1e9
    written[10:30, 7] = 5e8
    queue = np.where(written > 0, 9.3, 0.0)
    counters = Counters(at, tuple("abcdefgh"), written, np.zeros_like(written), queue_s=queue, request_s=queue / 0.93)
    (found,) = phases(counters, save_bytes_s=4e8)
    assert found.kind == "save"
    assert found.queue_share == pytest.approx(0.93)
    assert [row.client for row in found.stragglers] == ["h"]


def test_three_quick_failures_in_a_row_are_a_loop() -> None:
    rows = [attempt("1", i, "FAILED", submit=i * 600.0, start=i * 600.0 + 10, end=i * 600.0 + 300) for i in range(4)]
    (found,) = crash_loops(accounted(rows, 2400.0))
    assert (found.failures, found.seen_at) == (4, 1500.0)
    assert not crash_loops(accounted(rows[:2], 2400.0))


def test_no_kind_stands_under_two_components() -> None:
    assert component_table()["gpu_bus_loss"] == "gpu"
