"""Series that stop: of one GPU, of all GPUs of a node, of the whole node; and whether anybody meant them to."""

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
    IntArray,
    Judged,
    MetricKey,
    Need,
    Severity,
    Tick,
)
from detectors.rows import cells, fit, moved, started
from detectors.scheduler.words import HEARD, Words, hear, planned, unanswered
from detectors.telemetry.silence_phrases import Dark, dark_findings
from detectors.wording import subject

#: Gauges that every living GPU reports at each scrape, whatever it does.
LIVENESS: tuple[MetricKey, ...] = (
    ("gpu", "temperature_c"),
    ("gpu", "power_w"),
    ("gpu", "sm_clock_mhz"),
    ("gpu", "utilisation_pct"),
    ("gpu", "fb_used_mib"),
)
UP: MetricKey = ("node", "node_up")
#: Gauges of the node exporter: a node of which these still come runs.
HOST_LIVENESS: tuple[MetricKey, ...] = (
    ("node", "node_load1"),
    ("node", "node_memory_available_bytes"),
    ("node", "node_procs_running"),
)
#: One silent GPU is a vote for bus loss, not a code.
LOST_SCORE = 0.6


@dataclass(slots=True)
class SilenceState:
    """Per GPU row, n of them: ``used`` bool[5, n] (metrics it has ever reported), ``missing`` (ticks in a row without
    any), ``alone`` (those of them in which a neighbour reported), ``since`` (first missing tick), ``lost`` (the level),
    ``neighbours`` (how many reported at the last look), ``dark`` (its whole node is silent), ``asked_at`` (the last
    tick that asked for it, -inf = never). Per node row: ``up``, NaN = not known; ``heard`` (its own exporter has ever
    spoken), ``quiet`` (ticks in a row in which that did not), ``long`` (its GPUs were silent for silence_dark_s), and
    the scheduler's words ``down``, ``slow``, ``out``, ``told``, ``back`` (scheduler/words.py)."""

    used: BoolArray = cells(False, np.bool_, len(LIVENESS))
    missing: IntArray = cells(0, np.int32)
    alone: IntArray = cells(0, np.int32)
    since: NDArray[np.float64] = cells()
    lost: BoolArray = cells(False, np.bool_)
    neighbours: IntArray = cells(0, np.int32)
    dark: BoolArray = cells(False, np.bool_)
    asked_at: NDArray[np.float64] = cells(-np.inf)
    up: NDArray[np.float32] = cells(np.nan, np.float32, axis="node")
    heard: BoolArray = cells(False, np.bool_, axis="node")
    quiet: IntArray = cells(0, np.int32, axis="node")
    long: BoolArray = cells(False, np.bool_, axis="node")
    down: NDArray[np.float64] = cells(np.nan, axis="node")
    slow: NDArray[np.float64] = cells(np.nan, axis="node")
    out: NDArray[np.float64] = cells(np.nan, axis="node")
    told: NDArray[np.float64] = cells(np.nan, axis="node")
    back: NDArray[np.float64] = cells(np.nan, axis="node")


