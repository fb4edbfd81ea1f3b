"""Exporters that answer with what they last knew: values that always move and now repeat themselves to the last bit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.columns import column, measures
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
from detectors.wording import counted

#: Values that a card at work never repeats all at once; the first says whether it is at work.
METRICS: tuple[MetricKey, ...] = (
    ("gpu", "utilisation_pct"),
    ("gpu", "power_w"),
    ("gpu", "temperature_c"),
    ("gpu", "sm_clock_mhz"),
    ("gpu", "dram_active_ratio"),
    ("gpu", "pcie_rx_bytes_s"),
)
SCORE = 0.8


@dataclass(slots=True)
class FrozenState:
    """Per GPU row: ``last`` float32[6, n], its values; ``moves`` float64[n], share of looks at work at which any of
    them changed; ``looks`` int32[n], those looks; ``still`` int32[n], looks in a row at which none did; ``since``
    (unix s); ``frozen`` bool[n]: the level of its node; ``wide``: so is most of the cluster; ``seen_at``."""

    last: FloatArray = cells(np.nan, np.float32, len(METRICS))
    moves: NDArray[np.float64] = cells()
    looks: NDArray[np.int32] = cells(0, np.int32)
    still: NDArray[np.int32] = cells(0, np.int32)
    since: NDArray[np.float64] = cells()
    frozen: BoolArray = cells(False, np.bool_)
    wide: BoolArray = cells(False, np.bool_)
    seen_at: NDArray[np.float64] = cells(-np.inf)


@dataclass(frozen=True, slots=True)
class Frozen:
    """Thresholds: all that begin with frozen_. How often a card's values repeat by themselves (an exporter that reads
    more slowly than it is scraped, a card that idles) is learned, and decides how many repetitions are too many."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = field(default=frozenset(METRICS))

    @property
    def name(self) -> str:
        return "telemetry/frozen"

    def start(self, fleet: Fleet) -> FrozenState:
        return started(FrozenState, fleet)

    def step(self, state: FrozenState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("gpu")
        if axis is None:
            return Judged()
        fit(state, fleet)
        if measures(tick, METRICS):
            self._look(state, tick, axis, fleet)
        return Judged(self._findings(state, axis, fleet), self._blind(state, axis, fleet))

    def move(self, state: FrozenState, old: Fleet, new: Fleet) -> FrozenState:
        return moved(state, old, new)

    def _look(self, state: FrozenState, tick: Tick, axis: Axis, fleet: Fleet) -> None:
        n, limit = len(axis), self.catalogue.limit
        now = np.stack([column(tick, key, n) for key in METRICS])
        both = ~np.isnan(now) & ~np.isnan(state.last)
        seen = both.any(axis=0) & axis.live & (tick.at > state.seen_at)
        moved = (both & (now != state.last)).any(axis=0)
        busy = now[0] >= limit("frozen_busy_pct")  # a card that idles may stand still
        lively, needed = self._needed(state.moves, state.looks)
        lively &= busy
        before = state.still
        state.since = np.where(seen & ~moved & (state.still == 0), tick.at, state.since)
        state.still = np.where(seen, np.where(moved, 0, state.still + 1), state.still).astype(np.int32)
        stuck = lively & (state.still >= needed) & (tick.at - state.since >= limit("frozen_least_s"))
        self._learn(state, seen & moved & busy, np.where(state.frozen, 0, before))
        self._by_node(state, axis, fleet, seen & lively, stuck)
        fresh = ~np.isnan(now) & axis.live
        state.last = np.where(fresh, now, state.last)
        state.seen_at = np.where(fresh.any(axis=0), np.maximum(tick.at, state.seen_at), state.seen_at)

    def _learn(self, state: FrozenState, ended: BoolArray, repeats: NDArray[np.int32]) -> None:
        """A run of ``repeats`` is learned when a move ends it; what an exporter that was stuck repeated is not."""
        fade = np.maximum(1.0 / (state.looks + 1.0), self.catalogue.limit("frozen_fade"))
        moves = state.moves * (1.0 - fade) ** repeats
        state.moves = np.where(ended, moves + fade * (1.0 - moves), state.moves)
        state.looks = np.where(ended, np.minimum(state.looks + repeats + 1, 1_000_000), state.looks).astype(np.int32)

    def _needed(self, moves: NDArray[np.float64], looks: NDArray[np.int32]) -> tuple[BoolArray, NDArray[np.float64]]:
        """Which rows are known to move, and how many repetitions in a row are less likely than frozen_chance."""
        limit = self.catalogue.limit
        lively: BoolArray = (looks >= limit("frozen_looks")) & (moves >= limit("frozen_moves"))
        repeats = np.log(1.0 - np.clip(moves, 0.01, 0.99))
        return lively, np.maximum(np.ceil(np.log(limit("frozen_chance")) / repeats), limit("frozen_ticks"))

    def _by_node(self, state: FrozenState, axis: Axis, fleet: Fleet, judged: BoolArray, stuck: BoolArray) -> None:
        """A node is frozen when all of its cards that are known to move repeat themselves; it ends when one moves."""
        known = axis.live & (axis.node_of >= 0)
        size = len(fleet.nodes) + 1

        def nodes(rows: BoolArray) -> NDArray[np.int64]:
            return np.bincount(axis.node_of[rows & known], minlength=size)

        told, same, moving = nodes(judged), nodes(judged & stuck), nodes(axis.live & (state.still == 0))
        held = nodes(state.frozen) > 0
        frozen = ((told > 0) & (same == told) & (moving == 0)) | (held & (moving == 0))
        # Nodes whose cards repeat themselves but not yet often enough count for how far it goes.
        near = frozen | ((told > 0) & (nodes(judged & (state.still > 1)) == told) & (moving == 0))
        watched = int(np.count_nonzero((told > 0) | held))
        many = np.count_nonzero(near) >= max(
            self.catalogue.limit("frozen_many_nodes"), self.catalogue.limit("frozen_many_share") * watched
        )
        state.frozen = known & frozen[axis.node_of]
        state.wide = state.frozen & (state.wide | bool(many))

    def _blind(self, state: FrozenState, axis: Axis, fleet: Fleet) -> dict[str, BoolArray]:
        """What repeats itself is not seen."""
        return {"gpu": state.frozen & axis.live}

    def _findings(self, state: FrozenState, axis: Axis, fleet: Fleet) -> tuple[Finding, ...]:
        rows = np.flatnonzero(state.frozen & axis.live & (axis.node_of >= 0))
        wide = rows[state.wide[rows]]
        found = [self._of_cluster(state, wide, axis, fleet)] if len(wide) else []
        for code in np.unique(axis.node_of[rows[~state.wide[rows]]]):
            mine = rows[axis.node_of[rows] == code]
            name = fleet.nodes[code]
            reason = (
                f"{name} repeats its GPU data to the last digit: its exporter is stuck, "
                f"and {counted(len(mine), 'GPU')} cannot be judged."
            )
            entity = Entity(fleet.cluster, "node", name, name, name)
            found.append(self._finding(entity, state, mine, reason))
        return tuple(sorted(found, key=lambda f: f.key))

    def _of_cluster(self, state: FrozenState, rows: NDArray[np.intp], axis: Axis, fleet: Fleet) -> Finding:
        nodes = len(np.unique(axis.node_of[rows]))
        entity = Entity(fleet.cluster, "cluster", fleet.cluster, f"cluster:{fleet.cluster}")
        reason = (
            f"{counted(nodes, 'node')} repeat their GPU data to the last digit at the same time: "
            f"what collects them is stuck."
        )
        return self._finding(entity, state, rows, reason)

    def _finding(self, entity: Entity, state: FrozenState, rows: NDArray[np.intp], reason: str) -> Finding:
        evidence = (
            Evidence("looks without any change", str(int(state.still[rows].min())), "0", "looks", "metric:gpu/power_w"),
            Evidence("GPUs that repeat themselves", str(len(rows)), unit="GPUs", grade="derived"),
        )
        since = float(state.since[rows].max())
        return Finding(self.name, "telemetry_frozen", entity, Severity.WARNING, SCORE, since, reason, evidence)
