"""Figures of papers.md that can be worked out: retry chains, concentration, bounds, phases of storage, spares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from backend.reliability.exclusions import exclusions
from backend.reliability.expected import effective_share, exact_ettr, expected_ettr, mttf_s, simulated_ettr, standbys
from backend.reliability.intervals import rate, wilson
from backend.reliability.retries import chains_of, counted, gaps, quartiles
from backend.reliability.storage import Counters, bandwidth, phases
from tests.backend.reliability.facts import accounted, attempt

DAY, MINUTE = 86_400.0, 60.0


def chain(number: int, times: int, completes: bool, at: float) -> list:  # type: ignore[type-arg]
    """``times`` attempts of one job, requeued 11 min after each failure (but for one in five: 10)."""
    found = []
    for restart in range(times):
        end = at + 3600
        last = restart == times - 1
        state = "COMPLETED" if last and completes else "CANCELLED" if last else "NODE_FAIL"
        found.append(attempt(f"{number}", restart, state, run=f"r{number}", submit=at, eligible=at, start=at, end=end))
        at = end + (10 if (number + restart) % 5 == 0 else 11) * MINUTE
    return found


def test_four_of_twelve_chains_of_73_attempts_are_a_third_and_eleven_minutes_apart() -> None:
    sizes = [6] * 11 + [7]
    rows = [a for i, n in enumerate(sizes) for a in chain(i, n, i % 3 == 0, i * DAY)]
    told = accounted(rows, 30 * DAY)
    auto = counted(chains_of(told), "auto")
    assert (auto.chains, auto.success, auto.attempts) == (12, 4, 73)
    assert auto.rate == pytest.approx(0.333, abs=5e-4)
    assert auto.interval is not None and (auto.interval.low, auto.interval.high) == pytest.approx(
        (0.138, 0.609), abs=5e-4
    )
    assert auto.rate is not None and auto.rate / 0.125 == pytest.approx(2.7, abs=0.05)
    spread = quartiles(gaps(told, "requeue"))
    assert spread.median_s == 11 * MINUTE
    assert (spread.q1_s, spread.q3_s) in ((10 * MINUTE, 11 * MINUTE), (11 * MINUTE, 11 * MINUTE))


def test_three_of_63_nodes_hold_more_than_half_of_all_exclusions() -> None:
    names = [f"n{i:02d}" for i in range(63)]
    counts = [40, 25, 15] + [1] * 60
    rows = [
        attempt(f"{node}-{i}", 0, "COMPLETED", end=60.0, excluded=(node,))
        for node, count in zip(names, counts, strict=True)
        for i in range(count)
    ]
    found = exclusions(rows, 63)
    assert found.total == 140 and [name for name, _ in found.top3] == names[:3]
    assert found.top3_share == pytest.approx(80 / 140)
    ordered, n = np.sort(counts), 63
    gini = float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * ordered.sum()))
    assert found.gini == pytest.approx(gini)


def test_ten_of_ten_is_at_least_69_percent_and_no_false_alarm_a_day_is_bounded() -> None:
    assert stats.beta.ppf(0.025, 10, 1) == pytest.approx(0.692, abs=5e-4)
    within = wilson(10, 10)
    assert within is not None and within.low == pytest.approx(0.722, abs=5e-4)
    alarms = rate(46, 55.0)  # 0.84 a day over 55 days
    assert alarms.value == pytest.approx(0.84, abs=0.005)
    assert alarms.interval is not None
    assert (alarms.interval.low, alarms.interval.high) == pytest.approx((0.612, 1.116), abs=2e-3)


def test_the_taxonomy_adds_up() -> None:
    kinds = {"nvlink": 5, "ecc": 2, "off the bus": 2, "gsp": 1, "unreachable": 2, "degraded": 5}
    assert sum(kinds.values()) == 17
    shares = [round(100 * count / 17, 1) for count in kinds.values()]
    assert shares == [29.4, 11.8, 11.8, 5.9, 11.8, 29.4]
    assert kinds["unreachable"] + kinds["degraded"] == 7 and round(100 * 7 / 17) == 41


def test_save_bursts_and_restart_loads_are_found_at_the_published_rates() -> None:
    """Saves above 20 GB/s of 63 nodes; loads above 2 GB/s with idle GPUs: 150.8 GB/s of 700 is 21.5 %."""
    at = np.arange(0, 3600, 30.0)
    written, read = np.zeros((len(at), 63)), np.zeros((len(at), 63))
    written[20:26] = 40e9 / 63  # 16.0 % of 250 GB/s
    read[60:120] = 150.8e9 / 63
    told = Counters(
        at, tuple(f"n{i}" for i in range(63)), written, read, gpu_util=np.where((at >= 1800), 5.0, 95.0),
        ceiling_write=250e9, ceiling_read=700e9,
    )  # fmt: skip
    save, load = phases(told)
    assert (save.kind, load.kind) == ("save", "load")
    assert save.of_ceiling == pytest.approx(0.160, abs=1e-3) and load.of_ceiling == pytest.approx(0.215, abs=5e-4)
    assert load.end - load.begin == pytest.approx(1800)
    quiet = Counters(at, told.clients, np.full_like(written, 19e9 / 63), np.full_like(read, 1.9e9 / 63))
    assert phases(quiet) == []
    busy = Counters(at, told.clients, np.zeros_like(written), read, gpu_util=np.full(len(at), 95.0))
    assert phases(busy) == []  # what is read while GPUs work is data


def test_nine_tenths_of_a_write_in_the_queue_are_slots_that_are_short() -> None:
    """WRITE latency was 93.1 % queue time; 92.2 % of 1,621 ms a request."""
    at, shape = np.arange(0, 600, 30.0), (20, 8)
    asked, took = np.full(shape, 100.0), np.full(shape, 162.1)
    told = Counters(
        at, tuple(f"n{i}" for i in range(8)), np.full(shape, 5e9), np.zeros(shape), asked, took * 0.922, took, slots=128
    )
    (save,) = phases(told)
    assert save.queue_share == pytest.approx(0.922)
    assert save.response_s == pytest.approx(1.621)
    assert save.held_by == "rpc slots"


def test_bandwidth_is_bytes_over_seconds_of_all_and_what_tells_nothing_is_left_out() -> None:
    found = bandwidth([(300e9, 2.0), (100e9, 2.0), (0.0, 5.0), (5e9, 0.0)], ceiling=700e9)
    assert (found.n, found.mean_bytes_s) == (2, 100e9)
    assert found.of_ceiling == pytest.approx(1 / 7)
    assert bandwidth([]).mean_bytes_s is None


@pytest.mark.parametrize(("nodes", "exact"), [(128, 1), (256, 2), (512, 3), (1024, 4)])
def test_a_chance_of_a_thousandth_needs_a_spare_less_on_128_machines(nodes: int, exact: int) -> None:
    assert standbys(nodes, 0.001) == exact


def test_2_3_interruptions_a_thousand_servers_and_day_and_their_table() -> None:
    causes = [155, 122, 61, 50, 48, 42, 39, 38, 37, 36, 30, 8, 7, 2, 2, 1]
    assert sum(causes) == 678
    shares = [round(100 * count / 678, 1) for count in causes[:11]]
    assert shares == pytest.approx([22.9, 18.0, 9.0, 7.4, 7.1, 6.2, 5.8, 5.6, 5.5, 5.3, 4.4], abs=0.051)
    assert 7 * DAY / mttf_s(4096, 2.3e-3) == pytest.approx(2.3 * 4.096 * 7)
    assert effective_share(18 * MINUTE, 3 * MINUTE) > 0.80 > effective_share(18 * MINUTE, 10 * MINUTE)


def test_the_first_order_holds_where_the_loss_is_small_and_the_exact_one_everywhere() -> None:
    for nodes, restart, every in ((512, 5, 60), (2000, 5, 60), (12_500, 5, 7)):
        mttf = mttf_s(nodes, 6.5e-3)
        share, error = simulated_ettr(mttf, restart * MINUTE, every * MINUTE, lives=100_000)
        assert exact_ettr(mttf, restart * MINUTE, every * MINUTE) == pytest.approx(share, abs=5 * error)
        if (restart + every / 2) * MINUTE < 0.1 * mttf:
            assert expected_ettr(mttf, restart * MINUTE, every * MINUTE) == pytest.approx(share, rel=0.05)


def test_llama_3_was_interrupted_every_three_hours() -> None:
    found = rate(419, 54 * 24.0)
    assert found.interval is not None
    assert 1 / found.interval.high < 3.09 < 1 / found.interval.low
