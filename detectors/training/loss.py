"""Loss and gradient norm of a run: spikes, numbers that are none, and a slow rise against its own forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.model import Evidence, Finding, Fleet, Judged, Need, Severity, Tick
from detectors.rows import cells, started
from detectors.training import memory, spikes
from detectors.training.phrases import leave_out, plain_number, way_back
from detectors.training.told import SAVES, STEP, Row, by_step, number, rows

Floats = NDArray[np.float64]
#: What a spike was seen in.
LOSS_SIGMA, LOSS_TIMES, GRAD_TIMES, LOSS_FORETOLD = 1.0, 2.0, 3.0, 4.0
#: ZClip's warm-up norms.
ZCLIP_WARM = 25


@dataclass(slots=True)
class LossState(memory.RunState):
    """One column a run. ``lead``: lowest rank that told (-1: the run itself does). ``judged``: the newest step judged.
    ``losses``, ``norms``: the last 128, ``losses_n``, ``norms_n`` how many came. ``spikes``, ``steps``: for the spike
    score. ``z_mean``, ``z_variance``, ``z_last``: ZClip's. ``jump_*``: the last gradient of five times the
    usual; ``jumps``: how many of late, older ones fading. ``best``, ``slow``, ``fast``, ``scatter``, ``fits``: lowest
    slow mean, slow and quick mean of the loss, usual miss, how many values since they began anew; ``rises``: values in
    a row above the forecast. ``once``, ``twice``, ``missed``: the loss smoothed once and twice, for a forecast with its
    trend, and its usual miss. ``spike_*``, ``nan_*``, ``rise_*``: a level: since (0 = none), its step, value, what was
    usual, its spread; ``spike_calm``: values since; ``nan_rank``, ``nan_ranks``: lowest rank and how many showed it in
    that step; ``nan_layer``: of which layer, ``nan_what``: 1 loss, 2 gradient; ``overflows``: in a row;
    ``scaled``: 1 = the run scales its loss, so that single overflows are its way; ``policy``:
    1 = it learns a policy, whose loss need not fall."""

    lead: Floats = cells(1e9, axis="run")
    judged: Floats = cells(-1.0, axis="run")
    losses: Floats = cells(0.0, np.float64, spikes.WINDOW, axis="run")
    losses_n: Floats = cells(0.0, axis="run")
    norms: Floats = cells(0.0, np.float64, spikes.WINDOW, axis="run")
    norms_n: Floats = cells(0.0, axis="run")
    spikes: Floats = cells(0.0, axis="run")
    steps: Floats = cells(0.0, axis="run")
    z_mean: Floats = cells(0.0, axis="run")
    z_variance: Floats = cells(0.0, axis="run")
    z_last: Floats = cells(0.0, axis="run")
    jump_step: Floats = cells(-1e9, axis="run")
    jump_value: Floats = cells(0.0, axis="run")
    jump_usual: Floats = cells(0.0, axis="run")
    jumps: Floats = cells(0.0, axis="run")
    best: Floats = cells(np.inf, axis="run")
    slow: Floats = cells(0.0, axis="run")
    fast: Floats = cells(0.0, axis="run")
    scatter: Floats = cells(0.0, axis="run")
    fits: Floats = cells(0.0, axis="run")
    rises: Floats = cells(0.0, axis="run")
    once: Floats = cells(0.0, axis="run")
    twice: Floats = cells(0.0, axis="run")
    missed: Floats = cells(0.0, axis="run")
    spike_since: Floats = cells(0.0, axis="run")
    spike_step: Floats = cells(-1.0, axis="run")
    spike_what: Floats = cells(0.0, axis="run")
    spike_value: Floats = cells(0.0, axis="run")
    spike_usual: Floats = cells(0.0, axis="run")
    spike_spread: Floats = cells(0.0, axis="run")
    spike_calm: Floats = cells(0.0, axis="run")
    nan_since: Floats = cells(0.0, axis="run")
    nan_step: Floats = cells(-1.0, axis="run")
    nan_what: Floats = cells(0.0, axis="run")
    nan_rank: Floats = cells(-1.0, axis="run")
    nan_ranks: Floats = cells(0.0, axis="run")
    nan_layer: NDArray[np.str_] = memory.texts(axis="run")
    nan_calm: Floats = cells(0.0, axis="run")
    overflows: Floats = cells(0.0, axis="run")
    scaled: NDArray[np.uint8] = cells(0, np.uint8, axis="run")
    policy: NDArray[np.uint8] = cells(0, np.uint8, axis="run")
    rise_since: Floats = cells(0.0, axis="run")
    rise_step: Floats = cells(-1.0, axis="run")
    rise_from: Floats = cells(0.0, axis="run")
    rise_now: Floats = cells(0.0, axis="run")


@dataclass(frozen=True, slots=True)
class Loss:
    """Thresholds: all that begin with loss_, and training_forget_s, training_change_share."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = frozenset({STEP, SAVES})

    @property
    def name(self) -> str:
        return "training/loss"

    def start(self, fleet: Fleet) -> LossState:
        return started(LossState, fleet)

    def move(self, state: LossState, old: Fleet, new: Fleet) -> LossState:
        return state

    def step(self, state: LossState, tick: Tick, fleet: Fleet) -> Judged:
        for _, _, some in by_step(rows(tick, STEP, SAVES)):
            self._fold(state, some)
        memory.forget(state, tick.at, self.catalogue.limit("training_forget_s"))
        return Judged(self._findings(state, fleet))

    def _fold(self, state: LossState, some: Sequence[Row]) -> None:
        at = memory.place(state, some[0])
        anew = False
        told = [row for row in some if row.event.namespace == STEP]
        for row in some:
            if row.event.namespace == SAVES:
                memory.saved(state, at, row)
                continue
            back = memory.advance(state, at, row) > 0
            anew |= back or memory.changed(state, at, row, self.catalogue.limit("training_change_share"))
            if back:
                state.judged[at] = row.step - 1
            state.scaled[at] |= "loss_scale" in row.event.attrs
            state.policy[at] |= not _POLICY.isdisjoint(row.event.attrs)
            if not row.layer:
                state.lead[at] = min(float(state.lead[at]), float(row.rank))
        if anew:
            self._afresh(state, at)
        self._broken(state, at, told)
        for row in told:
            if not row.layer and row.rank == state.lead[at] and row.step > state.judged[at]:
                state.judged[at] = row.step
                self._value(state, at, row)

    def _afresh(self, state: LossState, at: int) -> None:
        """After a rollback or a change of batch or rate the past is no measure."""
        for name in ("losses_n", "norms_n", "fits", "rises"):
            getattr(state, name)[at] = 0.0
        state.best[at] = np.inf
        state.rise_since[at] = 0.0

    def _value(self, state: LossState, at: int, row: Row) -> None:
        """One step of the run itself."""
        loss, norm = (number(row.event.attrs.get(name)) for name in ("loss", "grad_norm"))
        place = np.array([at])
        spiked = False
        state.steps[at] += 1
        if norm is not None and np.isfinite(norm):
            spiked |= self._norm(state, at, place, norm, row)
        if loss is not None and np.isfinite(loss):
            spiked |= self._loss(state, at, place, loss, row)
            if not state.policy[at]:
                spiked |= self._foretold(state, at, loss, row)
                self._rise(state, at, loss, row, spiked)
        state.spikes[at] += spiked
        state.spike_calm[at] = 0.0 if spiked else state.spike_calm[at] + 1
        if state.spike_calm[at] >= self.catalogue.limit("loss_calm_steps"):
            state.spike_since[at] = 0.0

    def _loss(self, state: LossState, at: int, place: NDArray[np.intp], loss: float, row: Row) -> bool:
        x, past = np.array([loss]), spikes.window_of(state.losses[:, place], state.losses_n[place])
        limit = self.catalogue.limit
        sigma = bool(spikes.skip_step(x, past, limit("loss_sigmas"))[0])
        times = bool(spikes.jumped(x, past, limit("loss_times"))[0])
        after = 1 <= row.step - state.jump_step[at] <= limit("loss_after_steps")
        hurt = bool(after and spikes.skip_step(x, past, limit("loss_after_sigmas"))[0])
        if sigma or times:
            self._spike(state, at, row, LOSS_SIGMA if sigma else LOSS_TIMES, loss, past)
        elif hurt or state.jumps[at] >= limit("loss_jumps"):
            self._spike(state, at, row, GRAD_TIMES, float(state.jump_value[at]), _usual(state.jump_usual[at]))
        spikes.push(state.losses, state.losses_n, place, x)
        return sigma or times

    def _norm(self, state: LossState, at: int, place: NDArray[np.intp], norm: float, row: Row) -> bool:
        """Gradients of six sigma or five times the usual are counted. Clipped, most do no harm (measured: one in
        5,000 healthy steps); an alarm needs a loss that suffers in the steps after, or several jumps together."""
        x, past = np.array([norm]), spikes.window_of(state.norms[:, place], state.norms_n[place])
        if past.n[0] >= ZCLIP_WARM:
            begun = state.z_variance[at] > 0
            mean = state.z_mean[place] if begun else past.mean
            variance = state.z_variance[place] if begun else np.square(past.sd)
            clip = spikes.zclip(x, mean, variance)
            state.z_mean[at], state.z_variance[at], state.z_last[at] = clip.mean[0], clip.variance[0], clip.z[0]
        sigma = bool(spikes.skip_step(x, past)[0])
        times = bool(spikes.jumped(x, past, self.catalogue.limit("loss_times"))[0])
        state.jumps[at] = state.jumps[at] * (1.0 - 1.0 / 16.0) + times
        if times:
            state.jump_step[at], state.jump_value[at], state.jump_usual[at] = row.step, norm, past.mean[0]
        spikes.push(state.norms, state.norms_n, place, x)
        return sigma or times

    def _spike(self, state: LossState, at: int, row: Row, what: float, value: float, past: spikes.Window) -> None:
        if state.spike_since[at] == 0.0:
            state.spike_since[at], state.spike_step[at], state.spike_what[at] = row.at, row.step, what
            state.spike_value[at], state.spike_usual[at] = value, past.mean[0]
            state.spike_spread[at] = past.sd[0]

    def _foretold(self, state: LossState, at: int, loss: float, row: Row) -> bool:
        """Against level and trend (Brown's double exponential smoothing): while a loss falls fast, the deviation of the
        last 128 holds the fall itself, and hides a jump."""
        limit, fits = self.catalogue.limit, float(state.fits[at])
        if fits == 0:
            state.once[at] = state.twice[at] = loss
            state.missed[at] = 0.0
        weight = max(1.0 / (fits + 1.0), 1.0 / limit("loss_rise_quick_steps"))
        once, twice, missed = float(state.once[at]), float(state.twice[at]), float(state.missed[at])
        ahead = 2 * once - twice + weight / max(1.0 - weight, 0.5) * (once - twice) if fits >= 4 else once
        miss = loss - ahead
        spiked = fits >= spikes.BEGINS and miss > limit("loss_misses") * missed > 0
        near = float(np.clip(miss, -4 * missed, 4 * missed)) if fits >= spikes.BEGINS else miss
        state.once[at] = once + weight * (ahead + near - once)
        state.twice[at] = twice + weight * (state.once[at] - twice)
        state.missed[at] = missed + max(1.0 / (fits + 1.0), 1.0 / spikes.BEGINS) * (abs(near) - missed)
        if spiked:
            one = np.array([ahead])
            usual = spikes.Window(one, one, np.array([1.2533 * missed]), np.array([missed]))
            self._spike(state, at, row, LOSS_FORETOLD, loss, usual)
        return spiked

    def _rise(self, state: LossState, at: int, loss: float, row: Row, spiked: bool) -> None:
        """Slow divergence: a quick mean against the lowest that a slow mean has been, which is what a loss that falls
        or rests would keep to. Values beyond four usual misses count as that."""
        limit = self.catalogue.limit
        fits = state.fits[at]
        if fits == 0:
            state.slow[at] = state.fast[at] = loss
            state.scatter[at] = 0.0
        state.fits[at] = fits + 1
        miss = loss - state.slow[at]
        most = 4 * state.scatter[at]
        near = float(np.clip(miss, -most, most)) if fits > spikes.BEGINS else miss
        state.fast[at] += (state.slow[at] + near - state.fast[at]) / limit("loss_rise_quick_steps")
        weight = max(1.0 / (fits + 1.0), 1.0 / limit("loss_rise_slow_steps"))
        rise = state.fast[at] - min(state.best[at], state.slow[at])
        out = fits >= limit("loss_rise_slow_steps") and rise > limit("loss_rise_misses") * state.scatter[at]
        if not out:
            state.slow[at] += weight * near
            state.scatter[at] += weight * (abs(near) - state.scatter[at])
            if fits >= spikes.BEGINS:
                state.best[at] = min(state.best[at], state.slow[at])
        state.rises[at] = state.rises[at] + 1 if out else 0.0
        if state.rises[at] >= limit("loss_rise_in_a_row"):
            if state.rise_since[at] == 0.0:
                state.rise_since[at], state.rise_step[at], state.rise_from[at] = row.at, row.step, state.best[at]
            state.rise_now[at] = state.fast[at]
        elif state.rises[at] == 0.0:
            state.rise_since[at] = 0.0

    def _broken(self, state: LossState, at: int, told: Sequence[Row]) -> None:
        """Numbers that are none. Who showed them first is known from the rows of their first step alone."""
        bad = [(row, what) for row in told if (what := _none(row, bool(state.scaled[at])))]
        lead = [row for row in told if not row.layer and row.rank <= 0]
        if not bad:
            whole = any(number(row.event.attrs.get("loss")) is not None for row in lead)
            state.nan_calm[at] += whole
            state.overflows[at] = 0.0 if whole else state.overflows[at]
            if state.nan_calm[at] >= self.catalogue.limit("loss_nan_calm_steps"):
                state.nan_since[at] = 0.0
            return
        state.nan_calm[at] = 0.0
        if all(what == OVERFLOW for _, what in bad):
            state.overflows[at] += 1
            if state.overflows[at] < self.catalogue.limit("loss_overflows"):
                return
        first = bad[0][0]
        if state.nan_since[at] == 0.0:
            state.nan_since[at], state.nan_step[at] = first.at, first.step
            state.nan_rank[at], state.nan_ranks[at], state.nan_what[at] = -1.0, 0.0, min(what for _, what in bad)
            state.nan_layer = memory.with_text(state.nan_layer, at, "")
        if first.step == state.nan_step[at]:
            self._who(state, at, [row for row, _ in bad], told)

    def _who(self, state: LossState, at: int, bad: Sequence[Row], told: Sequence[Row]) -> None:
        ranks = sorted({row.rank for row in bad if row.rank >= 0})
        if ranks:
            known = state.nan_rank[at] >= 0
            state.nan_rank[at] = min(float(ranks[0]), float(state.nan_rank[at]) if known else np.inf)
            state.nan_ranks[at] += len(ranks)
        layer = _first_layer(bad, told)
        if layer and not state.nan_layer[at]:
            state.nan_layer = memory.with_text(state.nan_layer, at, layer)

    # --- what is said ---------------------------------------------------------------------------------------------

    def _findings(self, state: LossState, fleet: Fleet) -> tuple[Finding, ...]:
        found: list[Finding] = []
        for at in np.flatnonzero((state.spike_since > 0) | (state.nan_since > 0) | (state.rise_since > 0)):
            run = int(at)
            if state.nan_since[run] > 0:
                found.append(self._nan(state, run, fleet))
            if state.spike_since[run] > 0:
                found.append(self._spiked(state, run, fleet))
            if state.rise_since[run] > 0:
                found.append(self._risen(state, run, fleet))
        return tuple(sorted(found, key=lambda f: f.key))

    def _spiked(self, state: LossState, run: int, fleet: Fleet) -> Finding:
        what = float(state.spike_what[run])
        signal = "gradient norm" if what == GRAD_TIMES else "loss"
        value, usual, spread = (float(getattr(state, f"spike_{n}")[run]) for n in ("value", "usual", "spread"))
        step = float(state.spike_step[run])
        rule = {
            LOSS_SIGMA: "6 standard deviations of the last 128",
            LOSS_FORETOLD: "8 usual misses of its own forecast",
        }.get(what, "5 times the mean of the last 128")
        reason = (
            f"{state.run_name[run]}: the {signal} jumped to {plain_number(value)} at step {int(step):,}, where "
            f"{plain_number(usual)} was usual (over {rule}). {leave_out(state, run, step)}"
        )
        score = 1e4 * float(state.spikes[run]) / max(float(state.steps[run]), 1.0)
        evidence = (
            Evidence(signal, plain_number(value), plain_number(usual), "", _ref(state, run, step)),
            Evidence("Standard deviation of the loss before it", plain_number(spread), grade="derived"),
            Evidence("Spikes in 10,000 steps", plain_number(score), grade="derived"),
            Evidence("ZClip's z of the last gradient", plain_number(float(state.z_last[run])), "2.5", grade="derived"),
        )
        entity = memory.entity(state, run, fleet)
        since = float(state.spike_since[run])
        return Finding(self.name, "loss_spike", entity, Severity.WARNING, 0.7, since, reason, evidence)

    def _risen(self, state: LossState, run: int, fleet: Fleet) -> Finding:
        step, best = float(state.rise_step[run]), float(state.rise_from[run])
        now = float(state.rise_now[run])
        reason = (
            f"{state.run_name[run]}: the loss drifts up: its mean is {plain_number(now)}, and it had come down to "
            f"{plain_number(best)}; noticed at step {int(step):,}. {way_back(state, run, step)}"
        )
        evidence = (
            Evidence("Mean loss", plain_number(now), plain_number(best), "nats", _ref(state, run, step), "derived"),
            Evidence("Usual miss of one step", plain_number(float(state.scatter[run])), grade="derived"),
        )
        entity = memory.entity(state, run, fleet)
        since = float(state.rise_since[run])
        return Finding(self.name, "loss_divergence", entity, Severity.HIGH, 0.7, since, reason, evidence)

    def _nan(self, state: LossState, run: int, fleet: Fleet) -> Finding:
        step, ranks = float(state.nan_step[run]), int(state.nan_ranks[run])
        what = "loss" if state.nan_what[run] == LOSS else "gradient"
        layer = str(state.nan_layer[run])
        where = f"first on rank {int(state.nan_rank[run])}" + (f" and {ranks - 1} more" if ranks > 1 else "")
        told = [part for part in (where if ranks else "", f"layer {layer} is suspect" if layer else "") if part]
        reason = (
            f"{state.run_name[run]}: the {what} is not a finite number at step {int(step):,}"
            f"{': ' + ', '.join(told) if told else ''}. {leave_out(state, run, step)}"
        )
        evidence = [Evidence(f"First {what} that is none", f"step {int(step):,}", ref=_ref(state, run, step))]
        if ranks:
            evidence.append(Evidence("Rank that showed it first", str(int(state.nan_rank[run])), f"of {ranks} then"))
        if layer:
            evidence.append(Evidence("Layer that showed it first", layer, grade="derived"))
        entity = memory.entity(state, run, fleet)
        since = float(state.nan_since[run])
        return Finding(self.name, "nan_loss", entity, Severity.CRITICAL, 0.95, since, reason, tuple(evidence))


