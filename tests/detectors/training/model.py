"""A small transformer with gradients by hand, for tests: data-parallel ranks are separate computations on one axis.

Every array of activations leads with the ranks, [R, B, T, ...]; weights are shared, gradients are per rank, [R, ...].
``Broken`` changes what is computed, never what is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Weights = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Shape:
    """experts 0: a plain feed-forward layer; otherwise a switch (top-1) mixture with a load-balancing loss."""

    vocab: int = 24
    width: int = 32
    heads: int = 2
    layers: int = 2
    length: int = 16
    hidden: int = 64
    experts: int = 0
    ranks: int = 4
    batch: int = 4
    balance: float = 0.01


@dataclass(frozen=True, slots=True)
class Broken:
    """What is wrong with the arithmetic. round_bits: mantissa bits that attention weights keep (cut off, not rounded);
    layer: which layer that is (-1: all). rank: whose products of the first feed-forward matrix come out wrong in
    ``lanes`` (one column each), by the factor ``gain``."""

    round_bits: int = 0
    layer: int = -1
    rank: int = -1
    lanes: tuple[int, ...] = ()
    gain: float = 1.0


SOUND = Broken()


def begin(shape: Shape, seed: int) -> Weights:
    """Fresh weights, float32."""
    dice = np.random.default_rng(seed)
    d, h = shape.width, shape.hidden

    def normal(*size: int, scale: float) -> Array:
        return (scale * dice.standard_normal(size)).astype(np.float32)

    made: Weights = {"embed": normal(shape.vocab, d, scale=0.3), "place": normal(shape.length, d, scale=0.3)}
    for layer in range(shape.layers):
        for name in ("q", "k", "v"):
            made[f"{layer}.{name}"] = normal(d, d, scale=d**-0.5)
        made[f"{layer}.o"] = normal(d, d, scale=(2 * shape.layers * d) ** -0.5)
        made[f"{layer}.g1"] = np.ones(d, np.float32)
        made[f"{layer}.g2"] = np.ones(d, np.float32)
        if shape.experts:
            made[f"{layer}.router"] = normal(d, shape.experts, scale=d**-0.5)
        lead = (shape.experts,) if shape.experts else ()
        made[f"{layer}.in"] = normal(*lead, d, h, scale=d**-0.5)
        made[f"{layer}.out"] = normal(*lead, h, d, scale=(2 * shape.layers * h) ** -0.5)
    made["g"] = np.ones(d, np.float32)
    made["head"] = normal(d, shape.vocab, scale=d**-0.5)
    return made


def cut(values: Array, bits: int) -> Array:
    """float32 with all but ``bits`` bits of its mantissa cut off."""
    kept = np.uint32(0xFFFFFFFF << (23 - bits) & 0xFFFFFFFF)
    return (values.view(np.uint32) & kept).view(np.float32)


@dataclass(slots=True)
class Pass:
    """One forward and backward pass. losses float64[R]; grads by name, [R, ...]; loads by layer: share of the tokens
    of all ranks that each expert had, float64[experts]; entropy by layer: of the router, nats a token."""

    losses: NDArray[np.float64]
    grads: Weights
    loads: dict[int, NDArray[np.float64]]
    entropy: dict[int, float]


def run(shape: Shape, weights: Mapping[str, Array], tokens: NDArray[np.int64], broken: Broken = SOUND) -> Pass:
    """tokens int64[R, B, T + 1]; the loss is that of each next token."""
    said, asked = tokens[..., :-1], tokens[..., 1:]
    x = weights["embed"][said] + weights["place"]
    kept: list[Any] = []
    out = Pass(np.zeros(len(tokens)), {}, {}, {})
    for layer in range(shape.layers):
        x, attended = _attend(shape, weights, x, layer, broken)
        x, fed = _feed(shape, weights, x, layer, broken, out)
        kept.append((attended, fed))
    y, norm = _norm(x, weights["g"])
    logits = y @ weights["head"]
    logits -= logits.max(axis=-1, keepdims=True)
    chance = np.exp(logits)
    chance /= chance.sum(axis=-1, keepdims=True)
    right = np.take_along_axis(chance, asked[..., None], axis=-1)
    out.losses += -np.log(np.maximum(right, 1e-30)).mean(axis=(1, 2, 3), dtype=np.float64)
    chance -= asked[..., None] == np.arange(shape.vocab)
    chance *= 1.0 / (tokens.shape[1] * shape.length)
    g = out.grads
    g["head"] = _outer(y, chance)
    dx, g["g"] = _norm_back(chance @ weights["head"].T, norm, weights["g"])
    for layer in reversed(range(shape.layers)):
        attended, fed = kept[layer]
        dx = _feed_back(shape, weights, dx, layer, fed, g)
        dx = _attend_back(shape, weights, dx, layer, attended, g)
    g["place"] = dx.sum(axis=1)
    g["embed"] = np.zeros((len(tokens), *weights["embed"].shape), np.float32)
    np.add.at(g["embed"], (np.arange(len(tokens))[:, None, None], said), dx)
    return out


def _outer(left: Array, right: Array) -> Array:
    """Per rank: the sum over tokens of left x right, [R, a, b]."""
    r, a, b = len(left), left.shape[-1], right.shape[-1]
    summed: Array = np.matmul(left.reshape(r, -1, a).swapaxes(1, 2), right.reshape(r, -1, b))
    return summed


def _norm(x: Array, gain: Array) -> tuple[Array, tuple[Array, Array]]:
    scale = 1.0 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(1e-6))
    flat = x * scale
    return flat * gain, (flat, scale)


def _norm_back(dy: Array, norm: tuple[Array, Array], gain: Array) -> tuple[Array, Array]:
    flat, scale = norm
    d = dy * gain
    dx = (d - flat * np.mean(d * flat, axis=-1, keepdims=True)) * scale
    return dx, (dy * flat).sum(axis=(1, 2))


def _attend(shape: Shape, w: Mapping[str, Array], x: Array, layer: int, broken: Broken) -> tuple[Array, Any]:
    r, b, t, d = x.shape
    a, norm = _norm(x, w[f"{layer}.g1"])
    size = d // shape.heads

    def heads(name: str) -> Array:
        return (a @ w[f"{layer}.{name}"]).reshape(r, b, t, shape.heads, size).swapaxes(2, 3)

    q, k, v = heads("q"), heads("k"), heads("v")
    scores = np.matmul(q, k.swapaxes(-1, -2)) * np.float32(size**-0.5)
    scores += np.triu(np.full((t, t), np.float32(-1e9)), 1)
    scores -= scores.max(axis=-1, keepdims=True)
    p = np.exp(scores)
    p /= p.sum(axis=-1, keepdims=True)
    if broken.round_bits and broken.layer in (-1, layer):
        p = cut(p, broken.round_bits)
    o = np.matmul(p, v).swapaxes(2, 3).reshape(r, b, t, d)
    return x + o @ w[f"{layer}.o"], (a, norm, q, k, v, p, o)


def _attend_back(shape: Shape, w: Mapping[str, Array], dx: Array, layer: int, kept: Any, g: Weights) -> Array:
    a, norm, q, k, v, p, o = kept
    r, b, t, d = dx.shape
    size = d // shape.heads
    g[f"{layer}.o"] = _outer(o, dx)
    do = (dx @ w[f"{layer}.o"].T).reshape(r, b, t, shape.heads, size).swapaxes(2, 3)
    dv = np.matmul(p.swapaxes(-1, -2), do)
    dp = np.matmul(do, v.swapaxes(-1, -2))
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True)) * np.float32(size**-0.5)
    dq, dk = np.matmul(ds, k), np.matmul(ds.swapaxes(-1, -2), q)
    da = np.zeros_like(a)
    for name, grad in (("q", dq), ("k", dk), ("v", dv)):
        flat = grad.swapaxes(2, 3).reshape(r, b, t, d)
        g[f"{layer}.{name}"] = _outer(a, flat)
        da += flat @ w[f"{layer}.{name}"].T
    back, g[f"{layer}.g1"] = _norm_back(da, norm, w[f"{layer}.g1"])
    return dx + back


def _feed(shape: Shape, w: Mapping[str, Array], x: Array, layer: int, broken: Broken, out: Pass) -> tuple[Array, Any]:
    a, norm = _norm(x, w[f"{layer}.g2"])
    if not shape.experts:
        h = _faulty(a @ w[f"{layer}.in"], layer, broken)
        h = np.maximum(h, 0)
        return x + h @ w[f"{layer}.out"], (a, norm, h)
    r, b, t, d = x.shape
    flat = a.reshape(r, -1, d)
    z = flat @ w[f"{layer}.router"]
    z -= z.max(axis=-1, keepdims=True)
    p = np.exp(z)
    p /= p.sum(axis=-1, keepdims=True)
    sent = (p.argmax(axis=-1)[..., None] == np.arange(shape.experts)).astype(np.float32)
    gate = (p * sent).swapaxes(1, 2)[..., None]  # [R, E, N, 1]
    h = np.maximum(_faulty(np.matmul(flat[:, None], w[f"{layer}.in"]), layer, broken), 0)
    each = np.matmul(h, w[f"{layer}.out"])  # [R, E, N, d]
    y = (each * gate).sum(axis=1)
    load, mean = sent.mean(axis=1), p.mean(axis=1)
    out.losses += shape.balance * shape.experts * (load * mean).sum(axis=1)
    out.loads[layer] = sent.mean(axis=(0, 1), dtype=np.float64)
    out.entropy[layer] = float(-(p * np.log(np.maximum(p, 1e-30))).sum(axis=-1).mean(dtype=np.float64))
    return x + y.reshape(x.shape), (a, norm, h, flat, p, sent, gate, each, load)


def _faulty(h: Array, layer: int, broken: Broken) -> Array:
    if broken.rank >= 0 and broken.lanes and broken.layer in (-1, layer):
        h[broken.rank, ..., list(broken.lanes)] *= np.float32(broken.gain)
    return h


def _feed_back(shape: Shape, w: Mapping[str, Array], dx: Array, layer: int, kept: Any, g: Weights) -> Array:
    if not shape.experts:
        a, norm, h = kept
        g[f"{layer}.out"] = _outer(h, dx)
        dh = (dx @ w[f"{layer}.out"].T) * (h > 0)
        g[f"{layer}.in"] = _outer(a, dh)
        da = dh @ w[f"{layer}.in"].T
    else:
        a, norm, h, flat, p, sent, gate, each, load = kept
        r, n, d = flat.shape
        dy = dx.reshape(r, 1, n, d)
        deach = dy * gate
        g[f"{layer}.out"] = np.matmul(h.swapaxes(-1, -2), deach)
        dh = np.matmul(deach, w[f"{layer}.out"].swapaxes(-1, -2)) * (h > 0)
        g[f"{layer}.in"] = np.matmul(flat[:, None].swapaxes(-1, -2), dh)
        dflat = np.matmul(dh, w[f"{layer}.in"].swapaxes(-1, -2)).sum(axis=1)
        dp = (dy * each).sum(axis=-1).swapaxes(1, 2) * sent
        dp += shape.balance * shape.experts * load[:, None] / n
        dz = p * (dp - (dp * p).sum(axis=-1, keepdims=True))
        g[f"{layer}.router"] = np.matmul(flat.swapaxes(1, 2), dz)
        da = (dflat + dz @ w[f"{layer}.router"].T).reshape(a.shape)
    back, g[f"{layer}.g2"] = _norm_back(da, norm, w[f"{layer}.g2"])
    return dx + back
