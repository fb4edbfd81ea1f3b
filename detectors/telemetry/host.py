"""Nodes that started anew, and nodes whose memory runs out."""

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
from detectors.wording import number

UPTIME: MetricKey = ("node", "node_uptime_s")
FREE: MetricKey = ("node", "node_memory_available_bytes")
TOTAL: MetricKey = ("node", "node_memory_total_bytes")
#: A boot time is worked out from the uptime, and may jitter by so much, s.
JITTER_S = 30.0


@dataclass(slots=True)
class HostState:
    """Per node row n: ``boot_at`` float64[n], when it booted (NaN: unknown); ``worked`` bool[n], whether a job held it
    when it was last heard; ``rebooted_at`` float64[n] and ``lost_job`` bool[n] of its last reboot; ``heard_at``
    float64[n]; ``short_since``, ``short_last`` float64[n] and ``short`` bool[n]: little memory left; ``free``
    float32[n], its share."""

    boot_at: NDArray[np.float64] = cells(np.nan, axis="node")
    worked: BoolArray = cells(False, np.bool_, axis="node")
    rebooted_at: NDArray[np.float64] = cells(-np.inf, axis="node")
    lost_job: BoolArray = cells(False, np.bool_, axis="node")
    heard_at: NDArray[np.float64] = cells(-np.inf, axis="node")
    short_since: NDArray[np.float64] = cells(np.nan, axis="node")
    short_last: NDArray[np.float64] = cells(-np.inf, axis="node")
    short: BoolArray = cells(False, np.bool_, axis="node")
    free: FloatArray = cells(np.nan, np.float32, axis="node")


@dataclass(frozen=True, slots=True)
class Host:
    """Thresholds: host_reboot_s, host_memory_share, host_memory_hold_s, host_memory_clear_s."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = field(default=frozenset({UPTIME, FREE, TOTAL}))

    @property
    def name(self) -> str:
        return "telemetry/host"

    def start(self, fleet: Fleet) -> HostState:
        return started(HostState, fleet)

    def step(self, state: HostState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("node")
        if axis is None:
            return Judged()
        fit(state, fleet)
        if measures(tick, (UPTIME, FREE)):
            with np.errstate(all="ignore"):  # absurd numbers are no reason to fail
                self._boots(state, tick, axis)
                self._memory(state, tick, axis)
        return Judged(self._findings(state, axis, fleet))

    def move(self, state: HostState, old: Fleet, new: Fleet) -> HostState:
        return moved(state, old, new)

    def _boots(self, state: HostState, tick: Tick, axis: Axis) -> None:
        """A node that has been up for less long than it should be has started anew. One that no job held when it was
        last heard was rebooted by somebody who knew."""
        up = column(tick, UPTIME, len(axis)).astype(np.float64)
        seen = ~np.isnan(up) & axis.live
        boot_at = tick.at - up
        anew = seen & (boot_at > state.boot_at + np.fmax(JITTER_S, 1e-4 * up)) & (tick.at >= state.heard_at)
        state.rebooted_at[anew] = boot_at[anew]
        state.lost_job[anew] = state.worked[anew]
        state.boot_at[seen] = boot_at[seen]
        state.worked[seen] = axis.job_of[seen] >= 0
        state.heard_at[seen] = tick.at

    def _memory(self, state: HostState, tick: Tick, axis: Axis) -> None:
        free, total = column(tick, FREE, len(axis)), column(tick, TOTAL, len(axis))
        share = (free / total).astype(np.float32)
        seen = ~np.isnan(share) & axis.live
        short = seen & (share <= self.catalogue.limit("host_memory_share"))
        state.short_since[short & np.isnan(state.short_since)] = tick.at
        state.short_last[short] = tick.at
        wait = np.where(state.short, self.catalogue.limit("host_memory_clear_s"), 0.0)
        gone = seen & ~short & (tick.at - state.short_last >= wait)
        state.short_since[gone] = np.nan
        lasted = tick.at - state.short_since >= self.catalogue.limit("host_memory_hold_s")
        state.short = np.where(gone, False, state.short | (short & lasted))
        state.free = np.where(short, share, state.free)

    def _findings(self, state: HostState, axis: Axis, fleet: Fleet) -> tuple[Finding, ...]:
        recent = state.rebooted_at >= np.fmax(state.heard_at, 0.0) - self.catalogue.limit("host_reboot_s")
        found = [self._reboot(state, fleet, int(row)) for row in np.flatnonzero(recent & axis.live)]
        found += [self._short(state, fleet, int(row)) for row in np.flatnonzero(state.short & axis.live)]
        return tuple(sorted(found, key=lambda f: f.key))

    def _reboot(self, state: HostState, fleet: Fleet, row: int) -> Finding:
        entity, lost = fleet.entity("node", row), bool(state.lost_job[row])
        reason = f"{entity} started anew while a job ran on it." if lost else f"{entity} started anew; it had no job."
        ago = number(float(state.heard_at[row] - state.rebooted_at[row]))
        evidence = Evidence("up for", ago, "", "s", "metric:node/node_uptime_s")
        severity = Severity.WARNING if lost else Severity.INFO
        at = float(state.rebooted_at[row])
        return Finding(self.name, "node_reboot", entity, severity, 0.9, at, reason, (evidence,))

    def _short(self, state: HostState, fleet: Fleet, row: int) -> Finding:
        entity, share = fleet.entity("node", row), number(100 * float(state.free[row]), 1)
        least = number(100 * self.catalogue.limit("host_memory_share"), 1)
        evidence = Evidence("memory available", share, f"over {least}", "%", "metric:node/node_memory_available_bytes")
        reason = f"{entity} has {share} % of its memory left: the kernel is about to kill a process."
        since = float(state.short_since[row])
        return Finding(self.name, "host_oom", entity, Severity.WARNING, 0.5, since, reason, (evidence,))
