"""Validation probes: what a probe measures against what the probes before it foretold; the last save that was accepted.

The supervisory innovation of 2601.17483, whose exact threshold is not published: here the miss of a robust line through
the last probes, in robust standard deviations of the misses before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.model import Evidence, Finding, Fleet, Judged, Need, Severity, Tick
from detectors.rows import cells, started
from detectors.training import memory
from detectors.training.phrases import plain_number
from detectors.training.told import SAVES, STEP, Row, number, rows

Floats = NDArray[np.float64]
#: Probes a line is drawn through, and misses that tell their usual size.
PROBES, MISSES = 8, 32


@dataclass(slots=True)
class ProbeState(memory.RunState):
    """``steps``, ``values``: of the last accepted probes, [PROBES, runs]; ``n`` how many. ``misses``, ``misses_n``: of
    forecasts. ``accepted``: step of the last accepted probe, ``snapshot``: the last save at or before it (-1 = none).
    ``refused``: probes in a row; ``since``, ``from_step``, ``value``, ``forecast``, ``sigma``: a level."""

    steps: Floats = cells(0.0, np.float64, PROBES, axis="run")
    values: Floats = cells(0.0, np.float64, PROBES, axis="run")
    n: Floats = cells(0.0, axis="run")
    misses: Floats = cells(0.0, np.float64, MISSES, axis="run")
    misses_n: Floats = cells(0.0, axis="run")
    accepted: Floats = cells(-1.0, axis="run")
    snapshot: Floats = cells(-1.0, axis="run")
    told: Floats = cells(-1.0, axis="run")
    refused: Floats = cells(0.0, axis="run")
    since: Floats = cells(0.0, axis="run")
    from_step: Floats = cells(-1.0, axis="run")
    value: Floats = cells(0.0, axis="run")
    forecast: Floats = cells(0.0, axis="run")
    sigma: Floats = cells(0.0, axis="run")


@dataclass(frozen=True, slots=True)
class Probe:
    """Thresholds: all that begin with probe_, and training_forget_s."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = frozenset({STEP, SAVES})

    @property
    def name(self) -> str:
        return "training/probe"

    def start(self, fleet: Fleet) -> ProbeState:
        return started(ProbeState, fleet)

    def move(self, state: ProbeState, old: Fleet, new: Fleet) -> ProbeState:
        return state

    def step(self, state: ProbeState, tick: Tick, fleet: Fleet) -> Judged:
        for row in rows(tick, STEP, SAVES):
            at = memory.place(state, row)
            if row.event.namespace == SAVES:
                memory.saved(state, at, row)
                continue
            if memory.advance(state, at, row) and row.step <= state.told[at]:
                self._went_back(state, at, row)
            value = number(row.event.attrs.get("val_loss"))
            if value is not None and not row.layer and row.rank <= 0 and row.step > state.told[at]:
                state.told[at] = row.step
                self._fold(state, at, row, value)
        memory.forget(state, tick.at, self.catalogue.limit("training_forget_s"))
        found = [self._finding(state, int(at), fleet) for at in np.flatnonzero(state.since > 0)]
        return Judged(tuple(sorted(found, key=lambda f: f.key)))

    def _went_back(self, state: ProbeState, at: int, row: Row) -> None:
        """A rollback: probes after it are forgotten, and the level with them."""
        kept = [i for i in _order(state, at) if state.steps[i, at] < row.step]
        steps, values = state.steps[kept, at].copy(), state.values[kept, at].copy()
        state.n[at] = len(kept)
        state.steps[: len(kept), at], state.values[: len(kept), at] = steps, values
        state.told[at], state.refused[at], state.since[at] = row.step - 1, 0.0, 0.0

    def _fold(self, state: ProbeState, at: int, row: Row, value: float) -> None:
        limit = self.catalogue.limit
        if not np.isfinite(value):
            self._refuse(state, at, row, value, float(state.forecast[at]), float(state.sigma[at]), 2)
            return
        order = _order(state, at)
        if len(order) < 4:
            self._accept(state, at, row, value)
            return
        forecast = _line(state.steps[order, at], state.values[order, at], float(row.step))
        n = int(min(state.misses_n[at], MISSES))
        miss = value - forecast
        sigma = 1.4826 * float(np.median(np.abs(state.misses[:n, at]))) if n else 0.0
        sigma = max(sigma, limit("probe_floor") * abs(forecast))
        if n >= limit("probe_misses") and miss > limit("probe_sigmas") * sigma:
            self._refuse(state, at, row, value, forecast, sigma, 1)
            return
        state.misses[int(state.misses_n[at]) % MISSES, at] = miss
        state.misses_n[at] += 1
        self._accept(state, at, row, value)

    def _accept(self, state: ProbeState, at: int, row: Row, value: float) -> None:
        place = int(state.n[at]) % PROBES
        state.steps[place, at], state.values[place, at] = row.step, value
        state.n[at] += 1
        state.accepted[at], state.refused[at], state.since[at] = row.step, 0.0, 0.0
        saves = [float(s) for s in (state.run_saved[at], state.run_saved_before[at]) if 0 <= s <= row.step]
        state.snapshot[at] = max([*saves, float(state.snapshot[at])])

    def _refuse(
        self, state: ProbeState, at: int, row: Row, value: float, forecast: float, sigma: float, weight: int
    ) -> None:
        state.refused[at] += weight
        if state.refused[at] == weight:
            state.from_step[at] = row.step
        state.value[at], state.forecast[at], state.sigma[at] = value, forecast, sigma
        if state.refused[at] >= self.catalogue.limit("probe_in_a_row") and state.since[at] == 0:
            state.since[at] = row.at
        if state.refused[at] > self.catalogue.limit("probe_most_refused"):  # this is what the run does now
            state.n[at] = state.misses_n[at] = state.refused[at] = state.since[at] = 0.0

    def _finding(self, state: ProbeState, at: int, fleet: Fleet) -> Finding:
        name, step = str(state.run_name[at]), int(state.from_step[at])
        value, forecast = plain_number(float(state.value[at])), plain_number(float(state.forecast[at]))
        snapshot = int(state.snapshot[at])
        back = (
            f"The last accepted snapshot is the save of step {snapshot:,}: roll back to it."
            if snapshot >= 0
            else "No save is known from before it."
        )
        reason = f"{name}: the validation loss is {value} since step {step:,}, where {forecast} was foretold. {back}"
        times = (float(state.value[at]) - float(state.forecast[at])) / max(float(state.sigma[at]), 1e-12)
        evidence = (
            Evidence("Validation loss", value, forecast, "nats", f"step:{name}/{step}"),
            Evidence("Innovation", plain_number(times), "at most 6", "robust standard deviations", grade="derived"),
            Evidence("Last accepted probe", f"step {int(state.accepted[at]):,}", grade="derived"),
        )
        entity, since = memory.entity(state, at, fleet), float(state.since[at])
        return Finding(self.name, "loss_divergence", entity, Severity.HIGH, 0.75, since, reason, evidence)


def _order(state: ProbeState, at: int) -> list[int]:
    """Places of the accepted probes, oldest first."""
    n = int(state.n[at])
    return [i % PROBES for i in range(max(0, n - PROBES), n)]


def _line(steps: Floats, values: Floats, at: float) -> float:
    """Theil and Sen: the median of all slopes through the middle, at step ``at``; a slope upwards is not foretold."""
    first, second = np.triu_indices(len(steps), 1)
    apart = steps[second] - steps[first]
    slopes = (values[second] - values[first])[apart > 0] / apart[apart > 0]
    slope = min(float(np.median(slopes)), 0.0) if len(slopes) else 0.0
    return float(np.median(values - slope * steps)) + slope * at
