"""Small real runs: a language with structure, AdamW, data-parallel ranks; what a trainer would log comes out as rows.

Faults change what is computed (``Fault``), never a number that is logged.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from detectors.training import dynamics
from tests.detectors.training.model import SOUND, Array, Broken, Pass, Shape, Weights, begin, run


@dataclass(frozen=True, slots=True)
class Plan:
    """The schedule: warm-up, then a decay by cosine to a tenth, over ``steps``. ramp_at: from there on batches are
    twice as large. restarts: at these steps the run goes back to the last save (every ``save_every``)."""

    shape: Shape = field(default_factory=Shape)
    steps: int = 1000
    rate: float = 2e-3
    warm: int = 100
    clip: float = 1.0
    look_every: int = 4
    save_every: int = 50
    probe_every: int = 0
    ramp_at: int = 0
    restarts: tuple[int, ...] = ()
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong from step ``at`` on. rate: factor on the learning rate of the weights whose name has ``names``.
    broken: the arithmetic. garble: share of the tokens of ``span`` steps that are noise. router: rows of that layer's
    router are drawn together, by this share. balance: the load-balancing loss's new weight."""

    at: int
    rate: float = 1.0
    names: tuple[str, ...] = ()
    broken: Broken = SOUND
    garble: float = 0.0
    span: int = 10**9
    router: float = 0.0
    layer: int = 0
    balance: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One step as the trainer knows it. layers: signal by layer. ranks: signal by rank, numbers or texts."""

    step: int
    values: Mapping[str, float]
    layers: Mapping[int, Mapping[str, float]]
    ranks: Mapping[int, Mapping[str, float | str]]
    saved: bool = False


class Language:
    """Sentences of a sparse Markov chain, the second half of which repeats the first with shifted words: what comes
    next is learnt from the word before and, by attention, from the first half."""

    def __init__(self, shape: Shape, seed: int) -> None:
        dice = np.random.default_rng(seed)
        chance = dice.random((shape.vocab, shape.vocab)) ** 6
        self._sum = np.cumsum(chance / chance.sum(axis=1, keepdims=True), axis=1)
        self._shape = shape

    def batch(self, dice: np.random.Generator, size: int) -> NDArray[np.int64]:
        """int64[ranks, size, length + 1]."""
        shape = self._shape
        half = (shape.length + 1) // 2
        n = shape.ranks * size
        words = np.zeros((n, shape.length + 1), np.int64)
        words[:, 0] = dice.integers(0, shape.vocab, n)
        draws = dice.random((n, half))
        for at in range(1, half):
            words[:, at] = (self._sum[words[:, at - 1]] < draws[:, at, None]).sum(axis=1).clip(0, shape.vocab - 1)
        words[:, half : 2 * half] = (words[:, :half] + 1) % shape.vocab
        words[:, 2 * half :] = words[:, : shape.length + 1 - 2 * half]
        return words.reshape(shape.ranks, size, shape.length + 1)


@dataclass(slots=True)
class Held:
    """All that a save keeps; looked: queries and keys at the last look, for their change since."""

    step: int
    weights: Weights
    first: Weights
    second: Weights
    looked: Weights = field(default_factory=dict)

    def copy(self) -> Held:
        return Held(
            self.step,
            *({k: v.copy() for k, v in part.items()} for part in (self.weights, self.first, self.second, self.looked)),
        )


def train(plan: Plan, seed: int, fault: Fault | None = None) -> Iterator[Seen]:
    """Every step that was taken, those after a restart again."""
    shape = plan.shape
    language, weights = Language(shape, seed), begin(shape, seed)
    held = Held(0, weights, nothing_like(weights), nothing_like(weights))
    saved, left, tried = held.copy(), list(plan.restarts), 0
    while held.step < plan.steps:
        if left and held.step >= left[0]:
            left.pop(0)
            held, tried = saved.copy(), tried + 1
        held.step += 1
        dice = np.random.default_rng([seed, held.step, tried])
        yield _step(plan, held, language, dice, fault)
        if held.step % plan.save_every == 0:
            saved = held.copy()


def nothing_like(weights: Weights) -> Weights:
    return {name: np.zeros_like(array) for name, array in weights.items()}


def rate_of(plan: Plan, step: int) -> float:
    warm = min(1.0, step / max(plan.warm, 1))
    if plan.constant:
        return plan.rate * warm
    along = max(0.0, step - plan.warm) / max(plan.steps - plan.warm, 1)
    return plan.rate * warm * (0.1 + 0.45 * (1 + float(np.cos(np.pi * min(along, 1.0)))))


def _step(plan: Plan, held: Held, language: Language, dice: np.random.Generator, fault: Fault | None) -> Seen:
    shape, step, w = plan.shape, held.step, held.weights
    on = fault is not None and fault.at <= step < fault.at + fault.span
    if fault is not None and on and fault.balance is not None:
        shape = replace(shape, balance=fault.balance)
    if fault is not None and step == fault.at and fault.router:
        _draw_together(w[f"{fault.layer}.router"], fault.router)
    size = shape.batch * (2 if plan.ramp_at and step >= plan.ramp_at else 1)
    tokens = language.batch(dice, size)
    if fault is not None and on and fault.garble:
        noise = dice.random(tokens.shape) < fault.garble
        tokens = np.where(noise, dice.integers(0, shape.vocab, tokens.shape), tokens)
    done = run(shape, w, tokens, fault.broken if fault is not None and on else SOUND)
    grads = {name: g.mean(axis=0) for name, g in done.grads.items()}
    norms = {name: float(np.square(g, dtype=np.float64).sum()) for name, g in grads.items()}
    total = sum(norms.values()) ** 0.5
    rate = rate_of(plan, step)
    moved = apply(held, grads, min(1.0, plan.clip / (total + 1e-6)), rate, fault if on else None)
    values = {"loss": float(done.losses.mean()), "grad_norm": total, "lr": rate, "tokens": float(tokens[..., 1:].size)}
    if plan.probe_every and step % plan.probe_every == 0:
        probe = language.batch(np.random.default_rng(7), 4 * shape.batch)
        values["val_loss"] = float(
            run(shape, w, probe, fault.broken if fault is not None and on else SOUND).losses.mean()
        )
    layers = {}
    if step % plan.look_every == 0:
        if held.looked:
            layers = look(shape, w, held.looked, done, norms, moved)
        held.looked = {n: w[n].copy() for n in w if n.endswith((".q", ".k"))}
    ranks = {rank: _of_rank(done, rank) for rank in range(shape.ranks)}
    return Seen(step, values, layers, ranks, step % plan.save_every == 0)


def _draw_together(router: Array, share: float) -> None:
    """Rows (here columns, [d, E]) become more alike, each of the length it had."""
    long = np.linalg.norm(router, axis=0, keepdims=True)
    mixed = (1 - share) * router + share * router[:, :1]
    router[:] = mixed * (long / np.linalg.norm(mixed, axis=0, keepdims=True))


def apply(held: Held, grads: Weights, scale: float, rate: float, fault: Fault | None) -> dict[str, float]:
    """AdamW, 0.9 and 0.95, decay 0.1 on matrices; returns the squared length of each weight's update."""
    moved: dict[str, float] = {}
    b1, b2 = np.float32(0.9), np.float32(0.95)
    late1, late2 = 1 - 0.9**held.step, 1 - 0.95**held.step
    for name, weight in held.weights.items():
        g = grads[name] * np.float32(scale)
        m, v = held.first[name], held.second[name]
        m *= b1
        m += (1 - b1) * g
        v *= b2
        v += (1 - b2) * g * g
        own = rate
        if fault is not None and (not fault.names or any(part in name for part in fault.names)):
            own *= fault.rate
        by = np.float32(own / late1) * m / (np.sqrt(v / np.float32(late2)) + np.float32(1e-8))
        if weight.ndim > 1:
            by += np.float32(own * 0.1) * weight
        weight -= by
        moved[name] = float(np.square(by, dtype=np.float64).sum())
    return moved