_POLICY = frozenset({"reward", "ess", "clip_share", "policy_entropy"})
LOSS, GRADIENT, OVERFLOW = 1.0, 2.0, 3.0


def _usual(mean: float) -> spikes.Window:
    one = np.array([float(mean)])
    return spikes.Window(one, one, np.zeros(1), np.zeros(1))


def _none(row: Row, scaled: bool) -> float:
    """What of a row is no finite number: LOSS, GRADIENT, or OVERFLOW where the run scales its loss; 0 = all is."""
    values = {name: number(row.event.attrs.get(name)) for name in ("loss", "grad_norm", "nonfinite")}
    loss, norm, count = values["loss"], values["grad_norm"], values["nonfinite"]
    if loss is not None and not np.isfinite(loss):
        return LOSS
    if (norm is not None and not np.isfinite(norm)) or (count is not None and count != 0):
        return OVERFLOW if scaled else GRADIENT
    return 0.0


def _first_layer(bad: Sequence[Row], told: Sequence[Row]) -> str:
    """Where it began. Counts of a forward pass: the lowest layer. Gradients run from the last layer to the first: the
    highest that is broken below one that is sound; where all are broken they tell nothing."""
    forward = [row.layer for row in bad if row.layer and "nonfinite" in row.event.attrs]
    if forward:
        return min(forward, key=_layer_order)
    broken = {row.layer for row in bad if row.layer}
    sound = {row.layer for row in told if row.layer and "grad_norm" in row.event.attrs} - broken
    top = max(broken, key=_layer_order, default="")
    above = max((_layer_order(layer) for layer in sound), default=(-1, ""))
    return top if top and above > _layer_order(top) else ""


def _layer_order(layer: str) -> tuple[int, str]:
    digits = "".join(c for c in layer if c.isdigit())
    return (int(digits) if digits else 10**9, layer)


def _ref(state: LossState, run: int, step: float) -> str:
    return f"step:{state.run_name[run]}/{int(step)}"