@dataclass(frozen=True, slots=True)
class Silence:
    """Thresholds: silence_ticks, silence_unseen_s, silence_dark_s, silence_back_s, silence_planned_s, silence_fresh_s.

    A dark node is a record at once (its rows are blind); it is told when it lasts, and nobody meant it. A node of which
    both exporters are silent may be lost: also a record, which becomes a vote with the scheduler's word or with a job
    that stands still (fuse).
    """

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = field(default=frozenset({*LIVENESS, *HOST_LIVENESS, UP, *HEARD}))

    @property
    def name(self) -> str:
        return "telemetry/silence"

    def start(self, fleet: Fleet) -> SilenceState:
        return started(SilenceState, fleet)

    def step(self, state: SilenceState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("gpu")
        if axis is None:
            return Judged()
        fit(state, fleet)
        hear(_words(state), tick.events, fleet)
        if measures(tick, (*LIVENESS, *HOST_LIVENESS)):
            self._look(state, tick, axis, fleet)
            self._listen(state, tick, fleet)
            self._wait(state, tick.at, axis, fleet)
        found = [*self._lost(state, axis, fleet), *self._dark(state, tick.at, axis, fleet)]
        return Judged(tuple(sorted(found, key=lambda f: f.key)), self._blind(state, tick.at, axis, fleet))

    def move(self, state: SilenceState, old: Fleet, new: Fleet) -> SilenceState:
        return moved(state, old, new)

    def _look(self, state: SilenceState, tick: Tick, axis: Axis, fleet: Fleet) -> None:
        """Fold one telemetry tick in. O(metrics x rows)."""
        n, ticks = len(axis), int(self.catalogue.limit("silence_ticks"))
        present, due = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        for place, key in enumerate(LIVENESS):
            reported = ~np.isnan(column(tick, key, n)) & axis.live
            state.used[place] |= reported
            present |= reported
            due |= state.used[place] & asked(tick, key, n)
        expected = axis.live & state.used.any(axis=0)
        speaking = _per_node(present, axis, fleet)
        gone = expected & ~present & (due | self._overdue(state, tick.at, speaking))
        state.since[gone & (state.missing == 0)] = tick.at
        state.missing[gone] += 1
        state.missing[present | ~axis.live] = 0
        state.alone[gone & (speaking > 0)] += 1
        state.alone[present | ~axis.live] = 0
        state.neighbours = np.where(gone | present, speaking - present, state.neighbours).astype(np.int32)
        state.lost = (state.lost | (state.alone >= ticks)) & (state.missing > 0)
        state.dark = expected & (_per_node(expected & (state.missing < ticks), axis, fleet) == 0)
        state.asked_at[gone | present] = tick.at
        up = column(tick, UP, len(state.up))
        state.up = np.where(asked(tick, UP, len(state.up)), up, state.up)

    def _overdue(self, state: SilenceState, at: float, speaking: IntArray) -> BoolArray:
        """Nobody asks for a row that a restart forgot. Where its neighbours, who share its exporter, speak now, it was
        left out all the same: once it was not seen for too long, and from then on."""
        unseen = at - state.asked_at > self.catalogue.limit("silence_unseen_s")
        overdue: BoolArray = (speaking > 0) & (unseen | (state.missing > 0))
        return overdue

    def _lost(self, state: SilenceState, axis: Axis, fleet: Fleet) -> list[Finding]:
        return [self._lost_finding(state, int(slot), axis, fleet) for slot in np.flatnonzero(state.lost & axis.live)]

    def _lost_finding(self, state: SilenceState, slot: int, axis: Axis, fleet: Fleet) -> Finding:
        entity, others = fleet.entity("gpu", slot), int(state.neighbours[slot])
        still = "its neighbour still reports" if others == 1 else f"its {others} neighbours still report"
        if not others:
            still = "its neighbours fell silent after it"
        series = int(state.used[:, slot].sum())
        first = LIVENESS[int(np.argmax(state.used[:, slot]))]
        return Finding(
            detector=self.name,
            kind="gpu_bus_loss",
            entity=entity,
            severity=Severity.HIGH,
            score=LOST_SCORE,
            since=float(state.since[slot]),
            reason=f"{subject(entity)} sends no data; {still}.",
            evidence=(
                Evidence("series that report", "0", str(series), "series", f"metric:gpu/{first[1]}", "observed"),
                Evidence("neighbours that report", str(others), unit="GPUs", grade="observed"),
            ),
        )

    def _listen(self, state: SilenceState, tick: Tick, fleet: Fleet) -> None:
        """Is the node's own exporter heard?"""
        n = len(state.up)
        present, due = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        for key in HOST_LIVENESS:
            present |= ~np.isnan(column(tick, key, n))
            due |= asked(tick, key, n)
        state.heard |= present
        state.quiet[state.heard & due & ~present] += 1
        state.quiet[present] = 0

    def _wait(self, state: SilenceState, at: float, axis: Axis, fleet: Fleet) -> None:
        """Has the silence of a node lasted, since it began or since the node was said to be back? Where most of the
        nodes fall silent, no exporter was restarted: that is told sooner."""
        since, limit = self._since(state, axis, fleet), self.catalogue.limit
        dark, live = int(np.count_nonzero(~np.isnan(since))), int(np.count_nonzero(_live(fleet, "node")))
        most = dark >= max(limit("silence_many_nodes"), limit("silence_many_share") * live)
        patience = limit("silence_many_s") if most else limit("silence_dark_s")
        settled = ~(at - state.back < limit("silence_back_s"))
        state.long = np.where(np.isnan(since), False, settled & (at - since >= patience))

    def _since(self, state: SilenceState, axis: Axis, fleet: Fleet) -> NDArray[np.float64]:
        """float64[nodes' rows]: when the last GPU of a dark node fell silent, NaN for nodes that are not dark."""
        since, nodes = _since_by_code(state, axis, fleet), fleet.axes.get("node")
        return np.where(nodes.node_of >= 0, since[nodes.node_of], np.nan) if nodes is not None else np.zeros(0)

    def _dark(self, state: SilenceState, at: float, axis: Axis, fleet: Fleet) -> list[Finding]:
        """Nodes whose GPUs are all silent, also one that is no row of the node axis."""
        by_code = _since_by_code(state, axis, fleet)
        words, limit = _words(state), self.catalogue.limit
        expected = planned(words, self._since(state, axis, fleet), at, limit("silence_planned_s"))
        missed = unanswered(words, at, limit("silence_fresh_s"))
        silent = state.quiet >= limit("silence_ticks")
        counts = np.bincount(axis.node_of[state.dark & axis.live & (axis.node_of >= 0)], minlength=len(by_code))
        found: list[Finding] = []
        for code in np.flatnonzero(~np.isnan(by_code)):
            name = fleet.nodes[code]
            row = fleet.slots.get(("node", name), -1)
            known = 0 <= row < len(state.up)
            dark = Dark(
                entity=Entity(fleet.cluster, "node", name, name, name),
                gpus=int(counts[code]),
                since=float(by_code[code]),
                up=float(state.up[row]) if known else float("nan"),
                whole=known and bool(silent[row]),
                heard=known and bool(state.heard[row]),
                planned=known and bool(expected[row]),
                missed=known and bool(missed[row]),
                long=known and bool(state.long[row]) and not at - state.back[row] < limit("silence_back_s"),
            )
            found += dark_findings(self.name, dark)
        return found

    def _blind(self, state: SilenceState, at: float, axis: Axis, fleet: Fleet) -> dict[str, BoolArray]:
        """GPUs that could not be judged: never heard of, not asked for in a while, silent but not yet lost, in the
        dark with their node. Nodes: those that are dark."""
        unseen = at - state.asked_at > self.catalogue.limit("silence_unseen_s")
        blind = {"gpu": axis.live & (unseen | state.dark | ((state.missing > 0) & ~state.lost))}
        nodes = fleet.axes.get("node")
        if nodes is not None:
            dark = np.zeros(len(fleet.nodes) + 1, np.bool_)
            dark[axis.node_of[state.dark & axis.live & (axis.node_of >= 0)]] = True
            blind["node"] = np.where(nodes.node_of >= 0, dark[nodes.node_of], False) & nodes.live
        return blind


def _since_by_code(state: SilenceState, axis: Axis, fleet: Fleet) -> NDArray[np.float64]:
    """float64[fleet.nodes + 1]: when the last GPU of a dark node fell silent, NaN for those that are not dark."""
    since = np.full(len(fleet.nodes) + 1, -np.inf)
    rows = np.flatnonzero(state.dark & axis.live & (axis.node_of >= 0))
    np.maximum.at(since, axis.node_of[rows], state.since[rows])
    return np.where(np.isfinite(since), since, np.nan)


def _words(state: SilenceState) -> Words:
    return Words(state.down, state.slow, state.out, state.told, state.back)


def _live(fleet: Fleet, kind: str) -> BoolArray:
    return fleet.axes[kind].live if kind in fleet.axes else np.zeros(0, np.bool_)


def _per_node(rows: BoolArray, axis: Axis, fleet: Fleet) -> IntArray:
    """For each GPU row how many ``rows`` its node has; a GPU without a node stands alone."""
    known = axis.node_of >= 0
    counts = np.bincount(axis.node_of[rows & known], minlength=len(fleet.nodes) + 1).astype(np.int32)
    return np.where(known, counts[axis.node_of], rows).astype(np.int32)
