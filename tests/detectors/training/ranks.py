"""Data-parallel ranks as separate computations: copies of weights, recomputed batches, clocks of their own, a sampler.

Time is counted, not measured: a rank's seconds follow from the work of its own batch (a N + b sum l^2) at its own
speed, with jitter, and all wait for the last; so that a busy machine changes nothing. Faults change a rank's
arithmetic, its speed, or whether it comes to a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from detectors.model import Event, Tick
from detectors.training import dynamics
from detectors.training.told import COLLECTIVE, rank_entity
from tests.detectors.training.model import SOUND, Broken, Shape, begin, run
from tests.detectors.training.telling import T0, row, save
from tests.detectors.training.trainer import Held, Language, Plan, apply, checksum, nothing_like

RATE, NOISE = 0.5, 0.1


@dataclass(frozen=True, slots=True)
class Pace:
    """slow: rank whose work takes ``times`` as long from step ``at`` on; hangs: rank that never comes to step ``at``;
    link: (source, destination) whose transfers take ``times`` as long."""

    ranks: int = 8
    at: int = 60
    slow: int = -1
    hangs: int = -1
    times: float = 1.0
    link: tuple[int, int] = (-1, -1)
    everyone: bool = False
    save_every: int = 20
    lengths: bool = True


def paced(pace: Pace, seed: int, steps: int) -> Iterator[tuple[int, Tick]]:
    """A tick a step, then silence: (step, tick). Sequences have lengths of their own, so ranks have other work."""
    dice = np.random.default_rng(seed)
    now = T0
    for step in range(1, steps + 1):
        ill = step >= pace.at
        if ill and pace.hangs >= 0:
            yield from _halted(pace, step, now, dice)
            return
        lengths = dice.integers(200, 2000, (pace.ranks, 8)) if pace.lengths else np.full((pace.ranks, 8), 1000)
        busy = _seconds(lengths, dice)
        if ill and (pace.everyone or pace.slow >= 0):
            busy[pace.slow if not pace.everyone else slice(None)] *= pace.times
        end = now + float(busy.max()) + 0.3
        events = [row("r", end, step, {"loss": 2.0, "tokens": float(lengths.sum())})] if not pace.lengths else []
        events += [row("r", end, step, {"loss": 2.0})] if pace.lengths else []
        for rank in range(pace.ranks):
            said = {"compute_s": float(busy[rank]), "tokens": float(lengths[rank].sum())}
            said["tokens_sq"] = float(np.square(lengths[rank].astype(float)).sum())
            events.append(row("r", end, step, said, rank=rank, host=f"n{rank}"))
            events.append(_call(step, rank, now + float(busy[rank]), end, pace.ranks))
        events += _transfers(pace, step, end, dice, ill)
        now = end
        yield step, Tick(now, events=tuple(events))
        if step % pace.save_every == 0:
            now += 12.0
            yield step, Tick(now, events=(save("r", now, step, duration_s=12.0),))


def _seconds(lengths: np.ndarray, dice: np.random.Generator) -> np.ndarray:
    work = 2e-4 * lengths.sum(axis=1) + 1e-7 * np.square(lengths.astype(float)).sum(axis=1)
    return np.asarray(work * (1 + 0.01 * dice.standard_normal(len(work))))


def _halted(pace: Pace, step: int, now: float, dice: np.random.Generator) -> Iterator[tuple[int, Tick]]:
    """All but one wait in the call of this step; the clock goes on, half an expected step at a time."""
    busy = _seconds(dice.integers(200, 2000, (pace.ranks, 8)), dice)
    waiting = [_call(step, r, now + float(busy[r]), None, pace.ranks) for r in range(pace.ranks) if r != pace.hangs]
    last = now + float(busy.max())
    yield step, Tick(last, events=tuple(waiting))
    for beat in range(1, 40):
        yield step, Tick(last + beat * 1.5)


def _call(step: int, rank: int, start: float, end: float | None, ranks: int) -> Event:
    attrs = {"run": "r", "job": "7", "comm": "dp", "seq": str(step), "rank": str(rank), "ranks": str(ranks)}
    attrs |= {"host": f"n{rank}", "start": repr(start)} | ({"end": repr(end)} if end is not None else {})
    return Event(
        start if end is None else end, rank_entity("c", "r", rank), COLLECTIVE, "all_reduce", "", 0, False, attrs
    )


def _transfers(pace: Pace, step: int, at: float, dice: np.random.Generator, ill: bool) -> list[Event]:
    """Each rank sends to the next two."""
    found = []
    for source in range(pace.ranks):
        for target in ((source + 1) % pace.ranks, (source + 2) % pace.ranks):
            took = 0.1 * (1 + 0.03 * float(dice.standard_normal()))
            took *= pace.times if ill and pace.link == (source, target) else 1.0
            attrs = {"run": "r", "job": "7", "src": str(source), "dst": str(target), "bytes": "1e8"}
            attrs |= {"start": repr(at - took), "end": repr(at)}
            entity = rank_entity("c", "r", source)
            found.append(Event(at, entity, COLLECTIVE, "send", "", 0, False, attrs))
    return found


def copies(seed: int, bad: int, at: int, steps: int, ranks: int = 4) -> Iterator[Tick]:
    """Replicas that each keep their own weights, from the same averaged gradients. From ``at`` on, rank ``bad``
    multiplies one lane of one update by 1.0001: its weights drift from those of the others."""
    shape = Shape(width=8, hidden=16, layers=1, length=8, ranks=ranks, batch=2, vocab=12)
    language = Language(shape, seed)
    held = [Held(0, w := begin(shape, seed), nothing_like(w), nothing_like(w)) for _ in range(ranks)]
    for step in range(1, steps + 1):
        tokens = language.batch(np.random.default_rng([seed, step]), shape.batch)
        done = run(shape, held[0].weights, tokens)
        grads = {name: g.mean(axis=0) for name, g in done.grads.items()}
        for rank, one in enumerate(held):
            one.step = step
            mine = grads
            if rank == bad and step >= at:
                mine = grads | {"head": grads["head"] * np.where(np.arange(shape.vocab) == 3, 1.0001, 1.0).astype("f4")}
            apply(one, mine, 1.0, 1e-3, None)
        hashes = [checksum(one.weights) for one in held]
        now = T0 + 2.0 * step
        yield Tick(
            now,
            events=tuple(row("r", now, step, {"param_hash": h}, rank=r, host=f"n{r}") for r, h in enumerate(hashes)),
        )


def recomputed(seed: int, bad: int, at: int, steps: int, ranks: int = 4) -> Iterator[Tick]:
    """Each step another neighbour computes a rank's batch once more. From ``at`` on, the matrix unit of rank ``bad``
    gets one column slightly wrong, in whatever it computes."""
    plan = Plan(Shape(width=8, hidden=16, layers=1, length=8, ranks=ranks, batch=2, vocab=12))
    shape = plan.shape
    language, weights = Language(shape, seed), begin(plan.shape, seed)
    held = Held(0, weights, nothing_like(weights), nothing_like(weights))
    for step in range(1, steps + 1):
        held.step = step
        tokens = language.batch(np.random.default_rng([seed, step]), shape.batch)
        broken = Broken(rank=bad, lanes=(5,), gain=1.01) if step >= at else SOUND
        done = run(shape, weights, tokens, broken)
        away = 1 + step % (ranks - 1)
        again = run(shape, weights, np.roll(tokens, away, axis=0), broken)  # rank r now has the batch of r - away
        now = T0 + 2.0 * step
        events = [row("r", now, step, {"grad_hash": _bits(done.grads, r)}, rank=r, host=f"n{r}") for r in range(ranks)]
        for r in range(ranks):
            said: dict[str, float | str] = {
                "recompute_of": str((r - away) % ranks),
                "recompute_hash": _bits(again.grads, r),
            }
            events.append(row("r", now + 0.5, step, said, rank=r, host=f"n{r}"))
        apply(held, {name: g.mean(axis=0) for name, g in done.grads.items()}, 1.0, 1e-3, None)
        yield Tick(now + 0.5, events=tuple(events))


def _bits(grads: dict[str, np.ndarray], rank: int) -> str:
    return checksum({name: g[rank] for name, g in grads.items()})


def sampled(seed: int, at: int, steps: int, *, sync_every: int = 2) -> Iterator[Tick]:
    """A policy that learns which of 16 answers suits each of 8 questions, from samples of an older copy of itself. From
    ``at`` on the copy gets no new weights. Rows as verl and VCPO would log them, from the probabilities themselves."""
    dice = np.random.default_rng(seed)
    right = dice.integers(0, 16, 8)
    weights, old = np.zeros((8, 16)), np.zeros((8, 16))
    synced = 0
    for step in range(1, steps + 1):
        if step < at and step % sync_every == 0:
            old, synced = weights.copy(), step
        asked = dice.integers(0, 8, (64, 8))  # 64 sequences of 8 answers
        chance = _softmax(old)
        answer = (np.cumsum(chance[asked], axis=-1) < dice.random((64, 8, 1))).sum(axis=-1).clip(0, 15)
        hit = (answer == right[asked]).astype(float) + 0.1 * dice.standard_normal((64, 8))
        gain = hit - hit.mean()
        train_, roll = (np.log(_softmax(w)[asked, answer]) for w in (weights, old))
        ratio = np.exp(np.clip(train_ - roll, -20, 20))
        clipped = np.clip(ratio, 0.0, 2.0)
        loss = -float((clipped * gain).mean())
        grad = np.zeros_like(weights)
        onehot = np.eye(16)[answer] - _softmax(weights)[asked]
        np.add.at(grad, asked.ravel(), (clipped[..., None] * gain[..., None] * onehot).reshape(-1, 16) / 64)
        weights += RATE * grad + NOISE * dice.standard_normal(weights.shape)
        metrics = dynamics.mismatch(train_.ravel(), roll.ravel(), np.full(64, 8))
        said = {
            "loss": loss,
            "reward": float(hit.mean()),
            "ess": dynamics.effective_sample_share((train_ - roll).sum(axis=1)),
            "m2": dynamics.second_moment(train_ - roll, gain),
            "kl": metrics.kl,
            "chi2_token": metrics.chi2_token,
            "is_mean": metrics.is_mean,
            "is_sd": metrics.is_sd,
            "staleness": float(step - synced),
            "staleness_limit": 16.0,
            "clip_share": float((ratio > 2.0).mean()),
        }
        yield Tick(T0 + 5.0 * step, events=(row("r", T0 + 5.0 * step, step, said),))


def _softmax(w: np.ndarray) -> np.ndarray:
    e = np.exp(w - w.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))
