"""The formulas behind the signals of training, as plain functions on arrays: attention, router, asynchronous RL.

Numpy only, so that a job can compute them where its weights are. Sources: reference papers 2606.28116 (attention and
router), 2602.17616 (VCPO), 2510.01161 (M2PO), verl's mismatch metrics.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Reals = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Of the first-order change of one head's QK product. entropy: nats; norm: Frobenius."""

    entropy: float
    effective_rank: float
    stable_rank: float
    norm: float


def spectrum(singular: Reals) -> Spectrum:
    """2606.28116: p_i = s_i^2 / sum s^2, H = -sum p ln p, effective rank exp(H); stable rank sum s^2 / s_1^2. Zeros
    all over (nothing moved) have entropy 0 and both ranks 0. Raises nothing on NaN: it comes out again."""
    power = np.square(singular.astype(np.float64))
    total = float(power.sum())
    if total == 0.0:
        return Spectrum(0.0, 0.0, 0.0, 0.0)
    p = power / total
    entropy = float(-(p * np.log(np.where(p > 0, p, 1.0))).sum())
    return Spectrum(entropy, float(np.exp(entropy)), total / float(power.max()), total**0.5)


def qk_spectrum(wq: Reals, wk: Reals, dwq: Reals, dwk: Reals) -> Spectrum:
    """Of D2 = dWq Wk' + Wq dWk' = [dWq, Wq] [Wk, dWk]', all float[d, size] of one head, with Wq and Wk before the
    change. The singular values come from the small core of two QR factors, [2 size, 2 size] (2606.28116)."""
    left = _triangle(np.concatenate([dwq, wq], axis=1))
    right = _triangle(np.concatenate([wk, dwk], axis=1))
    return spectrum(np.linalg.svd(left @ right.T, compute_uv=False))


def _triangle(columns: Reals) -> Floats:
    """The R of a QR factorisation."""
    found: Floats = np.linalg.qr(columns.astype(np.float64))[1]
    return found


def router_similarity(rows: Reals) -> float:
    """float[E, d] -> mean pairwise cosine, (E ||mean_i w_i/||w_i|| ||^2 - 1) / (E - 1) (2606.28116); 1: all alike."""
    w = rows.astype(np.float64)
    unit = w / np.maximum(np.linalg.norm(w, axis=1, keepdims=True), 1e-30)
    experts = len(w)
    return float((experts * np.square(unit.mean(axis=0)).sum() - 1.0) / (experts - 1)) if experts > 1 else 1.0


def router_conditioning(rows: Reals) -> float:
    """float[E, d] -> max_i ||w_i - mean|| / ||mean|| (2606.28116)."""
    w = rows.astype(np.float64)
    middle = w.mean(axis=0)
    return float(np.linalg.norm(w - middle, axis=1).max() / max(float(np.linalg.norm(middle)), 1e-30))


def token_entropy(chance: Reals) -> float:
    """float[N, E], rows sum to 1 -> mean entropy of the full softmax a token, nats (2606.28116)."""
    p = chance.astype(np.float64)
    return float(-(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1).mean())


@dataclass(frozen=True, slots=True)
class Load:
    """largest: the busiest expert's share times E (1: even). dead: experts with under a tenth of an even share."""

    largest: float
    cv: float
    dead: int


def load(shares: Reals, dead_share: float = 0.1) -> Load:
    """float[E] that sum to 1: which part of the tokens each expert had."""
    even = shares.astype(np.float64) * len(shares)
    return Load(float(even.max()), float(even.std()), int((even < dead_share).sum()))


def effective_sample_share(log_ratio: Reals) -> float:
    """VCPO (2602.17616): w_i = exp(sum_t logp_train - logp_rollout), float[B] of their logarithms -> ESS / B,
    (sum w)^2 / (B sum w^2). Shifted by the largest, so that nothing overflows."""
    w = np.exp(log_ratio.astype(np.float64) - float(np.max(log_ratio)))
    return float(w.sum() ** 2 / (len(w) * np.square(w).sum()))


def second_moment(log_ratio: Reals, advantage: Reals) -> float:
    """M2PO (2510.01161): mean squared log ratio over tokens that the clip would act on: A > 0 and r > 1, or A < 0 and
    r < 1. 0 where there is none."""
    r, a = log_ratio.astype(np.float64), np.asarray(advantage)
    acted = ((a > 0) & (r > 0)) | ((a < 0) & (r < 0))
    return float(np.square(r[acted]).mean()) if acted.any() else 0.0


@dataclass(frozen=True, slots=True)
class Mismatch:
    """verl's metrics of trainer against sampler, from the log probabilities of the same tokens."""

    kl: float
    k3: float
    chi2_token: float
    chi2_seq: float
    is_mean: float
    is_sd: float
    is_max: float
    veto_share: float


def mismatch(train: Reals, rollout: Reals, lengths: NDArray[np.integer] | None = None) -> Mismatch:
    """float[N] log probabilities a token under trainer and sampler; lengths int[B]: tokens of each sequence, in order
    (none: one). kl = mean(rollout - train); k3 = mean(e^d - d - 1), d = train - rollout; chi2 = mean(r^2) - 1; veto:
    share of tokens with ratio < 1e-4. Exponents are cut at 20, as verl does, so that nothing overflows."""
    d = train.astype(np.float64) - rollout.astype(np.float64)
    ratio = np.exp(np.clip(d, -20.0, 20.0))
    ends = np.cumsum(lengths if lengths is not None else np.array([len(d)]))
    whole = np.exp(np.clip(np.diff(np.concatenate([[0.0], np.cumsum(d)[ends - 1]])), -20.0, 20.0))
    return Mismatch(
        kl=float(-d.mean()),
        k3=float((ratio - d - 1.0).mean()),
        chi2_token=float(np.square(ratio).mean() - 1.0),
        chi2_seq=float(np.square(whole).mean() - 1.0),
        is_mean=float(ratio.mean()),
        is_sd=float(ratio.std()),
        is_max=float(ratio.max()),
        veto_share=float((ratio < 1e-4).mean()),
    )
