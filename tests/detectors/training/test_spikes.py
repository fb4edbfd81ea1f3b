"""The published rules, against values worked out by hand."""

from __future__ import annotations

import numpy as np

from detectors.training import spikes


def past(values: list[float]) -> spikes.Window:
    ring = np.zeros((spikes.WINDOW, 1))
    ring[: len(values), 0] = values
    return spikes.window_of(ring, np.array([float(len(values))]))


def test_olmo_skips_above_six_unbiased_deviations_and_only_from_the_64th_value_on() -> None:
    values = [1.0, 3.0] * 32
    window = past(values)
    assert window.mean[0] == 2.0 and np.isclose(window.sd[0], np.std(values, ddof=1))
    over, under = 2.0 + 6.001 * window.sd, 2.0 + 5.999 * window.sd
    assert spikes.skip_step(over, window)[0] and not spikes.skip_step(under, window)[0]
    assert not spikes.skip_step(np.array([1e9]), past(values[:63]))[0]


def test_the_stability_monitor_wants_a_full_window_and_the_deviation_of_the_population() -> None:
    window = past([1.0, 3.0] * 64)
    assert window.population_sd[0] == 1.0
    assert spikes.unstable(np.array([8.001]), window)[0] and not spikes.unstable(np.array([8.0]), window)[0]
    assert not spikes.unstable(np.array([1e9]), past([1.0, 3.0] * 63))[0]


def test_zclip_cuts_to_six_and_a_quarter_deviations_over_z_and_its_variance_takes_the_new_mean() -> None:
    clip = spikes.zclip(np.array([6.0]), np.array([1.0]), np.array([1.0]))
    z = 5.0 / (1.0 + 1e-6)
    assert np.isclose(clip.z[0], z) and np.isclose(clip.clipped[0], 1.0 + 6.25 / z)
    mean = 0.97 * 1.0 + 0.03 * clip.clipped[0]
    assert np.isclose(clip.mean[0], mean)
    assert np.isclose(clip.variance[0], 0.97 + 0.03 * (clip.clipped[0] - mean) ** 2)
    assert spikes.zclip(np.array([3.4]), np.array([1.0]), np.array([1.0])).clipped[0] == 3.4


def test_adagc_cuts_to_1_05_of_the_mean_of_cut_norms() -> None:
    cut, after = spikes.adagc(np.array([2.0, 1.0]), np.array([1.0, 1.0]))
    assert np.allclose(cut, [1.05, 1.0]) and np.allclose(after, [0.98 + 0.02 * 1.05, 1.0])


def test_the_oldest_value_makes_room_for_the_newest() -> None:
    ring, held = np.zeros((spikes.WINDOW, 1)), np.zeros(1)
    for value in range(200):
        spikes.push(ring, held, np.array([0]), np.array([float(value)]))
    assert sorted(ring[:, 0]) == [float(value) for value in range(72, 200)]
