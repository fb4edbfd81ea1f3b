"""Jobs that got slower than they were, and the one GPU that holds the others up: itself as busy as ever, they wait."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.columns import column, measures
from detectors.model import Axis, BoolArray, Finding, Fleet, FloatArray, Judged, MetricKey, Need, Tick
from detectors.rows import cells, fit, moved, started
from detectors.telemetry.failslow_phrases import slow_gpu, slow_job
from detectors.telemetry.jobs import TRAFFIC, Jobs, job_entity, jobs_of, mark_of, traffic
from detectors.telemetry.robust import MAD_TO_SIGMA

POWER, LINKS = range(2)
METRICS: tuple[MetricKey, ...] = (("gpu", "power_w"),)
Shared = dict[str, NDArray[np.float64]]


@dataclass(slots=True)
class FailSlowState:
    """Per GPU row: ``mark`` (whose it is: jobs.mark_of), ``usual`` (its own power in this job, W, 0 = none), ``run``
    (looks in a row at which it stood out), ``clean`` (s at work since it did not), ``held``, ``begun`` (unix s),
    ``own``, ``others`` (its power and the middle of its job's, as shares of the usual).

    What belongs to the job stands in each of its rows: ``top`` (W of a job at work, to tell work from pauses), ``pace``
    (its usual link traffic, 0 = none), ``learned_s``, ``shifted_s`` (how long its power or its pace differed alone),
    ``late_at`` (since when it is slower, 0 = it is not), ``late_s`` (how long of that it worked), ``longest`` (of the
    slow spells that ended, s), ``spells``, ``slow`` (1 = for too long), ``since``, ``now`` (its pace as a share),
    ``seen_at``."""

    mark: NDArray[np.uint32] = cells(0, np.uint32)
    usual: NDArray[np.float64] = cells()
    run: NDArray[np.int16] = cells(0, np.int16)
    clean: NDArray[np.float64] = cells()
    held: BoolArray = cells(False, np.bool_)
    begun: NDArray[np.float64] = cells()
    own: NDArray[np.float64] = cells()
    others: NDArray[np.float64] = cells()
    top: NDArray[np.float64] = cells()
    pace: NDArray[np.float64] = cells()
    learned_s: NDArray[np.float64] = cells()
    shifted_s: NDArray[np.float64] = cells()
    late_at: NDArray[np.float64] = cells()
    late_s: NDArray[np.float64] = cells()
    longest: NDArray[np.float64] = cells()
    spells: NDArray[np.float64] = cells()
    slow: NDArray[np.float64] = cells()
    since: NDArray[np.float64] = cells()
    now: NDArray[np.float64] = cells()
    seen_at: NDArray[np.float64] = cells()


ROWS = ("usual", "run", "clean", "held", "begun", "own", "others")
SHARED = tuple(f.name for f in fields(FailSlowState) if f.name not in (*ROWS, "mark"))


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """One tick by job. share float64[k]: each member's power against its own usual; middle, spread float64[g] of that;
    pace float64[g]: link traffic against the job's usual, NaN = nobody says; watts, links float64[g]; works bool[g]."""

    share: NDArray[np.float64]
    middle: NDArray[np.float64]
    spread: NDArray[np.float64]
    pace: NDArray[np.float64]
    watts: NDArray[np.float64]
    links: NDArray[np.float64]
    works: BoolArray
    elapsed: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FailSlow:
    """Thresholds: all that begin with failslow_. A synchronous job steps as its slowest GPU does: when one gets slower,
    the link traffic of all falls and so does their power, while the slow one works through the whole step."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = field(default=frozenset({*METRICS, *TRAFFIC}))

    @property
    def name(self) -> str:
        return "telemetry/failslow"

    def start(self, fleet: Fleet) -> FailSlowState:
        return started(FailSlowState, fleet)

    def step(self, state: FailSlowState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("gpu")
        if axis is None:
            return Judged()
        fit(state, fleet)
        if measures(tick, METRICS):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                self._judge(state, tick, axis, fleet)
        return Judged(self._findings(state, axis, fleet))

    def move(self, state: FailSlowState, old: Fleet, new: Fleet) -> FailSlowState:
        return moved(state, old, new)

    def _judge(self, state: FailSlowState, tick: Tick, axis: Axis, fleet: Fleet) -> None:
        """Fold one telemetry tick in; all arrays, no loop over rows."""
        n, jobs = len(axis), jobs_of(axis, fleet)
        mine = np.zeros(n, np.uint32)
        mine[jobs.slots] = jobs.each(jobs.marks)
        for f in fields(FailSlowState)[1:]:
            getattr(state, f.name)[state.mark != mine] = 0
        state.mark = mine
        columns = np.stack([column(tick, METRICS[POWER], n), traffic(tick, n)])[:, jobs.slots]
        own: Shared = {name: jobs.most(getattr(state, name)) for name in SHARED}
        look = self._look(state, columns, jobs, own, tick.at)
        after = self._after(own, look, tick.at)
        self._stand_out(state, look, jobs, after, tick.at)
        self._learn(state, columns, look, jobs, after)
        fresh = jobs.each(np.isfinite(look.watts) & (tick.at > own["seen_at"]))
        for name in SHARED:
            getattr(state, name)[jobs.slots] = np.where(fresh, jobs.each(after[name]), getattr(state, name)[jobs.slots])

    def _look(self, state: FailSlowState, columns: FloatArray, jobs: Jobs, own: Shared, at: float) -> _Look:
        limit, exact = self.catalogue.limit, int(self.catalogue.limit("failslow_exact_members"))
        usual = state.usual[jobs.slots]
        share = np.where(usual > 0, columns[POWER] / np.where(usual > 0, usual, 1.0), np.nan).astype(np.float32)
        middle, spread = jobs.middle(np.stack([columns[POWER], columns[LINKS], share]), exact)
        watts, links = middle[POWER].astype(np.float64), middle[LINKS].astype(np.float64)
        pace = np.where(own["pace"] > 0, links / np.where(own["pace"] > 0, own["pace"], 1.0), np.nan)
        works = watts >= limit("failslow_working_share") * own["top"]
        works &= ~(pace < limit("failslow_moving_share"))
        elapsed = np.where(own["seen_at"] > 0, np.clip(at - own["seen_at"], 0.0, limit("failslow_gap_s")), 0.0)
        return _Look(
            share.astype(np.float64), middle[2].astype(np.float64), spread[2].astype(np.float64),
            pace, watts, links, works, elapsed,
        )  # fmt: skip

    def _after(self, own: Shared, look: _Look, at: float) -> Shared:
        """What each job is known to do after this look."""
        limit, new = self.catalogue.limit, dict(own)
        ripe = own["learned_s"] >= limit("failslow_learn_s")
        late = look.works & ripe & (look.pace <= 1.0 - limit("failslow_pace_share"))
        late &= look.middle <= 1.0 - limit("failslow_power_share")
        over = (own["late_at"] > 0) & ~late & look.works
        spell = np.where(over, own["late_s"], 0.0)
        new["spells"] = own["spells"] + (spell >= limit("failslow_spell_s"))
        new["longest"] = np.minimum(np.maximum(own["longest"], spell), limit("failslow_longest_s"))
        began = np.where(own["late_at"] > 0, own["late_at"], at)
        new["late_at"] = np.where(look.works, np.where(late, began, 0.0), own["late_at"])
        new["late_s"] = np.where(new["late_at"] > 0, own["late_s"] + np.where(late, look.elapsed, 0.0), 0.0)
        least = np.where(own["spells"] > 0, limit("failslow_job_s"), limit("failslow_unknown_s"))
        patience = np.maximum(least, limit("failslow_times") * own["longest"])
        lasting = (new["late_at"] > 0) & ((new["late_s"] >= patience) | (own["slow"] > 0))
        new["slow"] = lasting.astype(np.float64)
        new["since"] = np.where(lasting, new["late_at"], 0.0)
        new["now"] = np.where(lasting & np.isfinite(look.pace), look.pace, np.where(lasting, own["now"], 0.0))
        new["seen_at"] = np.full(len(own["seen_at"]), at)
        return new

    def _stand_out(self, state: FailSlowState, look: _Look, jobs: Jobs, after: Shared, at: float) -> None:
        """Members that are as busy as ever while the others wait, or weaker than the others; few enough to be held."""
        limit, slots = self.catalogue.limit, jobs.slots
        apart = look.share - jobs.each(look.middle)
        sigma = np.maximum(MAD_TO_SIGMA * jobs.each(look.spread), limit("failslow_noise_share"))
        alone = np.isnan(look.pace) & (look.middle <= 1.0 - limit("failslow_alone_share"))
        held_up = jobs.each((look.pace <= 1.0 - limit("failslow_pace_share")) | alone)
        judged = jobs.each(
            look.works & (after["learned_s"] >= limit("failslow_learn_s")) & (jobs.sizes >= limit("failslow_min_group"))
        )
        judged &= np.isfinite(apart)
        stands = (
            judged & held_up & (np.abs(apart) >= np.maximum(limit("failslow_apart_share"), limit("failslow_z") * sigma))
        )
        stands &= ~((apart < 0) & (apart > -limit("failslow_weak_share")))
        many = jobs.share(stands) * jobs.sizes > np.maximum(
            limit("failslow_few"), limit("failslow_few_share") * jobs.sizes
        )
        stands &= ~jobs.each(many)
        ticks, run, held = int(limit("failslow_ticks")), state.run[slots], state.held[slots]
        elapsed = jobs.each(look.elapsed)
        begun = np.where(stands & (run == 0) & ~held, at, state.begun[slots])
        run = np.where(judged, np.where(stands, np.minimum(run + 1, ticks), 0), run)
        clean = np.where(stands, 0.0, state.clean[slots] + np.where(judged, elapsed, 0.0))
        held = (held | (run >= ticks)) & ~(clean >= limit("failslow_clear_s"))
        state.run[slots], state.held[slots], state.clean[slots] = run, held, np.where(held, clean, 0.0)
        state.begun[slots] = np.where((run > 0) | held, begun, 0.0)
        for name, value in (("own", look.share), ("others", jobs.each(look.middle))):
            before = getattr(state, name)[slots]
            getattr(state, name)[slots] = np.where(stands, value, np.where(held, before, 0.0))

    def _learn(self, state: FailSlowState, columns: FloatArray, look: _Look, jobs: Jobs, after: Shared) -> None:
        """Usual levels follow slowly, and only looks at which nothing is odd: so a slow decline is not learned."""
        limit, slots = self.catalogue.limit, jobs.slots
        top = after["top"]
        rises = look.watts > top
        fade = 1.0 - np.exp(-look.elapsed / limit("failslow_memory_s"))
        jumped = look.watts > limit("failslow_grown") * top
        step = np.where(rises, 0.5, np.where(look.works, fade, 0.0))
        after["top"] = np.where(
            np.isfinite(look.watts), np.where(top > 0, top + step * (look.watts - top), look.watts), top
        )
        odd = (np.abs(look.middle - 1.0) > limit("failslow_learn_share")) | (
            look.pace < 1.0 - limit("failslow_learn_share")
        )
        ripe = after["learned_s"] >= limit("failslow_learn_s")
        keeps_pace = ~(look.pace < 1.0 - limit("failslow_learn_share")) & ~np.isnan(look.pace)
        same_power = np.abs(look.middle - 1.0) <= limit("failslow_learn_share")
        shifts = look.works & ripe & odd & (keeps_pace | same_power)  # a job that is slower draws less as well
        after["shifted_s"] = np.where(
            shifts, after["shifted_s"] + look.elapsed, np.where(look.works & ~odd, 0.0, after["shifted_s"])
        )
        anew = jumped | (after["shifted_s"] >= limit("failslow_shift_s"))
        learns = look.works & ~jumped & (~ripe | ~odd)
        after["shifted_s"] = np.where(anew, 0.0, after["shifted_s"])
        after["learned_s"] = np.where(anew, 0.0, after["learned_s"] + np.where(learns, look.elapsed, 0.0))
        young = np.where(ripe, fade, np.clip(look.elapsed / np.maximum(after["learned_s"], 1.0), fade, 1.0))
        # One look at what a counter caught up on is not the usual.
        links = np.where(after["pace"] > 0, np.minimum(look.links, limit("failslow_grown") * after["pace"]), look.links)
        pace = np.where(after["pace"] > 0, after["pace"] + young * (links - after["pace"]), links)
        after["pace"] = np.where(anew, 0.0, np.where(learns & np.isfinite(look.links), pace, after["pace"]))
        usual, mine, weight = state.usual[slots], columns[POWER].astype(np.float64), jobs.each(young)
        apart = np.abs(look.share - jobs.each(look.middle)) > limit("failslow_learn_share")
        good = jobs.each(learns) & np.isfinite(mine) & ~(jobs.each(ripe) & apart) & ~state.held[slots]
        usual = np.where(good, np.where(usual > 0, usual + weight * (mine - usual), mine), usual)
        state.usual[slots] = np.where(jobs.each(anew), 0.0, usual)

    # --- what is said -----------------------------------------------------------------------------------------------

    def _findings(self, state: FailSlowState, axis: Axis, fleet: Fleet) -> tuple[Finding, ...]:
        with_job = axis.live & (axis.job_of >= 0)
        found: list[Finding] = []
        for row in np.flatnonzero(state.held & with_job):
            gpu, own, others = fleet.entity("gpu", int(row)), float(state.own[row]), float(state.others[row])
            found.append(slow_gpu(self.name, gpu, float(state.begun[row]), own, others, float(state.usual[row])))
        slow = np.flatnonzero((state.slow > 0) & with_job)
        for code in np.unique(axis.job_of[slow]):
            rows = slow[axis.job_of[slow] == code]
            rows = rows[state.mark[rows] == mark_of(fleet.jobs[code])]
            if len(rows):
                first, job = int(rows[0]), job_entity(fleet, int(code))
                found.append(slow_job(self.name, job, float(state.since[first]), float(state.now[first])))
        return tuple(sorted(found, key=lambda f: f.key))
