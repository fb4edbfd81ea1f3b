"""Heat, power and clocks of a GPU against the GPUs that do the same work: same job, model and role."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.columns import asked, column, measures
from detectors.model import Axis, BoolArray, Finding, Fleet, FloatArray, IntArray, Judged, MetricKey, Need, Tick
from detectors.rows import cells, fit, moved, started
from detectors.telemetry.peer_phrases import finding_of
from detectors.telemetry.robust import MAD_TO_SIGMA, PeerGroups, group_statistics, per_group

TEMPERATURE, CLOCK, POWER, BUSY = range(4)
METRICS: tuple[MetricKey, ...] = (
    ("gpu", "temperature_c"),
    ("gpu", "sm_clock_mhz"),
    ("gpu", "power_w"),
    ("gpu", "utilisation_pct"),
)
THROTTLED, HOT, SLOW = range(3)


@dataclass(slots=True)
class PeersState:
    """Per GPU row, n of them, and per rule (throttled, hot, slow): ``run`` int16[3, n] counts agreeing looks up to
    peers_ticks and back, ``held`` bool[3, n] is the level, ``since`` float64[3, n] the first look of it. Per metric:
    ``used`` bool[4, n], and at the last look that flagged the row ``value`` and ``expected`` float32[4, n] (0 else).
    ``peers`` int32[n]: how many it was measured against. ``blind``: in a job, expected, and not to be judged."""

    used: BoolArray = cells(False, np.bool_, 4)
    run: NDArray[np.int16] = cells(0, np.int16, 3)
    held: BoolArray = cells(False, np.bool_, 3)
    since: NDArray[np.float64] = cells(0.0, np.float64, 3)
    value: FloatArray = cells(0.0, np.float32, 4)
    expected: FloatArray = cells(0.0, np.float32, 4)
    peers: IntArray = cells(0, np.int32)
    blind: BoolArray = cells(False, np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """One tick as the peers see it. slots int[k]: the members; columns float32[4, k] follow them, idle ones NaN;
    ``normal`` and ``spread`` float32[4, k]: median and MAD of their group. int[k] of the group, by temperature:
    ``peers`` (others at work), ``size`` (who has ever reported), ``reporting`` (who does now)."""

    slots: NDArray[np.intp]
    columns: FloatArray
    normal: FloatArray
    spread: FloatArray
    peers: NDArray[np.int64]
    size: NDArray[np.int64]
    reporting: NDArray[np.int64]
    idle: BoolArray


@dataclass(frozen=True, slots=True)
class Peers:
    """Thresholds: all that begin with peers_."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = field(default=frozenset(METRICS))

    @property
    def name(self) -> str:
        return "telemetry/peers"

    def start(self, fleet: Fleet) -> PeersState:
        return started(PeersState, fleet)

    def step(self, state: PeersState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("gpu")
        if axis is None:
            return Judged()
        fit(state, fleet)
        if measures(tick, METRICS):
            with np.errstate(over="ignore", invalid="ignore"):  # absurd numbers are no reason to fail
                self._judge(state, tick, axis)
        return Judged(self._findings(state, axis, fleet), {"gpu": state.blind & axis.live})

    def move(self, state: PeersState, old: Fleet, new: Fleet) -> PeersState:
        return moved(state, old, new)

    def _judge(self, state: PeersState, tick: Tick, axis: Axis) -> None:
        """Fold one telemetry tick in; all arrays, no loop over rows."""
        n = len(axis)
        columns = np.stack([column(tick, key, n) for key in METRICS])
        state.used |= ~np.isnan(columns) & axis.live
        look = self._look(columns, axis, state.used)
        seen = np.stack([asked(tick, key, n)[look.slots] for key in METRICS[:BUSY]])
        absent = state.used[:BUSY, look.slots] & np.isnan(columns[:BUSY, look.slots])
        limit = self.catalogue.limit("peers_min_group")
        # A group too small to judge claims nothing; one of which only few were due now waits for the others.
        judgeable = look.size >= limit
        waiting = judgeable & (absent.any(axis=0) | (look.reporting < limit))
        judged = judgeable & ~waiting & ~look.idle & (look.peers + 1 >= limit) & state.used[TEMPERATURE, look.slots]
        self._count(state, tick.at, look, judged, waiting)
        missing = judgeable & (absent & seen).any(axis=0)
        unasked = judgeable & ~seen.any(axis=0)
        blind = np.zeros(n, np.bool_)
        blind[look.slots] = np.where(unasked, state.blind[look.slots], missing)
        state.blind = blind

    def _look(self, columns: FloatArray, axis: Axis, used: BoolArray) -> _Look:
        """Members in order of their groups, idle ones left out of what is normal."""
        slots = axis.by_peers.astype(np.intp)
        mine = columns[:, slots]
        idle = mine[BUSY] < self.catalogue.limit("peers_idle_pct")
        mine = np.where(idle, np.float32(np.nan), mine)
        sizes = np.diff(axis.peer_starts)
        exact = int(self.catalogue.limit("peers_exact_members"))
        groups: PeerGroups = group_statistics(mine, axis.peer_starts, exact)
        normal, spread = (np.repeat(each, sizes, axis=1) for each in (groups.median, groups.mad))
        peers, size, reporting = (
            np.repeat(count, sizes)
            for count in (
                groups.count[TEMPERATURE],
                per_group(used[TEMPERATURE, slots], axis.peer_starts),
                per_group(~np.isnan(columns[TEMPERATURE, slots]), axis.peer_starts),
            )
        )
        return _Look(slots, mine, normal, spread, peers - 1, size, reporting, idle)

    def _rules(self, state: PeersState, look: _Look) -> BoolArray:
        """bool[3, k]: throttled (hot and slower for it), hot, slow (and drawing less, and not hot)."""
        limit = self.catalogue.limit
        above = look.columns - look.normal
        sigma = MAD_TO_SIGMA * look.spread
        heat = np.maximum(sigma[TEMPERATURE], limit("peers_temperature_noise_c"))
        hot = above[TEMPERATURE] >= np.maximum(limit("peers_hot_floor_c"), limit("peers_z") * heat)
        clock = np.maximum(sigma[CLOCK], limit("peers_clock_noise_share") * look.normal[CLOCK])
        below = -above[CLOCK]
        apart = below >= limit("peers_z") * clock
        gives_way = apart & (below >= limit("peers_throttle_clock_share") * look.normal[CLOCK])
        slow = apart & (below >= limit("peers_slow_clock_share") * look.normal[CLOCK])
        weak = -above[POWER] >= limit("peers_low_power_share") * look.normal[POWER]
        weak |= ~state.used[POWER, look.slots]
        return np.stack([hot & gives_way, hot, slow & weak & ~hot])

    def _count(self, state: PeersState, at: float, look: _Look, judged: BoolArray, waits: BoolArray) -> None:
        """A level begins after peers_ticks agreeing looks and ends after as many that disagree. Rows that were not
        seen whole wait; idle rows and rows without a job claim nothing."""
        ticks = int(self.catalogue.limit("peers_ticks"))
        n = len(state.peers)
        flagged, known, waiting = np.zeros((3, n), np.bool_), np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        flagged[:, look.slots] = self._rules(state, look) & judged
        known[look.slots], waiting[look.slots] = judged, waits
        state.since[flagged & (state.run == 0)] = at
        fallen = np.where(state.held, state.run - 1, 0)
        moved = np.where(flagged, np.minimum(state.run + 1, ticks), np.where(known, fallen, 0))
        state.run = np.where(waiting, state.run, moved).astype(np.int16)
        state.held = (state.held | (state.run >= ticks)) & (state.run > 0)
        self._remember(state, look, flagged[THROTTLED] | flagged[HOT] | flagged[SLOW])

    def _remember(self, state: PeersState, look: _Look, flagged: BoolArray) -> None:
        """Keep the numbers of flagged rows for reason and evidence; nothing for the others."""
        fresh = flagged[look.slots]
        rows = look.slots[fresh]
        state.value[:, rows], state.expected[:, rows] = look.columns[:, fresh], look.normal[:, fresh]
        state.peers[rows] = look.peers[fresh]
        quiet = ~(state.run > 0).any(axis=0)
        state.value[:, quiet] = state.expected[:, quiet] = 0.0
        state.peers[quiet] = 0
        state.since[state.run == 0] = 0.0

    def _findings(self, state: PeersState, axis: Axis, fleet: Fleet) -> tuple[Finding, ...]:
        rows = np.flatnonzero(state.held.any(axis=0) & axis.live)
        found = [
            finding_of(
                self.name,
                fleet.entity("gpu", int(row)),
                state.held[:, row].tolist(),
                state.since[:, row].tolist(),
                state.value[:, row].tolist(),
                state.expected[:, row].tolist(),
                int(state.peers[row]),
            )
            for row in rows
        ]
        return tuple(sorted((f for pair in found for f in pair), key=lambda f: f.key))
