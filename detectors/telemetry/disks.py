"""File systems that are full, and those that will be soon at the pace of the last quarter of an hour."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.columns import asked, column, measures
from detectors.model import (
    Axis,
    BoolArray,
    Entity,
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
from detectors.telemetry.storage_phrases import system_of
from detectors.wording import number

AVAIL: MetricKey = ("mount", "mount_avail_bytes")
SIZE: MetricKey = ("mount", "mount_size_bytes")
FULL, FILLING = range(2)
SIGNS = 2
MOST_GAP_S = 600.0


@dataclass(slots=True)
class DisksState:
    """Per mount row n: ``left`` float32[n], the share that is free; ``bytes_left`` float64[n]; ``fast`` and ``slow``
    float32[n], the share that is used up in a second, over two horizons; ``seen_at`` float64[n]. Per sign s: ``begun``,
    ``last`` float64[s, n]; ``held`` bool[s, n]. ``blind`` bool[n]."""

    left: FloatArray = cells(np.nan, np.float32, axis="mount")
    bytes_left: NDArray[np.float64] = cells(np.nan, axis="mount")
    fast: FloatArray = cells(0.0, np.float32, axis="mount")
    slow: FloatArray = cells(0.0, np.float32, axis="mount")
    seen_at: NDArray[np.float64] = cells(-np.inf, axis="mount")
    begun: NDArray[np.float64] = cells(np.nan, np.float64, SIGNS, axis="mount")
    last: NDArray[np.float64] = cells(-np.inf, np.float64, SIGNS, axis="mount")
    held: BoolArray = cells(False, np.bool_, SIGNS, axis="mount")
    blind: BoolArray = cells(False, np.bool_, axis="mount")


@dataclass(frozen=True, slots=True)
class Disks:
    """Thresholds: all that begin with disks_."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = field(default=frozenset({AVAIL, SIZE}))

    @property
    def name(self) -> str:
        return "telemetry/disks"

    def start(self, fleet: Fleet) -> DisksState:
        return started(DisksState, fleet)

    def step(self, state: DisksState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("mount")
        if axis is None:
            return Judged()
        fit(state, fleet)
        if measures(tick, (AVAIL,)):
            with np.errstate(all="ignore"):  # absurd numbers are no reason to fail
                self._look(state, tick, axis)
        return Judged(self._findings(state, axis, fleet), {"mount": state.blind & axis.live})

    def move(self, state: DisksState, old: Fleet, new: Fleet) -> DisksState:
        return moved(state, old, new)

    def _s(self, name: str) -> float:
        return self.catalogue.limit(f"disks_{name}")

    def _look(self, state: DisksState, tick: Tick, axis: Axis) -> None:
        n, at = len(axis), tick.at
        avail, size = column(tick, AVAIL, n), column(tick, SIZE, n)
        seen = ~np.isnan(avail) & (size > 0) & axis.live
        known = np.isfinite(state.seen_at)
        gap = np.clip(at - state.seen_at, 0.0, MOST_GAP_S)
        left = np.where(seen, avail / size, state.left).astype(np.float32)
        paced = seen & known & (gap > 0)
        pace = np.where(paced, (state.left - left) / np.fmax(gap, 1e-3), 0.0)
        for rate, over_s in ((state.fast, self._s("fast_s")), (state.slow, self._s("slow_s"))):
            rate[paced] += ((1.0 - np.exp(-gap / over_s)) * (pace - rate))[paced].astype(np.float32)
        shown = np.zeros((SIGNS, n), np.bool_)
        shown[FULL] = (left <= self._s("full_share")) | (
            (avail <= self._s("full_bytes")) & (size >= self._s("real_bytes"))
        )
        slowest = np.fmin(state.fast, state.slow)
        steady = state.fast >= self._s("steady_share") * state.slow
        shown[FILLING] = (
            steady & (slowest > 0) & (left <= self._s("ahead_s") * slowest) & (left <= self._s("ahead_share"))
        )
        state.left, state.bytes_left = left, np.where(seen, avail, state.bytes_left)
        self._hold(state, shown & seen, seen, at)
        state.blind = asked(tick, AVAIL, n) & ~seen & axis.live & known
        state.seen_at[seen] = at

    def _hold(self, state: DisksState, shown: BoolArray, seen: BoolArray, at: float) -> None:
        hold = np.array([self._s("full_hold_s"), self._s("ahead_hold_s")])[:, None]
        clear = self._s("clear_s")
        state.begun[shown & np.isnan(state.begun)] = at
        state.last[shown] = at
        gone = seen & ~shown & (at - state.last >= np.where(state.held, clear, 0.0))
        state.begun[gone] = np.nan
        state.held = np.where(gone, False, state.held | (shown & (at - state.begun >= hold)))

    def _findings(self, state: DisksState, axis: Axis, fleet: Fleet) -> tuple[Finding, ...]:
        found: dict[str, Finding] = {}
        rows = np.flatnonzero((state.held & axis.live).any(axis=0)).tolist()
        for row in sorted(rows, key=lambda r: axis.ids[r]):
            one = self._finding(state, row, axis, fleet)
            known = found.get(one.key)
            if known is None or one.since < known.since:
                found[one.key] = one
        return tuple(found[key] for key in sorted(found))

    def _finding(self, state: DisksState, row: int, axis: Axis, fleet: Fleet) -> Finding:
        """Of a file system that many nodes mount, one finding speaks for all."""
        entity, where = fleet.entity("mount", row), axis.names[row].partition("mount:")[2]
        if ":/" in fleet.models[axis.model_of[row]] if axis.model_of[row] >= 0 else False:
            name = system_of(where)
            entity = Entity(fleet.cluster, "fs", name, f"fs:{name}")
        used, full = 100 * (1 - float(state.left[row])), bool(state.held[FULL, row])
        pace = float(np.fmin(state.fast[row], state.slow[row]))
        minutes = float(state.left[row]) / pace / 60 if pace > 0 else 0.0
        whose = str(entity) if entity.kind == "fs" else f"{where} of {entity.host}"
        reason = f"{whose} is full: {number(used, 1)} % used."
        if not full:
            reason = f"{whose} fills up: {number(used)} % used, full in some {number(minutes)} minutes at this pace."
        evidence = [Evidence("used", number(used, 1), f"under {number(100 * (1 - self._s('full_share')))}", "%", _REF)]
        if not full:
            evidence.append(Evidence("time left at this pace", number(minutes), "", "min", _REF, "derived"))
        since = float(np.nanmin(np.where(state.held[:, row], state.begun[:, row], np.nan)))
        score = 0.85 if full else 0.6
        return Finding(self.name, "disk_full", entity, Severity.WARNING, score, since, reason, tuple(evidence))


_REF = "metric:mount/mount_avail_bytes"
