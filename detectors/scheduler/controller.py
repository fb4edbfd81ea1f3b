"""The scheduler's controller is away: daemons of several nodes cannot reach it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.model import BoolArray, Entity, Event, Evidence, Finding, Fleet, Judged, Need, Severity, Tick
from detectors.rows import cells, fit, moved, started
from detectors.wording import counted

#: The daemons' word; their nodes may share a network that is what is gone.
SCORE = 0.7
LOST, TOOK_OVER = "controller_lost", "controller_took_over"
#: Names written out in a sentence.
NAMED = 6


@dataclass(slots=True)
class ControllerState:
    """``lost`` float64[nodes]: when each node's daemon last could not reach it (unix s, NaN = never); ``began``
    float64[1]: since when it is held to be away, NaN = it is not."""

    lost: NDArray[np.float64] = cells(math.nan, axis="node")
    began: NDArray[np.float64] = cells(math.nan, np.float64, 1, axis=None)


@dataclass(frozen=True, slots=True)
class Controller:
    """Thresholds: scheduler_lost_nodes, scheduler_lost_s. One node alone says more about itself than about it."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = frozenset({"slurm"})

    @property
    def name(self) -> str:
        return "scheduler/controller"

    def start(self, fleet: Fleet) -> ControllerState:
        return started(ControllerState, fleet)

    def step(self, state: ControllerState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("node")
        if axis is None:
            return Judged()
        fit(state, fleet)
        for event in sorted(tick.events, key=lambda e: (e.at, e.seq, e.code)):
            if event.namespace == "slurm" and not event.late:
                _hear(state, event, fleet)
        within_s = self.catalogue.limit("scheduler_lost_s")
        says: BoolArray = np.asarray((tick.at - state.lost <= within_s) & axis.live, np.bool_)
        enough = np.count_nonzero(says) >= self.catalogue.limit("scheduler_lost_nodes")
        if not says.any():
            state.began[0] = math.nan
        elif enough and math.isnan(state.began[0]):
            state.began[0] = float(state.lost[says].min())
        return Judged((self._finding(state, says, fleet),) if not math.isnan(state.began[0]) else ())

    def move(self, state: ControllerState, old: Fleet, new: Fleet) -> ControllerState:
        return moved(state, old, new)

    def _finding(self, state: ControllerState, says: BoolArray, fleet: Fleet) -> Finding:
        names = sorted(fleet.axes["node"].names[row] for row in np.flatnonzero(says))
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        return Finding(
            detector=self.name,
            kind="scheduler_down",
            entity=Entity(fleet.cluster, "cluster", fleet.cluster, f"cluster:{fleet.cluster}"),
            severity=Severity.HIGH,
            score=SCORE,
            since=float(state.began[0]),
            reason=f"The daemons of {counted(len(names), 'node')} cannot reach the scheduler's controller: "
            f"{', '.join(names[:NAMED])}{more}. Jobs go on; none starts.",
            evidence=(Evidence("nodes without their controller", str(len(names)), "0", "nodes", grade="observed"),),
        )


def _hear(state: ControllerState, event: Event, fleet: Fleet) -> None:
    if event.code == TOOK_OVER:
        state.lost[state.lost <= event.at] = math.nan
    row = fleet.slots.get(("node", event.entity.host), -1) if event.code == LOST else -1
    if 0 <= row < len(state.lost):
        state.lost[row] = np.fmax(state.lost[row], event.at)
