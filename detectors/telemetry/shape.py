"""Several readings of a GPU at once, against its peers and its own past: a shape that the fleet in health never has."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.columns import column, measures
from detectors.detector import Arrays, History
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
from detectors.telemetry.forest import Forest, grow
from detectors.telemetry.jobs import TRAFFIC, mark_of, traffic
from detectors.telemetry.robust import group_statistics
from detectors.wording import number, subject

BUSY: MetricKey = ("gpu", "utilisation_pct")
METRICS: tuple[MetricKey, ...] = (
    ("gpu", "power_w"),
    ("gpu", "sm_clock_mhz"),
    ("gpu", "tensor_active_ratio"),
    ("gpu", "dram_active_ratio"),
    ("gpu", "pcie_rx_bytes_s"),
)
NAMES = ("power", "clock", "tensor activity", "memory activity", "PCIe traffic", "link traffic")
F = len(NAMES)
SCORE = 0.45
#: Quiet rows that are kept to learn from, how many a tick adds, and how many a model needs at least.
KEPT, A_TICK, LEAST = 4096, 16, 1500
#: Share of quiet rows that the forest may find strange.
STRANGE_SHARE = 0.002


@dataclass(slots=True)
class ShapeState:
    """Per GPU row. ``mark``: whose it is (jobs.mark_of). ``usual`` float32[6, n]: its usual deviation from its peers, a
    share, learned over ``learned_s``; ``lately``: how far it is from that, smoothed. ``run``: strange looks in a row;
    ``held``, ``since``, ``distance`` (Mahalanobis, squared), ``seen_at``. ``quiet`` float32[4096, 6]: what ``lately``
    was of some quiet rows, a ring; ``taken`` int64[1]: how many were ever put in."""

    mark: NDArray[np.uint32] = cells(0, np.uint32)
    usual: FloatArray = cells(0.0, np.float32, F)
    lately: FloatArray = cells(0.0, np.float32, F)
    learned_s: FloatArray = cells(0.0, np.float32)
    run: NDArray[np.int16] = cells(0, np.int16)
    held: BoolArray = cells(False, np.bool_)
    since: NDArray[np.float64] = cells()
    distance: FloatArray = cells(0.0, np.float32)
    seen_at: NDArray[np.float64] = cells(-np.inf)
    quiet: FloatArray = cells(0.0, np.float32, KEPT, F, axis=None)
    taken: NDArray[np.int64] = cells(0, np.int64, 1, axis=None)


@dataclass(frozen=True, slots=True, eq=False)
class Learnt:
    """What quiet rows look like: ``middle`` float64[6], ``whiten`` float64[6, 6]; ``forest``, and the score above which
    STRANGE_SHARE of them lay. ``version`` of the row it came from."""

    middle: NDArray[np.float64]
    whiten: NDArray[np.float64]
    forest: Forest
    cut: float
    version: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """Thresholds: all that begin with shape_. Until a model is learnt it judges by a plain spread; with one, a row is
    strange where both its Mahalanobis distance and the isolation forest say so. One detector alone: told, not acted
    on; fuse makes it a vote where another family says the same of the card."""

    catalogue: Catalogue = field(repr=False)
    learnt: Learnt | None = field(default=None, repr=False)
    needs: frozenset[Need] = field(default=frozenset({*METRICS, *TRAFFIC, BUSY}))

    @property
    def name(self) -> str:
        return "telemetry/shape"

    def start(self, fleet: Fleet) -> ShapeState:
        return started(ShapeState, fleet)

    def step(self, state: ShapeState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("gpu")
        if axis is None:
            return Judged()
        fit(state, fleet)
        if measures(tick, METRICS):
            with np.errstate(all="ignore"):  # absurd numbers are no reason to fail
                self._look(state, tick, axis, fleet)
        return Judged(self._findings(state, axis, fleet))

    def move(self, state: ShapeState, old: Fleet, new: Fleet) -> ShapeState:
        return moved(state, old, new)

    @property
    def every_s(self) -> float:
        return self.catalogue.limit("shape_teach_s")

    def lesson(self, state: ShapeState) -> History | None:
        """A full ring of quiet rows; a part of one is too few hours."""
        return History(quiet=quiet_rows(state)) if state.taken[0] >= KEPT else None

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(self, history: History) -> Arrays:
        """The model of ``history.quiet`` and of what its ticks add. Raises ValueError below LEAST rows."""
        state, before = None, None
        rows = [history.quiet] if len(history.quiet) else []
        for tick, fleet in history.ticks:
            state = self.start(fleet) if state is None or before is None else self.move(state, before, fleet)
            self.step(state, tick, fleet)
            before = fleet
        if state is not None:
            rows.append(quiet_rows(state))
        quiet = np.concatenate([*rows, np.zeros((0, F), np.float32)]).astype(np.float32)
        if len(quiet) < LEAST:
            raise ValueError(f"{len(quiet)} quiet rows are too few to learn from; {LEAST} are needed")
        middle = np.median(quiet, axis=0).astype(np.float64)
        spread = np.cov((quiet - middle).T) + np.eye(F) * self.catalogue.limit("shape_floor_share") ** 2
        values, vectors = np.linalg.eigh(spread)
        whiten = vectors / np.sqrt(np.maximum(values, 1e-12))
        forest = grow(quiet)
        cut = np.quantile(forest.score(quiet), 1.0 - STRANGE_SHARE)
        return {"middle": middle, "whiten": whiten, "cut": np.array([cut]), **forest.arrays()}

    def taught(self, arrays: Arrays, version: int) -> Shape:
        """The same detector with a saved model. Raises ValueError where it does not fit this release."""
        try:
            middle, whiten, cut = arrays["middle"], arrays["whiten"], arrays["cut"]
            forest = Forest.of(arrays)
        except KeyError as error:
            raise ValueError(f"a model of {self.name} without {error}") from error
        if middle.shape != (F,) or whiten.shape != (F, F):
            raise ValueError(f"a model of {self.name} for other readings")
        learnt = Learnt(middle.astype(np.float64), whiten.astype(np.float64), forest, float(cut[0]), version)
        return Shape(self.catalogue, learnt, self.needs)

    # --- judging ----------------------------------------------------------------------------------------------------

    def _look(self, state: ShapeState, tick: Tick, axis: Axis, fleet: Fleet) -> None:
        limit, slots = self.catalogue.limit, axis.by_peers.astype(np.intp)
        apart, peers, known = self._apart(tick, axis, slots)
        marks = np.array([mark_of(job) for job in fleet.jobs] + [0], np.uint32)[axis.job_of]
        other = state.mark != marks
        for array in (state.usual, state.lately, state.learned_s, state.run, state.held, state.distance):
            array[..., other] = 0
        state.mark = marks
        fresh = (tick.at > state.seen_at[slots]) & known.any(axis=0) & (peers >= limit("shape_min_group"))
        gap = np.where(fresh, np.clip(tick.at - state.seen_at[slots], 0.0, limit("shape_gap_s")), 0.0).astype(
            np.float32
        )
        now = np.where(known, apart - state.usual[:, slots], 0.0)
        share = 1.0 - np.exp(-gap / np.float32(limit("shape_lag_s")))
        ripe = state.learned_s[slots] >= limit("shape_learn_s")
        lately = state.lately[:, slots] + share * (now - state.lately[:, slots])
        lately = np.where(fresh & ripe, lately, 0.0).astype(np.float32)
        distance = self._distance(lately)
        strange = fresh & ripe & self._strange(lately, distance)
        strange &= ~self._many(strange, axis)
        self._hold(state, slots, strange, fresh & ripe, distance, tick.at)
        state.lately[:, slots] = np.where(fresh, lately, state.lately[:, slots])
        usual = fresh & (~ripe | (distance < limit("shape_quiet_distance2"))) & ~state.held[slots]
        self._learn(state, slots, now, usual & known, usual, gap)
        calm = self._plain(lately) < limit(
            "shape_quiet_distance2"
        )  # by no model: one must not narrow what teaches next
        self._keep(state, lately[:, fresh & ripe & calm & ~state.held[slots]])
        state.seen_at[slots] = np.where(fresh, tick.at, state.seen_at[slots])

    def _apart(
        self, tick: Tick, axis: Axis, slots: NDArray[np.intp]
    ) -> tuple[FloatArray, NDArray[np.int64], BoolArray]:
        """float32[6, k]: how far each member's readings lie from the middle of its peers at work, as a share of that;
        int[k]: how many those are; bool[6, k]: where that is known."""
        n = len(axis)
        columns = np.stack([*(column(tick, key, n) for key in METRICS), traffic(tick, n)])[:, slots]
        idle = ~(column(tick, BUSY, n)[slots] >= self.catalogue.limit("shape_busy_pct"))
        columns = np.where(idle, np.float32(np.nan), columns)
        sizes = np.diff(axis.peer_starts)
        groups = group_statistics(columns, axis.peer_starts, int(self.catalogue.limit("shape_exact_members")))
        middle, peers = np.repeat(groups.median, sizes, axis=1), np.repeat(groups.count[0], sizes)
        apart = np.clip(columns / np.where(middle > 0, middle, np.nan) - 1.0, -0.5, 0.5)
        return apart.astype(np.float32), peers, ~np.isnan(apart)

    def _distance(self, lately: FloatArray) -> FloatArray:
        """Mahalanobis distance, squared, float32[k]."""
        if self.learnt is None:
            return self._plain(lately)
        white = (lately.T - self.learnt.middle.astype(np.float32)) @ self.learnt.whiten.astype(np.float32)
        return np.asarray((white * white).sum(axis=1), np.float32)

    def _plain(self, lately: FloatArray) -> FloatArray:
        """The same by the spread that counts until one is learnt."""
        plain = lately / np.float32(self.catalogue.limit("shape_plain_share"))
        return np.asarray((plain * plain).sum(axis=0), np.float32)

    def _strange(self, lately: FloatArray, distance: FloatArray) -> BoolArray:
        """Far out, and strange to the forest, which is asked for those few rows only."""
        far = np.asarray(distance >= self.catalogue.limit("shape_distance2"), np.bool_)
        if self.learnt is not None and far.any():
            far[far] = self.learnt.forest.score(lately[:, far].T) >= self.learnt.cut
        return far

    def _many(self, strange: BoolArray, axis: Axis) -> BoolArray:
        """Groups of which more members are strange than can be to blame: then the work has changed."""
        sizes = np.diff(axis.peer_starts)
        if not strange.any():
            return strange
        count = np.add.reduceat(np.append(strange, False).astype(np.int64), axis.peer_starts[:-1]) * (sizes > 0)
        limit = self.catalogue.limit
        return np.repeat(count > np.maximum(limit("shape_few"), limit("shape_few_share") * sizes), sizes)

    def _hold(self, state: ShapeState, slots: NDArray[np.intp], strange: BoolArray, judged: BoolArray,
              distance: FloatArray, at: float) -> None:  # fmt: skip
        ticks, run, held = int(self.catalogue.limit("shape_ticks")), state.run[slots], state.held[slots]
        state.since[slots] = np.where(strange & (run == 0), at, state.since[slots])
        run = np.where(strange, np.minimum(run + 1, ticks), np.where(judged, np.maximum(run - 1, 0), run))
        held = (held | (run >= ticks)) & (run > 0)
        state.distance[slots] = np.where(strange, distance, np.where(held, state.distance[slots], 0.0))
        state.run[slots], state.held[slots] = run, held

    def _learn(self, state: ShapeState, slots: NDArray[np.intp], now: FloatArray, cells_: BoolArray, rows: BoolArray,
               gap: FloatArray) -> None:  # fmt: skip
        """What is usual follows slowly; a young past as a plain mean does."""
        learned = state.learned_s[slots]
        share = np.maximum(1.0 - np.exp(-gap / self.catalogue.limit("shape_memory_s")), gap / (learned + gap))
        step = np.where(cells_, np.nan_to_num(share) * now, 0.0)
        state.usual[:, slots] = (state.usual[:, slots] + step).astype(np.float32)
        state.learned_s[slots] = np.where(rows, np.minimum(learned + gap, 1e6), learned)

    def _keep(self, state: ShapeState, quiet: FloatArray) -> None:
        """A few quiet rows of this tick, spread over the fleet, other ones each time."""
        n = quiet.shape[1]
        if n:
            first = int(state.taken[0])
            which = (np.arange(min(A_TICK, n)) * max(1, n // A_TICK) + first) % n
            state.quiet[(first + np.arange(len(which))) % KEPT] = quiet[:, which].T
            state.taken += len(which)

    # --- what is said -----------------------------------------------------------------------------------------------

    def _findings(self, state: ShapeState, axis: Axis, fleet: Fleet) -> tuple[Finding, ...]:
        rows = np.flatnonzero(state.held & axis.live & (axis.job_of >= 0))
        return tuple(sorted((self._finding(state, int(row), fleet) for row in rows), key=lambda f: f.key))

    def _finding(self, state: ShapeState, row: int, fleet: Fleet) -> Finding:
        gpu, off = fleet.entity("gpu", row), state.lately[:, row]
        most = [int(place) for place in np.argsort(-np.abs(off), kind="stable")[:3]]
        shown = ", ".join(
            f"{NAMES[m]} {'+' if off[m] > 0 else '-'}{number(100 * abs(float(off[m])), 1)} %" for m in most
        )
        keys = [*(key[1] for key in METRICS), TRAFFIC[0][1]]
        evidence = [
            Evidence(f"{NAMES[m]} against its peers, less its usual", number(100 * float(off[m]), 1), "0", "%",
                     f"metric:gpu/{keys[m]}", "derived")
            for m in most
        ]  # fmt: skip
        apart = number(float(np.sqrt(max(float(state.distance[row]), 0.0))), 1)
        evidence.append(Evidence("distance from quiet times", apart, unit="sigma", grade="inferred"))
        return Finding(
            detector=self.name,
            kind="silent_slow_gpu",
            entity=gpu,
            severity=Severity.WARNING,
            score=SCORE,
            since=float(state.since[row]),
            reason=f"{subject(gpu)} does otherwise than its peers, and than itself before: {shown}.",
            evidence=tuple(evidence),
        )


def quiet_rows(state: ShapeState) -> FloatArray:
    """float32[k, 6]: what is kept of quiet times so far."""
    return state.quiet[: min(int(state.taken[0]), KEPT)].copy()
