"""NFS calls of every mount against their own past, and disks that fill up. Many clients at once: the server."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.columns import asked, column, measures
from detectors.model import Axis, BoolArray, Finding, Fleet, FloatArray, IntArray, Judged, MetricKey, Need, Tick
from detectors.rows import cells, fit, moved, started
from detectors.telemetry.storage_phrases import mount_finding, server_finding
from detectors.telemetry.usual import learn, over

#: What a call may show: it takes longer than usual; it is not answered at all; it ran into its major timeout.
SLOW, STALLED, TIMED_OUT = range(3)
SIGNS = 3
REQUESTS, TIME, QUEUED, TIMEOUTS = ("op_requests", "op_request_s", "op_queue_s", "op_major_timeouts")
KEYS: tuple[MetricKey, ...] = tuple(("mount_op", m) for m in (REQUESTS, TIME, QUEUED, TIMEOUTS))
BLOCKED: MetricKey = ("node", "node_procs_blocked")
#: Quiet hours and bursts (a checkpoint is written, a data set loaded) have each a usual time for a call.
BANDS = 2
MOST_GAP_S = 600.0


@dataclass(slots=True)
class StorageState:
    """Per call row n. ``high`` float32[2, n] and ``looks`` int32[2, n]: the usual high of the logarithm of seconds for
    each call, in quiet hours and in bursts; ``rate`` float32[n], the usual rate of calls; ``seen_at`` float64[n]. Per
    sign s: ``begun``, ``last`` float64[s, n]; ``held`` bool[s, n]. At the last unusual look: ``time_s``, ``usual_s``,
    ``share`` float32[n] (of the time, the part spent in the client's queue). ``excess`` float32[n]: how far the last
    look lay above (or below) the usual high; ``of_many`` bool[n]: what it shows, it showed with other clients.
    ``blocked`` float32[m], per node row the usual number of processes that wait for a disk; ``blind`` bool[n]."""

    high: FloatArray = cells(-np.inf, np.float32, BANDS, axis="mount_op")
    looks: NDArray[np.int32] = cells(0, np.int32, BANDS, axis="mount_op")
    rate: FloatArray = cells(np.nan, np.float32, axis="mount_op")
    seen_at: NDArray[np.float64] = cells(-np.inf, axis="mount_op")
    begun: NDArray[np.float64] = cells(np.nan, np.float64, SIGNS, axis="mount_op")
    last: NDArray[np.float64] = cells(-np.inf, np.float64, SIGNS, axis="mount_op")
    held: BoolArray = cells(False, np.bool_, SIGNS, axis="mount_op")
    time_s: FloatArray = cells(0.0, np.float32, axis="mount_op")
    usual_s: FloatArray = cells(0.0, np.float32, axis="mount_op")
    share: FloatArray = cells(0.0, np.float32, axis="mount_op")
    excess: FloatArray = cells(np.nan, np.float32, axis="mount_op")
    of_many: BoolArray = cells(False, np.bool_, axis="mount_op")
    blocked: FloatArray = cells(np.nan, np.float32, axis="node")
    blind: BoolArray = cells(False, np.bool_, axis="mount_op")


@dataclass(frozen=True, slots=True)
class Storage:
    """Thresholds: all that begin with storage_."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = field(default=frozenset({*KEYS, BLOCKED}))

    @property
    def name(self) -> str:
        return "telemetry/storage"

    def start(self, fleet: Fleet) -> StorageState:
        return started(StorageState, fleet)

    def step(self, state: StorageState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("mount_op")
        if axis is None:
            return Judged()
        fit(state, fleet)
        if measures(tick, KEYS):
            with np.errstate(all="ignore"):  # absurd numbers are no reason to fail
                self._look(state, tick, axis, fleet)
        return Judged(self._findings(state, axis, fleet), {"mount_op": state.blind & axis.live})

    def move(self, state: StorageState, old: Fleet, new: Fleet) -> StorageState:
        return moved(state, old, new)

    def _s(self, name: str) -> float:
        return self.catalogue.limit(f"storage_{name}")

    # --- one look ---------------------------------------------------------------------------------------------------

    def _look(self, state: StorageState, tick: Tick, axis: Axis, fleet: Fleet) -> None:
        n, at = len(axis), tick.at
        rate, spent, queued, timeouts = (column(tick, key, n) for key in KEYS)
        seen = ~np.isnan(rate) & axis.live
        known = np.isfinite(state.seen_at)
        gap = np.where(seen & known, np.clip(at - state.seen_at, 0.0, MOST_GAP_S), 0.0)
        shown = np.zeros((SIGNS, n), np.bool_)
        shown[SLOW] = self._slow(state, rate, spent, queued, seen)
        shown[STALLED] = self._stalled(state, rate, seen, tick, axis, fleet)
        shown[TIMED_OUT] = timeouts > 0
        share = 1.0 - np.exp(-gap / self._s("rate_over_s"))
        moved = np.where(np.isnan(state.rate), rate, state.rate + share * (rate - state.rate)).astype(np.float32)
        state.rate = np.where(seen & ~shown.any(axis=0), moved, state.rate)
        self._hold(state, shown & seen, seen, at)
        state.blind = asked(tick, KEYS[0], n) & ~seen & axis.live & known
        state.seen_at[seen] = at

    def _slow(
        self, state: StorageState, rate: FloatArray, spent: FloatArray, queued: FloatArray, seen: BoolArray
    ) -> BoolArray:
        """Calls that take much longer than ever in this band. A burst is judged by bursts."""
        each = np.log(np.fmax(spent / rate, np.float32(1e-6))).astype(np.float32)
        counts = seen & (rate >= self._s("least_calls_a_s")) & ~np.isnan(each)
        burst = rate > self._s("burst_times") * np.nan_to_num(state.rate, nan=np.inf)
        slow = np.zeros(len(rate), np.bool_)
        state.excess = np.where(seen, np.float32(np.nan), state.excess)
        warm, by = int(self._s("looks")), float(np.log(self._s("times")))
        for band, here in ((0, counts & ~burst), (1, counts & burst)):
            high, looks = state.high[band], state.looks[band]
            enough = warm if band == 0 else int(self._s("burst_looks"))
            beyond = here & over(high, looks, each, enough, by) & (np.exp(each) >= self._s("least_s"))
            state.excess = np.where(here & (looks >= enough), each - high, state.excess)
            learn(high, looks, each, here & ~beyond, enough)
            state.usual_s = np.where(beyond, np.exp(high), state.usual_s)
            slow |= beyond
        state.time_s = np.where(slow, np.exp(each), state.time_s)
        state.share = np.where(slow, np.clip(np.nan_to_num(queued / spent), 0.0, 1.0), state.share)
        return slow

    def _stalled(
        self, state: StorageState, rate: FloatArray, seen: BoolArray, tick: Tick, axis: Axis, fleet: Fleet
    ) -> BoolArray:
        """No call comes back where many do else, while processes wait for a disk as they never did."""
        nodes = fleet.axes.get("node")
        none = np.zeros(len(axis), np.bool_)
        if nodes is None:
            return none
        blocked = column(tick, BLOCKED, len(nodes))
        many = blocked >= np.nan_to_num(state.blocked) + self._s("blocked")
        known = ~np.isnan(blocked) & ~many
        kept = np.where(np.isnan(state.blocked), blocked, state.blocked + 0.02 * (blocked - state.blocked))
        state.blocked = np.where(known, kept, state.blocked).astype(np.float32)
        of_node = np.zeros(max(len(fleet.nodes), 1), np.bool_)
        inside = (nodes.node_of >= 0) & many
        of_node[nodes.node_of[inside]] = True
        still: BoolArray = seen & (rate <= 0.02 * state.rate) & (state.rate >= self._s("least_calls_a_s"))
        found: BoolArray = still & (axis.node_of >= 0) & of_node[np.maximum(axis.node_of, 0)]
        return found

    def _hold(self, state: StorageState, shown: BoolArray, seen: BoolArray, at: float) -> None:
        hold = np.array([self._s("slow_hold_s"), self._s("slow_hold_s"), 0.0])[:, None]
        clear = np.array([self._s("slow_clear_s"), self._s("slow_clear_s"), self._s("timeout_clear_s")])[:, None]
        state.begun[shown & np.isnan(state.begun)] = at
        state.last[shown] = at
        gone = seen & ~shown & (at - state.last >= np.where(state.held, clear, 0.0))
        state.begun[gone] = np.nan
        state.held = np.where(gone, False, state.held | (shown & (at - state.begun >= hold)))

    # --- what it says -----------------------------------------------------------------------------------------------

    def _findings(self, state: StorageState, axis: Axis, fleet: Fleet) -> tuple[Finding, ...]:
        found: dict[str, Finding] = {}
        for held in self._together(state, axis):
            made = server_finding(self.name, fleet, axis, state, held)
            found.setdefault(made.key, made)
        held = state.held & axis.live
        mounts: dict[tuple[int, str], list[int]] = {}
        for row in np.flatnonzero(held.any(axis=0) & ~state.of_many):
            if not held[SLOW, row] or self._alone(state, axis, int(row)):
                mounts.setdefault((int(axis.node_of[row]), axis.names[row]), []).append(int(row))
        for (node, name), calls in mounts.items():
            calls.sort(key=lambda row: axis.ids[row])
            one = mount_finding(self.name, fleet, node, name, axis, state, held, calls)
            found.setdefault(one.key, one)
        return tuple(found[key] for key in sorted(found))

    def _alone(self, state: StorageState, axis: Axis, row: int) -> bool:
        """Whether the call takes longer here than with the other clients, who would feel it if it were the server."""
        same = (axis.model_of == axis.model_of[row]) & (axis.role_of == axis.role_of[row]) & axis.live
        same &= (axis.node_of != axis.node_of[row]) & ~np.isnan(state.excess)
        if not same.any() or np.isnan(state.excess[row]):
            return True
        return bool(state.excess[row] - np.median(state.excess[same]) >= np.log(self._s("alone_times")))

    def _together(self, state: StorageState, axis: Axis) -> list[BoolArray]:
        """Exports of which enough clients show it, with what their calls show. That many agree is proof enough: it
        takes less time than with one client. What a call showed with others it shows for that reason, until it is over.
        """
        lasted = state.last - state.begun >= self._s("many_hold_s")
        ill = ~np.isnan(state.begun) & (lasted | state.held) & axis.live
        shows: BoolArray = np.asarray(ill.any(axis=0), np.bool_)
        state.of_many &= shows
        together = []
        for export in np.unique(axis.model_of[shows]):
            here = (axis.model_of == export) & axis.live
            if export >= 0 and self._many(state, shows, here, axis.node_of):
                state.of_many |= here & shows
                together.append(ill & here)
        return together

    def _many(self, state: StorageState, shows: BoolArray, here: BoolArray, node_of: IntArray) -> bool:
        """Whether enough of the clients that use the export show it. One that does nothing has nothing to show."""
        sick = np.unique(node_of[shows & here]).size
        uses = here & (state.rate >= self._s("least_calls_a_s"))
        clients = np.unique(node_of[uses | (shows & here)]).size
        return bool(sick >= self._s("many_clients") and sick >= self._s("many_share") * clients)
