"""The formulas of attention, router and policy against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.training import dynamics

DICE = np.random.default_rng(3)


def test_the_small_core_has_the_singular_values_of_the_whole_first_order_change() -> None:
    wq, wk, dwq, dwk = (DICE.standard_normal((12, 3)) for _ in range(4))
    whole = dwq @ wk.T + wq @ dwk.T
    found = dynamics.qk_spectrum(wq, wk, dwq, dwk)
    want = dynamics.spectrum(np.linalg.svd(whole, compute_uv=False))
    assert np.isclose(found.norm, np.linalg.norm(whole))
    assert np.allclose([found.entropy, found.stable_rank], [want.entropy, want.stable_rank])


def test_n_equal_singular_values_have_entropy_ln_n_and_both_ranks_n() -> None:
    found = dynamics.spectrum(np.full(5, 2.0))
    assert np.allclose([found.entropy, found.effective_rank, found.stable_rank], [np.log(5), 5, 5])
    assert dynamics.spectrum(np.zeros(4)).effective_rank == 0.0


def test_router_similarity_is_the_mean_cosine_of_pairs() -> None:
    rows = DICE.standard_normal((6, 9))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    pairs = (unit @ unit.T)[np.triu_indices(6, 1)]
    assert np.isclose(dynamics.router_similarity(rows), pairs.mean())
    assert np.isclose(dynamics.router_similarity(np.ones((4, 3))), 1.0)
    assert np.isclose(dynamics.router_conditioning(np.array([[3.0, 0.0], [1.0, 0.0]])), 0.5)


def test_load_tells_the_busiest_and_the_dead() -> None:
    found = dynamics.load(np.array([0.5, 0.5, 0.0, 0.0]))
    assert (found.largest, found.dead) == (2.0, 2) and np.isclose(found.cv, 1.0)
    assert np.isclose(dynamics.token_entropy(np.full((3, 4), 0.25)), np.log(4))


def test_the_effective_sample_share_is_one_for_equal_weights_and_one_nth_for_a_single_one() -> None:
    assert np.isclose(dynamics.effective_sample_share(np.full(8, 700.0)), 1.0)
    assert np.isclose(dynamics.effective_sample_share(np.array([900.0, 0.0, 0.0, 0.0])), 0.25)
    w = np.exp(DICE.standard_normal(50))
    assert np.isclose(dynamics.effective_sample_share(np.log(w)), 1 / np.mean((w / w.mean()) ** 2))  # as verl has it


def test_m2_counts_the_tokens_that_a_clip_would_act_on() -> None:
    ratio, gain = np.array([0.2, -0.3, 0.4, -0.1]), np.array([1.0, 1.0, -1.0, -1.0])
    assert np.isclose(dynamics.second_moment(ratio, gain), (0.2**2 + 0.1**2) / 2)
    assert dynamics.second_moment(np.zeros(3), np.ones(3)) == 0.0


@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_mismatch_follows_its_definitions(shift: float) -> None:
    rollout = np.log(DICE.random(12))
    found = dynamics.mismatch(rollout + shift, rollout, np.array([4, 8]))
    assert np.isclose(found.kl, -shift) and np.isclose(found.k3, np.exp(shift) - shift - 1)
    assert np.isclose(found.chi2_token, np.exp(2 * shift) - 1)
    assert np.isclose(found.chi2_seq, (np.exp(8 * shift) + np.exp(16 * shift)) / 2 - 1)
    assert np.isclose(found.is_mean, np.exp(shift)) and np.isclose(found.is_sd, 0) and found.veto_share == 0