def look(
    shape: Shape, w: Weights, before: Weights, done: Pass, norms: Mapping[str, float], moved: Mapping[str, float]
) -> dict[int, dict[str, float]]:
    """What a callback in the job would log of each layer."""
    found: dict[int, dict[str, float]] = {}
    size = shape.width // shape.heads
    for layer in range(shape.layers):
        q, k = before[f"{layer}.q"], before[f"{layer}.k"]
        dq, dk = w[f"{layer}.q"] - q, w[f"{layer}.k"] - k
        heads = [slice(h * size, (h + 1) * size) for h in range(shape.heads)]
        spectra = [dynamics.qk_spectrum(q[:, h], k[:, h], dq[:, h], dk[:, h]) for h in heads]
        mine = [name for name in w if name.startswith(f"{layer}.")]
        own = sum(float(np.square(w[name], dtype=np.float64).sum()) for name in mine) ** 0.5
        update = sum(moved[name] for name in mine) ** 0.5
        found[layer] = {
            "qk_entropy": float(np.mean([s.entropy for s in spectra])),
            "qk_entropy_min": float(np.min([s.entropy for s in spectra])),
            "qk_effective_rank": float(np.mean([s.effective_rank for s in spectra])),
            "qk_stable_rank": float(np.mean([s.stable_rank for s in spectra])),
            "qk_norm": float(np.mean([s.norm for s in spectra])),
            "grad_norm": sum(norms[name] for name in mine) ** 0.5,
            "update_ratio": update / own,
        }
        if shape.experts:
            rows, shares = w[f"{layer}.router"].T, dynamics.load(done.loads[layer])
            found[layer] |= {
                "router_similarity": dynamics.router_similarity(rows),
                "router_conditioning": dynamics.router_conditioning(rows),
                "router_entropy": done.entropy[layer],
                "router_entropy_share": done.entropy[layer] / float(np.log(shape.experts)),
                "router_load_max": shares.largest,
                "router_load_cv": shares.cv,
                "router_dead": float(shares.dead),
            }
    return found


def _of_rank(done: Pass, rank: int) -> dict[str, float | str]:
    square = sum(float(np.square(g[rank], dtype=np.float64).sum()) for g in done.grads.values())
    return {"loss": float(done.losses[rank]), "grad_norm": square**0.5}


def checksum(arrays: Mapping[str, Array]) -> str:
    """Of all bits, in one order."""
    found = 0
    for name in sorted(arrays):
        found = zlib.crc32(arrays[name].tobytes(), found)
    return f"{found:08x}"
