"""Ticks: lateness, rates, what is missing, what is not due, and what nobody looked at."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.facts import Batch, DeviceLabel, Series
from backend.ring import GAP_TICKS, Ring, fit
from detectors.catalogue import load
from detectors.fleet import FleetRow, draw
from detectors.model import Fleet, Tick

METRICS = load().metrics
#: A tick's time: a multiple of 15.
T = 1_770_000_000.0
GAUGE, COUNTER, CODE = "temperature_c", "pcie_replay", "xid_last"


def label(gpu: int) -> DeviceLabel:
    return DeviceLabel("gpu", "gpu-0001", uuid=f"GPU-{gpu}")


def slot_of(who: DeviceLabel) -> int | None:
    return int(who.uuid.removeprefix("GPU-")) if who.uuid else None


def series(gpu: int, samples: Iterable[tuple[float, float]], metric: str = GAUGE) -> Series:
    pairs = sorted(samples)
    return Series(metric, label(gpu), np.array([t for t, _ in pairs]), np.array([v for _, v in pairs], np.float64))


def push(*given: Series) -> Batch:
    return Batch("push", 0.0, 0.0, given)


def pull(start: float, end: float, *given: Series) -> Batch:
    return Batch("prometheus", start, end, given)


def ring(interval_s: float = 15.0, lateness_s: float = 15.0) -> Ring:
    return Ring(METRICS, interval_s, lateness_s)


def value(tick: Tick, gpu: int, metric: str = GAUGE) -> float:
    return float(tick.values[("gpu", metric)][gpu])


def sampled(tick: Tick, gpu: int, metric: str = GAUGE) -> bool:
    return bool(tick.sampled[("gpu", metric)][gpu])


def scraped(made: Ring, ticks: int, gpus: Iterable[int] = (0, 1), every_s: float = 15.0, phase_s: float = 4.0) -> None:
    """Healthy pulls of whole ticks, so that cadences are known."""
    for n in range(ticks):
        start, end = T + n * 15, T + (n + 1) * 15
        due = [t for t in np.arange(T + phase_s, T + 10_000, every_s) if start < t <= end]
        made.accept(pull(start, end, *(series(g, [(t, 60.0 + n) for t in due]) for g in gpus)), slot_of, end)


# --- which tick, when ------------------------------------------------------------------------------------------------


def test_a_sample_belongs_to_the_first_tick_not_before_it() -> None:
    made = ring()
    made.accept(push(series(0, [(T + 0.001, 1.0), (T + 15, 2.0), (T + 15.001, 3.0)])), slot_of, T + 16)
    first, second = list(made.due(T + 45))
    assert (first.at, value(first, 0)) == (T + 15, 2.0)
    assert (second.at, value(second, 0)) == (T + 30, 3.0)


def test_a_tick_closes_at_its_lateness_and_is_given_once() -> None:
    made = ring()
    made.accept(push(series(0, [(T + 5, 1.0)])), slot_of, T + 6)
    assert list(made.due(T + 29.9)) == []
    assert [tick.at for tick in made.due(T + 30)] == [T + 15]
    assert list(made.due(T + 30)) == []


def test_a_late_sample_is_counted_and_changes_nothing() -> None:
    made = ring()
    made.accept(push(series(0, [(T + 5, 1.0)])), slot_of, T + 6)
    list(made.due(T + 30))
    made.accept(push(series(0, [(T + 7, 9.0), (T + 20, 2.0)])), slot_of, T + 31)
    assert made.late == 1
    assert [value(tick, 0) for tick in made.due(T + 45)] == [2.0]


def test_nothing_is_yielded_before_the_first_sample() -> None:
    made = ring()
    assert list(made.due(T)) == []
    made.accept(push(series(0, [(T + 50, 1.0)])), slot_of, T + 51)
    assert [tick.at for tick in made.due(T + 90)] == [T + 60, T + 75]


def test_a_long_dead_gap_is_skipped_and_said() -> None:
    made = ring()
    scraped(made, 3)
    before = len(list(made.due(T + 60)))
    day = T + 86_400
    after = list(made.due(day))
    assert before + len(after) < GAP_TICKS + 10
    assert made.skipped > 5_000
    assert [tick.at for tick in after] == sorted(tick.at for tick in after)
    assert after[-1].at == day - 15
    assert not any(array.any() for tick in after for array in tick.sampled.values())


def test_a_sample_from_the_far_future_is_dropped_and_holds_no_tick() -> None:
    made = ring()
    made.accept(push(series(0, [(T + 5, 1.0), (T + 1e9, 2.0)])), slot_of, T + 6)
    assert made.dropped["from the future"] == 1
    assert [tick.at for tick in made.due(T + 30)] == [T + 15]


def test_history_from_before_the_start_is_not_replayed_tick_by_tick() -> None:
    made = ring()
    made.accept(push(series(0, [(T - 86_400, 1.0), (T, 2.0)])), slot_of, T + 1)
    assert made.late == 1
    assert [value(tick, 0) for tick in made.due(T + 15)] == [2.0]


# --- rates -----------------------------------------------------------------------------------------------------------


def rates(*samples: tuple[float, float], until: float = 90) -> list[float]:
    made = ring()
    made.accept(push(series(0, [(T + t, v) for t, v in samples], COUNTER)), slot_of, T + 1)
    return [value(tick, 0, COUNTER) for tick in made.due(T + until)]


def test_a_counter_becomes_a_rate_on_the_samples_own_times() -> None:
    first, second = rates((4, 100.0), (20, 132.0), until=45)
    assert np.isnan(first) and second == 2.0


def test_a_reset_counts_from_zero() -> None:
    """traps.md 18: counter 900, 910, [restart] 5, 20 with one scrape missed."""
    found = rates((0.0, 900.0), (15, 910.0), (45, 5.0), (60, 20.0))
    assert found[1:5] == pytest.approx([10 / 15, np.nan, 5 / 30, 1.0], nan_ok=True)


def test_a_64_bit_wrap_is_a_small_step() -> None:
    """traps.md 18: 18446744073709551610 -> 4."""
    assert rates((4, 18446744073709551610.0), (19, 4.0), until=45)[1] == pytest.approx(4 / 15)


def test_an_unsigned_counter_that_steps_below_zero_is_no_flood() -> None:
    assert rates((4, 4.0), (19, 18446744073709551610.0), until=45)[1] == 0.0


def test_a_reset_between_two_samples_of_one_tick_is_seen() -> None:
    assert rates((4, 100.0), (20, 130.0), (25, 10.0), until=45)[1] == pytest.approx((30 + 10) / 21)


def test_rates_are_exact_for_large_counters() -> None:
    """float32 would see no change here at all."""
    assert rates((4, 9e15), (19, 9e15 + 30.0), until=45)[1] == 2.0


def test_a_counter_that_was_away_for_long_starts_anew() -> None:
    made = ring()
    made.accept(push(series(0, [(T + 4, 100.0), (T + 19, 130.0)], COUNTER)), slot_of, T + 20)
    list(made.due(T + 45))
    made.accept(push(series(0, [(T + 4000, 9_000_000.0)], COUNTER)), slot_of, T + 4001)
    last = list(made.due(T + 4021))[-1]
    assert last.at == T + 4005
    assert np.isnan(value(last, 0, COUNTER)) and not sampled(last, 0, COUNTER)


def test_the_first_sample_of_a_counter_is_neither_a_rate_nor_missing() -> None:
    made = ring()
    made.accept(push(series(0, [(T + 4, 100.0)], COUNTER)), slot_of, T + 5)
    (tick,) = made.due(T + 30)
    assert np.isnan(value(tick, 0, COUNTER)) and not sampled(tick, 0, COUNTER)


def test_a_last_code_is_passed_as_a_level() -> None:
    """traps.md 5: 31 stays for hours, then the exporter restarts and says 0. Never a rate."""
    made = ring()
    made.accept(push(series(0, [(T + 4, 31.0), (T + 19, 31.0), (T + 34, 0.0)], CODE)), slot_of, T + 5)
    assert [value(tick, 0, CODE) for tick in made.due(T + 60)] == [31.0, 31.0, 0.0]


# --- missing, not due, unseen ----------------------------------------------------------------------------------------


def test_a_series_that_stopped_while_a_read_covers_the_time_is_missing() -> None:
    """traps.md 8: gpu 2 absent, the others present."""
    made = ring()
    scraped(made, 4, gpus=range(8))
    list(made.due(T + 60))
    others = [g for g in range(8) if g != 2]
    made.accept(pull(T + 60, T + 75, *(series(g, [(T + 64, 60.0)]) for g in others)), slot_of, T + 75)
    (*_, tick) = made.due(T + 90)
    assert tick.at == T + 75
    assert sampled(tick, 2) and np.isnan(value(tick, 2))
    assert all(sampled(tick, g) and value(tick, g) == 60.0 for g in others)


def test_when_all_series_stop_under_a_read_all_are_missing() -> None:
    made = ring()
    scraped(made, 4)
    made.accept(pull(T + 60, T + 75), slot_of, T + 75)
    (*_, tick) = made.due(T + 90)
    assert sampled(tick, 0) and sampled(tick, 1) and np.isnan(value(tick, 0))


def test_when_nobody_looked_nothing_was_sampled() -> None:
    """Prometheus itself is away: the detectors are blind, not clear."""
    made = ring()
    scraped(made, 4)
    (*_, tick) = made.due(T + 90)
    assert tick.at == T + 75
    assert not sampled(tick, 0) and np.isnan(value(tick, 0))


def test_a_read_that_broke_off_half_way_blames_nobody() -> None:
    """The source saw half of this tick: who had not spoken by then is unseen, not missing."""
    made = ring()
    for n in range(4):
        start, end = T + n * 15, T + n * 15 + 15
        batch = pull(start, end, series(0, [(start + 2, 60.0)]), series(1, [(start + 12, 60.0)]))
        made.accept(batch, slot_of, end)
    made.accept(pull(T + 60, T + 67, series(0, [(T + 62, 60.0)])), slot_of, T + 67)
    (*_, tick) = made.due(T + 90)
    assert tick.at == T + 75
    assert sampled(tick, 0) and not sampled(tick, 1)


def test_one_of_two_sources_going_dark_darkens_only_its_own() -> None:
    made = ring()
    for n in range(5):
        start, end = T + n * 15, T + n * 15 + 15
        made.accept(Batch("a", start, end, (series(0, [(start + 4, 60.0)]),)), slot_of, end)
        if n < 4:
            made.accept(Batch("b", start, end, (series(1, [(start + 4, 60.0)]),)), slot_of, end)
    (*_, tick) = made.due(T + 90)
    assert sampled(tick, 0) and not sampled(tick, 1)


def test_a_push_that_leaves_one_out_shows_it_missing() -> None:
    """Nothing says what a push covers, but samples of others with the same or a later time do."""
    made = ring()
    for n in range(5):
        at = T + n * 15 + 4
        gone = n == 4
        made.accept(push(*(series(g, [(at, 60.0)]) for g in ((0,) if gone else (0, 1)))), slot_of, at)
    (*_, tick) = made.due(T + 90)
    assert sampled(tick, 0) and sampled(tick, 1) and np.isnan(value(tick, 1))


def test_a_push_that_stops_altogether_is_dark() -> None:
    made = ring()
    for n in range(4):
        made.accept(push(series(0, [(T + n * 15 + 4, 60.0)])), slot_of, T + n * 15 + 4)
    (*_, tick) = made.due(T + 90)
    assert not sampled(tick, 0)


def test_a_slow_scrape_is_not_due_in_between() -> None:
    made = ring()
    scraped(made, 12, gpus=(0,), every_s=60.0)
    found = {tick.at - T: (sampled(tick, 0), value(tick, 0)) for tick in made.due(T + 195)}
    assert [at for at, (was, _) in found.items() if was] == [15, 75, 135]
    made.accept(pull(T + 180, T + 270), slot_of, T + 270)
    later = {tick.at - T: sampled(tick, 0) for tick in made.due(T + 285)}
    assert [at for at, was in later.items() if was] == [195, 255]  # missing, once for each scrape that did not come


def test_a_metric_that_a_device_never_reported_is_not_sampled_there() -> None:
    """traps.md 15: blank is not supported, which is healthy."""
    made = ring()
    scraped(made, 4, gpus=(0,))
    made.accept(pull(T + 60, T + 75, series(0, [(T + 64, 60.0)]), series(1, [(T + 64, 1.0)], CODE)), slot_of, T + 75)
    (*_, tick) = made.due(T + 90)
    assert not sampled(tick, 1) and np.isnan(value(tick, 1))


def test_nan_is_missing_only_where_there_once_was_a_number() -> None:
    made = ring()
    made.accept(push(series(0, [(T + 4, 60.0), (T + 19, np.nan)]), series(1, [(T + 19, np.nan)])), slot_of, T + 5)
    first, second = list(made.due(T + 45))
    assert value(first, 0) == 60.0
    assert sampled(second, 0) and np.isnan(value(second, 0))
    assert not sampled(second, 1)


def test_infinity_never_enters_a_level() -> None:
    made = ring()
    made.accept(push(series(0, [(T + 4, np.inf)])), slot_of, T + 5)
    (tick,) = made.due(T + 30)
    assert np.isnan(value(tick, 0))


def test_scrapes_that_jitter_over_a_ticks_edge_are_never_missing() -> None:
    made = ring()
    shaken = random.Random(7)
    for n in range(1, 40):
        at = T + n * 15 + shaken.uniform(-0.4, 0.4)
        made.accept(pull(T + n * 15 - 15, T + n * 15 + 1, series(0, [(at, 60.0)])), slot_of, T + n * 15 + 1)
        for tick in made.due(T + n * 15):
            assert not (sampled(tick, 0) and np.isnan(value(tick, 0)))


def test_what_is_in_no_inventory_is_counted() -> None:
    made = ring()
    nobody = Series(GAUGE, DeviceLabel("gpu", "gpu-0001", index="3"), np.array([T]), np.array([1.0]))
    made.accept(push(nobody), slot_of, T)
    assert sum(made.dropped.values()) == 1


# --- fleets ----------------------------------------------------------------------------------------------------------


def fleet(*ids: str) -> Fleet:
    return draw("main", 1, [FleetRow("n", "n", 0)], [FleetRow(id_, id_, 0) for id_ in ids])


def test_rows_follow_their_ids_into_another_fleet() -> None:
    made = ring()
    scraped(made, 4)
    made.accept(pull(T + 60, T + 75, series(0, [(T + 64, 50.0)]), series(1, [(T + 64, 51.0)])), slot_of, T + 75)
    list(made.due(T + 75))
    made.move(fleet("GPU-0", "GPU-1"), fleet("GPU-1", "GPU-9", "GPU-0"))
    (tick,) = made.due(T + 90)
    assert [value(tick, g) for g in (0, 2)] == [51.0, 50.0]
    assert np.isnan(value(tick, 1)) and not sampled(tick, 1)


def test_a_tick_fits_a_fleet_that_has_grown_since() -> None:
    made = ring()
    scraped(made, 2)
    grown = fleet("GPU-0", "GPU-1", "GPU-2")
    tick = fit(list(made.due(T + 45))[-1], grown)
    assert tick.values[("gpu", GAUGE)].shape == tick.sampled[("gpu", GAUGE)].shape == (3,)
    assert not sampled(tick, 2) and value(tick, 1) == 61.0


# --- properties ------------------------------------------------------------------------------------------------------

moments = st.floats(0.001, 59.9, allow_nan=False)
readings = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.integers(0, 2**64 - 1).map(float))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(moments, readings), min_size=1, max_size=20))
def test_rates_are_never_negative_nor_a_wrap(samples: list[tuple[float, float]]) -> None:
    made = ring()
    made.accept(push(series(0, [(T + t, v) for t, v in samples], COUNTER)), slot_of, T + 60)
    for tick in made.due(T + 90):
        rate = value(tick, 0, COUNTER)
        assert np.isnan(rate) or 0 <= rate < 2**63 / 1e-4


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.tuples(st.integers(0, 3), moments), st.floats(0, 100), min_size=1, max_size=24),
    st.randoms(use_true_random=False),
    st.sampled_from([GAUGE, COUNTER]),
)
def test_the_order_of_samples_does_not_matter_within_lateness(
    samples: dict[tuple[int, float], float], shuffle: random.Random, metric: str
) -> None:
    """Lateness of a minute: all of it may come in any order and any portions."""
    one = ring(lateness_s=60.0)
    by_gpu = [series(g, [(T + t, v) for (gpu, t), v in samples.items() if gpu == g], metric) for g in range(4)]
    one.accept(push(*(s for s in by_gpu if s.times.size)), slot_of, T + 60)
    other = ring(lateness_s=60.0)
    shuffled = list(samples.items())
    shuffle.shuffle(shuffled)
    for (gpu, t), v in shuffled:
        other.accept(push(series(gpu, [(T + t, v)], metric)), slot_of, T + 60)
    for mine, theirs in zip(one.due(T + 200), other.due(T + 200), strict=True):
        assert mine.at == theirs.at
        for key, array in mine.values.items():
            shared = min(array.size, theirs.values[key].size)
            np.testing.assert_array_equal(array[:shared], theirs.values[key][:shared])
            np.testing.assert_array_equal(mine.sampled[key][:shared], theirs.sampled[key][:shared])
    assert one.late == other.late == 0


# --- restarts ---------------------------------------------------------------------------------------------------------


def lived(ticks: int, every_s: float = 15.0) -> Ring:
    made = ring()
    scraped(made, ticks, every_s=every_s)
    list(made.due(T + ticks * 15))
    return made


def rest(made: Ring, now: float) -> list[tuple[float, list[float], list[bool]]]:
    """The ticks to come: GPU 1 falls silent, GPU 0 speaks on."""
    spoken = series(0, [(T + 109, 7.0), (T + 124, 8.0), (T + 139, 9.0)]), series(1, [(T + 109, 67.0)])
    made.accept(pull(T + 105, now, *spoken), slot_of, now)
    key = ("gpu", GAUGE)
    return [(t.at, t.values[key].tolist(), t.sampled[key].tolist()) for t in made.due(now + 15)]


@pytest.mark.parametrize("every_s", [15.0, 30.0])
def test_a_restored_ring_goes_on_as_if_nothing_had_been(every_s: float) -> None:
    before = lived(8, every_s)  # the last tick is still open: its samples are read again
    after = ring()
    assert after.restore(before.saved(), T + 121)
    assert after.behind_since() == T + 105
    assert str(rest(after, T + 150)) == str(rest(lived(8, every_s), T + 150))
    assert after.behind_since() is None


def test_a_restored_ring_waits_for_what_it_missed_but_not_for_ever() -> None:
    after = ring()
    after.restore(lived(8).saved(), T + 200)
    assert list(after.due(T + 229)) == []
    assert [tick.at for tick in after.due(T + 230)][0] == T + 120
    assert after.behind_since() is None


def test_a_ring_that_has_begun_or_is_of_the_future_is_not_restored() -> None:
    saved = lived(8).saved()
    assert not lived(3).restore(saved, T + 200)
    assert not ring().restore(saved, T - 3600)
    assert not ring().restore(ring().saved(), T)


def test_metrics_that_are_scraped_together_share_what_is_saved() -> None:
    made = ring()
    for n in range(4):
        at = T + n * 15 + 4
        made.accept(
            pull(T + n * 15, T + n * 15 + 15, *(series(0, [(at, n)], m) for m in METRICS if "up" not in m)), slot_of, at
        )
    list(made.due(T + 100))
    saved = made.saved()
    assert len(saved["metrics"]) > 10
    assert sum(name.startswith("array") for name in saved) < 8
