"""Errors that a card corrects, more of them than the fleet and its own past explain: told before anything breaks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtrc

from detectors.catalogue import Catalogue
from detectors.columns import column, measures
from detectors.model import (
    Axis,
    BoolArray,
    Evidence,
    FaultKind,
    Finding,
    Fleet,
    Judged,
    MetricKey,
    Need,
    Severity,
    Tick,
)
from detectors.rows import cells, fit, moved, started
from detectors.wording import number, subject


@dataclass(frozen=True, slots=True)
class Trend:
    """One counter. floor: name of the threshold that says what a fleet in good health counts, a day and GPU. wears:
    what it counts does not heal, so that a day of it counts too, however steady it is."""

    key: MetricKey
    kind: FaultKind
    what: str
    floor: str
    wears: bool = False


TRENDS: tuple[Trend, ...] = (
    Trend(
        ("gpu", "remap_correctable"),
        "gpu_remap_trend_loss",
        "rows remapped after correctable errors",
        "trends_rows_a_day",
        wears=True,
    ),
    Trend(("gpu", "ecc_sbe_volatile"), "gpu_ecc_row_remap", "corrected memory errors", "trends_sbe_a_day"),
    Trend(("gpu", "pcie_replay"), "gpu_hardware_other", "PCIe replays", "trends_replays_a_day"),
    Trend(("gpu", "nvlink_crc_flit"), "nvlink_error", "NVLink flits with a bad checksum", "trends_flits_a_day"),
)
KEYS = tuple(trend.key for trend in TRENDS)
SCORE, DAY_S = 0.5, 86_400.0
#: Windows, as time constants of leaky totals.
FAST, SLOW = range(2)


@dataclass(slots=True)
class TrendsState:
    """Per window (fast, slow), trend and GPU row: ``count`` and ``time_s`` float64[2, 4, n], leaky totals of errors and
    of seconds seen. Per trend and row: ``seen_at``, ``held``, ``since``, ``quiet_at`` (since when it is as usual again,
    0 = it is not), ``shown``, ``expected`` (errors lately, and how many were)."""

    count: NDArray[np.float64] = cells(0.0, np.float64, 2, len(TRENDS))
    time_s: NDArray[np.float64] = cells(0.0, np.float64, 2, len(TRENDS))
    seen_at: NDArray[np.float64] = cells(-np.inf, np.float64, len(TRENDS))
    held: BoolArray = cells(False, np.bool_, len(TRENDS))
    since: NDArray[np.float64] = cells(0.0, np.float64, len(TRENDS))
    quiet_at: NDArray[np.float64] = cells(0.0, np.float64, len(TRENDS))
    shown: NDArray[np.float64] = cells(0.0, np.float64, len(TRENDS))
    expected: NDArray[np.float64] = cells(0.0, np.float64, len(TRENDS))


@dataclass(frozen=True, slots=True)
class Trends:
    """Thresholds: all that begin with trends_. A Poisson test: the chance of so many errors at the highest of three
    rates (what the fleet counts, what the card counted before, the least that is believed)."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = field(default=frozenset(KEYS))

    @property
    def name(self) -> str:
        return "telemetry/trends"

    def start(self, fleet: Fleet) -> TrendsState:
        return started(TrendsState, fleet)

    def step(self, state: TrendsState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("gpu")
        if axis is None:
            return Judged()
        fit(state, fleet)
        if measures(tick, KEYS):
            for place, trend in enumerate(TRENDS):
                with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                    self._look(state, place, trend, tick, axis)
        return Judged(self._findings(state, axis, fleet))

    def move(self, state: TrendsState, old: Fleet, new: Fleet) -> TrendsState:
        return moved(state, old, new)

    def _look(self, state: TrendsState, place: int, trend: Trend, tick: Tick, axis: Axis) -> None:
        """Fold one tick of one counter in, and judge the rows that counted."""
        limit, at = self.catalogue.limit, tick.at
        rate = column(tick, trend.key, len(axis)).astype(np.float64)
        seen = np.isfinite(rate) & axis.live & (at > state.seen_at[place])
        elapsed = np.where(
            np.isfinite(state.seen_at[place]), np.minimum(at - state.seen_at[place], limit("trends_gap_s")), 0.0
        )
        for window, name in ((FAST, "trends_fast_s"), (SLOW, "trends_slow_s")):
            keep = _kept(elapsed, limit(name))
            for total, more in ((state.count, np.maximum(rate, 0.0) * elapsed), (state.time_s, elapsed)):
                total[window, place] = np.where(seen, total[window, place] * keep + more, total[window, place])
        state.seen_at[place] = np.where(seen, at, state.seen_at[place])
        usual = self._usual(state, place, trend, axis)
        odd = np.zeros(len(axis), np.bool_)
        expected = np.zeros(len(axis))
        for window in (SLOW, FAST) if trend.wears else (FAST,):
            count, mean = state.count[window, place], usual[window] * state.time_s[window, place]
            some = seen & (count >= limit("trends_least") - 0.5)
            rare = np.zeros(len(axis), np.bool_)
            rare[some] = pdtrc(np.floor(count[some] + 0.5) - 1.0, np.maximum(mean[some], 1e-12)) < limit(
                "trends_chance"
            )
            state.shown[place] = np.where(rare, count, state.shown[place])
            expected, odd = np.where(rare, mean, expected), odd | rare
        state.expected[place] = np.where(odd, expected, state.expected[place])
        self._hold(state, place, odd, seen, at)

    def _usual(
        self, state: TrendsState, place: int, trend: Trend, axis: Axis
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Errors a second that a row may count, for the fast and the slow window."""
        limit = self.catalogue.limit
        count, time_s = state.count[:, place], state.time_s[:, place]
        known = axis.live & (time_s[SLOW] > 0)
        # What all but the worst tenth of the fleet stay below: bad cards do not make a rate usual.
        rates = count[SLOW][known] / time_s[SLOW][known]
        place_of = int(len(rates) * limit("trends_fleet_share"))
        most = float(np.partition(rates, place_of)[place_of]) if 0 < place_of < len(rates) else 0.0
        fleet = max(most, limit(trend.floor) / DAY_S)
        before_s = np.maximum(time_s[SLOW] - time_s[FAST], 0.0)
        before = np.where(
            before_s > limit("trends_fast_s"),
            np.maximum(count[SLOW] - count[FAST], 0.0) / np.maximum(before_s, 1.0),
            0.0,
        )
        return np.maximum(fleet, before), np.full(len(axis), fleet)

    def _hold(self, state: TrendsState, place: int, odd: BoolArray, seen: BoolArray, at: float) -> None:
        state.since[place] = np.where(odd & ~state.held[place], at, state.since[place])
        quiet = np.where(state.quiet_at[place] > 0, state.quiet_at[place], at)
        state.quiet_at[place] = np.where(odd, 0.0, np.where(seen & state.held[place], quiet, state.quiet_at[place]))
        over = (
            seen
            & ~odd
            & (state.quiet_at[place] > 0)
            & (at - state.quiet_at[place] >= self.catalogue.limit("trends_clear_s"))
        )
        state.held[place] = (state.held[place] | odd) & ~over
        gone = ~state.held[place]
        for array in (state.since, state.quiet_at, state.shown, state.expected):
            array[place][gone] = 0.0

    def _findings(self, state: TrendsState, axis: Axis, fleet: Fleet) -> tuple[Finding, ...]:
        found = [
            self._finding(state, place, int(row), fleet)
            for place in range(len(TRENDS))
            for row in np.flatnonzero(state.held[place] & axis.live)
        ]
        return tuple(sorted(found, key=lambda f: f.key))

    def _finding(self, state: TrendsState, place: int, row: int, fleet: Fleet) -> Finding:
        trend, gpu = TRENDS[place], fleet.entity("gpu", row)
        count, usual = number(float(state.shown[place, row])), number(float(state.expected[place, row]), 2)
        reason = f"{subject(gpu)} counts more and more {trend.what}: {count} lately, where {usual} are usual."
        evidence = (Evidence(trend.what, count, usual, "errors", f"metric:gpu/{trend.key[1]}", "derived"),)
        since = float(state.since[place, row])
        return Finding(self.name, trend.kind, gpu, Severity.WARNING, SCORE, since, reason, evidence)


def _kept(elapsed: NDArray[np.float64], over_s: float) -> NDArray[np.float64]:
    """exp(-elapsed / over_s); nearly always all rows were last seen at the same time."""
    first = float(elapsed[0]) if len(elapsed) else 0.0
    same = bool((elapsed == first).all())
    return np.full(len(elapsed), np.exp(-first / over_s)) if same else np.exp(-elapsed / over_s)
