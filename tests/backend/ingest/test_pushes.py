"""Samples by number say what samples read label by label say; what is news, contested or away is read."""

from __future__ import annotations

import numpy as np
import pytest

from backend.facts import Batch, DeviceLabel
from backend.ingest.labels import Targets
from backend.ingest.pushes import AWAY_S, Pushes
from backend.ingest.remote_write import decode
from backend.replay.record import series_of
from backend.ring import Ring
from tests.backend.ingest.test_remote_write import CATALOGUE, GPU, MAX, STALE, T, packed, series


class Sender:
    """Pushes of one cluster, one after another."""

    def __init__(self) -> None:
        self.pushes, self.targets = Pushes(CATALOGUE), Targets()

    def push(self, *parts: bytes, now: float = T) -> Batch:
        return decode(packed(*parts), CATALOGUE, MAX, self.targets, self.pushes, now)


def told(batch: Batch) -> set[tuple[str, str, float, float]]:
    """Metric, UUID, time and value of all samples, however they came; NaN as -1."""
    rows = [(one.metric, one.label.uuid, one.times, one.values) for one in batch.series]
    assert batch.columns is not None
    rows += [(metric, getattr(label, "uuid", ""), at, value) for metric, label, _, at, value in batch.columns.series()]
    return {(m, u, t, v) for m, u, at, value in rows for t, v in zip(at, np.nan_to_num(value, nan=-1.0), strict=True)}


def test_a_known_series_is_not_read_again_and_says_the_same() -> None:
    sender = Sender()
    first = sender.push(series(GPU, [(T, 51.0)]))
    again = sender.push(series(GPU, [(T + 15, 52.0)]), now=T + 15)
    assert first.columns and [label.uuid for label in first.columns.labels] == ["GPU-a"]
    assert again.columns and again.columns.labels == () and again.series == ()
    assert told(again) == {("temperature_c", "GPU-a", T + 15, 52.0)}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (9.223372036854775792e18, "blank"),
        (140737488355328.0, "blank"),
        (1.40737488355328e16, "blank"),
        (2147483632.0, "blank"),
        (4294967295.0, "out of range"),
        (float("inf"), "infinite"),
        (float("nan"), "not a number"),
    ],
)
def test_nonsense_is_dropped_by_number_as_it_is_by_label(value: float, reason: str) -> None:
    sender = Sender()
    sender.push(series(GPU, [(T, 51.0)]))
    known = sender.push(series(GPU, [(T + 15, value)]), now=T + 15)
    assert known.dropped == {reason: 1}
    assert decode(packed(series(GPU, [(T + 15, value)])), CATALOGUE, MAX).dropped == known.dropped


def test_the_end_of_a_series_is_missing_and_not_counted() -> None:
    sender = Sender()
    sender.push(series(GPU, [(T, 51.0)]))
    ended = sender.push(series(GPU, [(T + 15, STALE)]), now=T + 15)
    assert told(ended) == {("temperature_c", "GPU-a", T + 15, -1.0)} and not ended.dropped


def test_two_label_sets_of_one_device_in_one_push_are_merged_by_their_labels() -> None:
    sender = Sender()
    pod = GPU | {"zone": "b"}
    sender.push(series(GPU, [(T, 51.0)]))
    both = sender.push(series(GPU, [(T + 15, 52.0)]), series(pod, [(T + 15, 99.0)]), now=T + 15)
    assert len(both.series) == 1 and not both.columns


def test_another_job_on_a_device_is_news() -> None:
    sender = Sender()
    for job in ("7", "8", "7"):
        batch = sender.push(series(GPU | {"hpc_job": job}, [(T, 51.0)]))
        assert batch.columns and [label.job for label in batch.columns.labels] == [job]


def test_samples_out_of_order_are_put_in_order_when_known_too() -> None:
    sender = Sender()
    sender.push(series(GPU, [(T - 15, 51.0)]))
    batch = sender.push(series(GPU, [(T + 30, 3.0), (T, 1.0), (T, 9.0)]))
    assert batch.series[0].times.tolist() == [T, T + 30] and batch.series[0].values.tolist() == [1.0, 3.0]


def test_a_series_that_was_away_is_read_anew() -> None:
    sender = Sender()
    sender.push(series(GPU, [(T, 51.0)]))
    later = T + AWAY_S + 1
    batch = sender.push(series(GPU, [(later, 51.0)]), now=later)
    assert batch.columns and len(batch.columns.labels) == 1


def test_series_that_are_gone_are_forgotten_and_the_others_stay() -> None:
    sender = Sender()
    for at in range(5):
        now = T + 1900.0 * at
        sender.push(*(series(GPU | {"zone": f"{at}-{n}"}, [(now, 50.0)]) for n in range(2000)), now=now)
    assert len(sender.pushes) < 6000


def test_ticks_are_the_same_by_number_and_by_label() -> None:
    """Gauges and counters, one that starts anew, samples that come late, twice in a tick, or are lost."""
    dice = np.random.default_rng(3)
    sender = Sender()
    by_number, by_label = (Ring(CATALOGUE.metrics, 15.0, 5.0) for _ in range(2))

    def slot(label: DeviceLabel) -> int:
        return int(label.uuid.removeprefix("GPU-"))

    seen = 0
    for step in range(12):
        now = T + 15.0 * step
        parts = []
        for gpu in range(6):
            for name in ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"):
                at = now - 2.0 - (20 if dice.random() < 0.1 else 0)
                samples = [(at - 7, 3.0 * step), (at, 3.0 * step + 1)] if dice.random() < 0.2 else [(at, 3.0 * step)]
                if step == 7:
                    samples = [(at, 1.0)]
                if dice.random() < 0.9:
                    parts.append(series(GPU | {"__name__": name, "UUID": f"GPU-{gpu}"}, samples))
        by_number.accept(sender.push(*parts, now=now), slot, now)
        by_label.accept(decode(packed(*parts), CATALOGUE, MAX), slot, now)
        for one, other in zip(by_number.due(now + 6), by_label.due(now + 6), strict=True):
            assert one.at == other.at and one.values.keys() == other.values.keys()
            for key, values in one.values.items():
                np.testing.assert_array_equal(values, other.values[key])
                np.testing.assert_array_equal(one.sampled[key], other.sampled[key])
            seen += 1
    assert seen > 8 and by_number.late == by_label.late > 0


def test_a_recording_holds_what_came_by_number() -> None:
    sender = Sender()
    sender.push(series(GPU, [(T, 51.0)]))
    (one,) = series_of(sender.push(series(GPU, [(T + 15, 52.0)]), now=T + 15))
    assert (one.metric, one.label.uuid, one.values.tolist()) == ("temperature_c", "GPU-a", [52.0])
