"""Nodes that their scheduler cannot reach: its word, which with the silence of the node's exporters makes a vote."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.model import Evidence, Finding, Fleet, Judged, Need, Severity, Tick
from detectors.rows import cells, fit, moved, started
from detectors.scheduler.words import HEARD, Words, hear, planned, unanswered
from detectors.wording import counted

#: The scheduler's word alone: its daemon on the node may be what is gone.
DOWN_SCORE, SLOW_SCORE = 0.7, 0.4


@dataclass(slots=True)
class NodesState:
    """Per node row, unix s, NaN = none: as in words.Words."""

    down: NDArray[np.float64] = cells(math.nan, axis="node")
    slow: NDArray[np.float64] = cells(math.nan, axis="node")
    out: NDArray[np.float64] = cells(math.nan, axis="node")
    told: NDArray[np.float64] = cells(math.nan, axis="node")
    back: NDArray[np.float64] = cells(math.nan, axis="node")


@dataclass(frozen=True, slots=True)
class Nodes:
    """Thresholds: scheduler_fresh_s, scheduler_planned_s, scheduler_many_nodes, scheduler_many_share,
    scheduler_many_s."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = field(default=frozenset(HEARD))

    @property
    def name(self) -> str:
        return "scheduler/nodes"

    def start(self, fleet: Fleet) -> NodesState:
        return started(NodesState, fleet)

    def step(self, state: NodesState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("node")
        if axis is None:
            return Judged()
        fit(state, fleet)
        words = Words(state.down, state.slow, state.out, state.told, state.back)
        hear(words, tick.events, fleet)
        limit = self.catalogue.limit
        since = np.where(np.isnan(state.down), state.slow, state.down)
        gone = unanswered(words, tick.at, limit("scheduler_fresh_s")) & axis.live
        rows = np.flatnonzero(gone & ~planned(words, since, tick.at, limit("scheduler_planned_s")))
        fleetwide = self._many(since[rows], int(np.count_nonzero(axis.live)))
        found = [self._finding(state, fleet, int(row), int(n)) for row, n in zip(rows, fleetwide, strict=True)]
        return Judged(tuple(sorted(found, key=lambda f: f.key)))

    def move(self, state: NodesState, old: Fleet, new: Fleet) -> NodesState:
        return moved(state, old, new)

    def _many(self, since: NDArray[np.float64], live: int) -> NDArray[np.int64]:
        """int64[k]: with how many others each was given up, where that is more than nodes of their own fail; else 0."""
        limit = self.catalogue.limit
        most = max(limit("scheduler_many_nodes"), limit("scheduler_many_share") * live)
        ordered = np.sort(since)
        together = np.searchsorted(ordered, since + limit("scheduler_many_s"), "right") - np.searchsorted(
            ordered, since - limit("scheduler_many_s"), "left"
        )
        return np.where(together > most, together, 0).astype(np.int64)

    def _finding(self, state: NodesState, fleet: Fleet, row: int, many: int) -> Finding:
        entity, down = fleet.entity("node", row), not math.isnan(state.down[row])
        says = "has given it up" if down else "waits for its answer"
        more = f" So it is of {counted(many, 'node')} at once: the scheduler or the network is suspect." if many else ""
        loud = Severity.WARNING if many else Severity.HIGH
        return Finding(
            detector=self.name,
            kind="node_unreachable",
            entity=entity,
            severity=loud if down else Severity.INFO,
            score=DOWN_SCORE if down else SLOW_SCORE,
            since=float(state.down[row] if down else state.slow[row]),
            reason=f"{entity} does not answer the scheduler, which {says}.{more}",
            evidence=(Evidence("the scheduler's word", "down" if down else "not responding", grade="observed"),),
        )
