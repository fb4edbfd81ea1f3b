"""Heat of a GPU against its own past at the same power: what peers cannot show, for they may be as hot."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.columns import column, measures
from detectors.model import (
    Axis,
    BoolArray,
    Evidence,
    Finding,
    Fleet,
    FloatArray,
    Judged,
    MetricKey,
    Need,
    Severity,
    Tick,
)
from detectors.rows import cells, fit, moved, started
from detectors.wording import number, subject

HEAT: tuple[MetricKey, ...] = (("gpu", "temperature_c"), ("gpu", "memory_temperature_c"))
POWER: MetricKey = ("gpu", "power_w")
BUSY: MetricKey = ("gpu", "utilisation_pct")
M = len(HEAT)
SCORE = 0.5
#: The steepest and flattest that heat follows power, °C for each W: 8 °C to 100 °C over the range of a 700 W card.
LEAST_SLOPE, MOST_SLOPE = 0.01, 0.14


@dataclass(slots=True)
class OwnState:
    """Per GPU row. ``felt``: power as the heat sink feels it, W (NaN: not seen). Per sensor and row, averages of quiet
    looks at work: ``heat``, ``load`` (of felt), ``both``, ``squares`` (covariance, variance of load), ``noise``
    (variance of what remains). ``learned_s``; ``sum``: Page's one-sided sum of standardised excess; ``begun``: when it
    last left 0, the estimate of when the change happened; ``held``; ``excess``, ``expected``: °C at the last look that
    counted. ``seen_at``."""

    felt: FloatArray = cells(np.nan, np.float32)
    heat: FloatArray = cells(np.nan, np.float32, M)
    load: FloatArray = cells(0.0, np.float32, M)
    both: FloatArray = cells(0.0, np.float32, M)
    squares: FloatArray = cells(0.0, np.float32, M)
    noise: FloatArray = cells(0.0, np.float32, M)
    learned_s: FloatArray = cells(0.0, np.float32, M)
    sum: FloatArray = cells(0.0, np.float32, M)
    begun: NDArray[np.float64] = cells(0.0, np.float64, M)
    held: BoolArray = cells(False, np.bool_, M)
    excess: FloatArray = cells(0.0, np.float32, M)
    expected: FloatArray = cells(0.0, np.float32, M)
    seen_at: NDArray[np.float64] = cells(-np.inf)


@dataclass(frozen=True, slots=True)
class Own:
    """Thresholds: all that begin with own_. Expected heat is the usual one, moved along the card's own slope of heat
    over power; a sum of excess (Page, Biometrika 41, 1954) tells a lasting change from noise, and what it flags does
    not train the past."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = field(default=frozenset({*HEAT, POWER, BUSY}))

    @property
    def name(self) -> str:
        return "telemetry/own"

    def start(self, fleet: Fleet) -> OwnState:
        return started(OwnState, fleet)

    def step(self, state: OwnState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("gpu")
        if axis is None:
            return Judged()
        fit(state, fleet)
        if measures(tick, HEAT):
            with np.errstate(all="ignore"):  # absurd numbers are no reason to fail
                self._look(state, tick, axis)
        return Judged(self._findings(state, axis, fleet))

    def move(self, state: OwnState, old: Fleet, new: Fleet) -> OwnState:
        return moved(state, old, new)

    def _look(self, state: OwnState, tick: Tick, axis: Axis) -> None:
        limit, n = self.catalogue.limit, len(axis)
        power, busy = column(tick, POWER, n), column(tick, BUSY, n)
        fresh = axis.live & (tick.at > state.seen_at) & ~np.isnan(power)
        gap = np.where(np.isfinite(state.seen_at), np.minimum(tick.at - state.seen_at, limit("own_gap_s")), 0.0)
        gap = np.where(fresh, gap, 0.0).astype(np.float32)
        lag = 1.0 - np.exp(-gap / np.float32(limit("own_lag_s")))
        felt = np.where(np.isnan(state.felt), power, state.felt + lag * (power - state.felt))
        state.felt = np.where(fresh, felt, state.felt).astype(np.float32)
        works = fresh & (busy >= limit("own_busy_pct"))
        for place, key in enumerate(HEAT):
            if key in tick.values:
                self._sensor(state, place, column(tick, key, n), works, gap, tick.at)
        state.seen_at = np.where(fresh, tick.at, state.seen_at)

    def _sensor(self, state: OwnState, m: int, now: FloatArray, works: BoolArray, gap: FloatArray, at: float) -> None:
        limit = self.catalogue.limit
        seen = works & ~np.isnan(now)
        slope = np.clip(
            (state.both[m] + 0.06 * limit("own_prior_w2")) / (state.squares[m] + limit("own_prior_w2")),
            LEAST_SLOPE, MOST_SLOPE,
        ).astype(np.float32)  # fmt: skip
        expected = state.heat[m] + slope * (state.felt - state.load[m])
        excess = now - expected
        ripe = state.learned_s[m] >= limit("own_learn_s")
        sigma = np.maximum(np.sqrt(state.noise[m]), np.float32(limit("own_noise_c")))
        z = np.minimum(excess / sigma, np.float32(limit("own_most_z")))
        z = np.where(seen & ripe & ~np.isnan(z), z, 0.0)
        looks = gap / np.float32(limit("own_look_s"))
        drifts = np.where(seen & ripe, looks * (z - np.float32(limit("own_slack_z"))), 0.0)
        before = state.sum[m]
        total = np.clip(before + drifts, 0.0, np.float32(2.0 * limit("own_sum_z"))).astype(np.float32)
        state.begun[m] = np.where(total <= 0, 0.0, np.where(before <= 0, at, state.begun[m]))
        loud = (total >= limit("own_sum_z")) & (excess >= limit("own_excess_c")) & seen
        state.held[m] = (state.held[m] | loud) & (total > 0)
        state.sum[m] = total
        state.excess[m] = np.where(loud, excess, np.where(state.held[m], state.excess[m], 0.0))
        state.expected[m] = np.where(loud, expected, np.where(state.held[m], state.expected[m], 0.0))
        quiet = seen & ((total < np.float32(limit("own_slack_z"))) | ~ripe) & (np.abs(excess) < 6.0 * sigma)
        self._learn(state, m, now, quiet | (seen & np.isnan(state.heat[m])), gap)

    def _learn(self, state: OwnState, m: int, now: FloatArray, quiet: BoolArray, gap: FloatArray) -> None:
        """EWMA of the quiet looks; a young past learns as a plain mean does."""
        limit = self.catalogue.limit
        share = np.maximum(1.0 - np.exp(-gap / np.float32(limit("own_memory_s"))), gap / (state.learned_s[m] + gap))
        share = np.where(quiet, np.nan_to_num(share), 0.0).astype(np.float32)
        first = quiet & np.isnan(state.heat[m])
        apart, load = now - state.heat[m], state.felt - state.load[m]
        state.both[m] = np.where(first, 0.0, (1 - share) * (state.both[m] + share * np.nan_to_num(apart * load)))
        state.squares[m] = np.where(first, 0.0, (1 - share) * (state.squares[m] + share * np.nan_to_num(load * load)))
        slope = np.clip(state.both[m] / np.maximum(state.squares[m], 1.0), 0.0, MOST_SLOPE)
        rest = np.nan_to_num(apart - slope * load)
        state.noise[m] = np.where(first, 0.0, (1 - share) * (state.noise[m] + share * rest * rest))
        state.heat[m] = np.where(first, now, np.where(quiet, state.heat[m] + share * apart, state.heat[m]))
        state.load[m] = np.where(first, state.felt, np.where(quiet, state.load[m] + share * load, state.load[m]))
        state.learned_s[m] = np.where(quiet, np.minimum(state.learned_s[m] + gap, 1e6), state.learned_s[m])

    def _findings(self, state: OwnState, axis: Axis, fleet: Fleet) -> tuple[Finding, ...]:
        rows = np.flatnonzero(state.held.any(axis=0) & axis.live)
        return tuple(sorted((self._finding(state, int(row), fleet) for row in rows), key=lambda f: f.key))

    def _finding(self, state: OwnState, row: int, fleet: Fleet) -> Finding:
        gpu = fleet.entity("gpu", row)
        evidence = []
        for m in np.flatnonzero(state.held[:, row]):
            usual = float(state.expected[m, row])
            evidence.append(
                Evidence(HEAT[m][1].removesuffix("_c").replace("_", " "), number(usual + float(state.excess[m, row])),
                         number(usual), "°C", f"metric:gpu/{HEAT[m][1]}", "derived")
            )  # fmt: skip
        most = number(float(state.excess[:, row].max()))
        return Finding(
            detector=self.name,
            kind="thermal_throttle",
            entity=gpu,
            severity=Severity.WARNING,
            score=SCORE,
            since=float(state.begun[state.held[:, row], row].min()),
            reason=f"{subject(gpu)} is {most} °C hotter than it used to be at this power.",
            evidence=tuple(evidence),
        )
