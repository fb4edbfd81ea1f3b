"""How steps follow each other: a run that stands still, a rank slow against its group, a job slow as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.model import Entity, Evidence, Finding, Fleet, Judged, Need, Severity, Tick
from detectors.rows import cells, started
from detectors.training import memory
from detectors.training.phrases import plain_number
from detectors.training.told import LONGEST, SAVES, STEP, Row, by_step, mark, number, rank_entity, rows, whole
from detectors.wording import counted

Floats = NDArray[np.float64]
#: Gaps and step times that are remembered of a run.
GAPS = 72


@dataclass(slots=True)
class PaceState(memory.RunState):
    """Per run. ``gaps``: seconds a step of its last rows of a new step, ``between``: seconds between those rows (saves
    and evaluations left out), ``gaps_n`` how many came; ``lag``: how late rows come at most, fading; ``pause``:
    longest ordinary pause, fading; ``pause_n`` how many, ``pause_step``: step of the last one, ``pause_every``: steps
    between the last two, ``regular``: 1 = as many as between the two before; ``saving``: 1 = a save, load or evaluation
    has begun. ``new_at``, ``new_step``: the newest step, or the end of a save since. ``hang_since``: since when it
    stands still (0 = not), ``hang_sure``: 1 = for several times as long as its past explains. ``slow_*``: the whole
    job: since when, its pace and what was usual, calm steps. ``judged``:
    newest step whose ranks were compared, ``usual_spread``: how far they usually are apart. Per rank (``rank``):
    ``rank_step``, ``rank_at``; ``took``, ``work``, ``square``: its seconds, tokens and squares, ``what``: 1 computes,
    2 steps, 3 waits for input; ``ratio``: pace against the group; ``over``, ``calm``: steps in a row; ``usual``:
    seconds of the group for its work; ``since``, ``from_step``: a level."""

    gaps: Floats = cells(0.0, np.float64, GAPS, axis="run")
    gaps_n: Floats = cells(0.0, axis="run")
    between: Floats = cells(0.0, np.float64, GAPS, axis="run")
    lag: Floats = cells(0.0, axis="run")
    pause: Floats = cells(0.0, axis="run")
    pause_step: Floats = cells(-1.0, axis="run")
    pause_every: Floats = cells(0.0, axis="run")
    pause_n: Floats = cells(0.0, axis="run")
    regular: NDArray[np.uint8] = cells(0, np.uint8, axis="run")
    saving: NDArray[np.uint8] = cells(0, np.uint8, axis="run")
    new_at: Floats = cells(0.0, axis="run")
    new_step: Floats = cells(-1.0, axis="run")
    hang_since: Floats = cells(0.0, axis="run")
    hang_sure: NDArray[np.uint8] = cells(0, np.uint8, axis="run")
    slow_since: Floats = cells(0.0, axis="run")
    slow_now: Floats = cells(0.0, axis="run")
    slow_usual: Floats = cells(0.0, axis="run")
    slow_calm: Floats = cells(0.0, axis="run")
    usual_spread: Floats = cells(0.0, axis="run")
    judged: Floats = cells(-1.0, axis="run")
    rank: memory.Marks = cells(0, np.uint64, axis="rank")
    rank_of: memory.Marks = cells(0, np.uint64, axis="rank")
    rank_number: NDArray[np.int64] = cells(-1, np.int64, axis="rank")
    rank_host: NDArray[np.str_] = memory.texts(axis="rank")
    rank_step: Floats = cells(-1.0, axis="rank")
    rank_at: Floats = cells(0.0, axis="rank")
    took: Floats = cells(np.nan, axis="rank")
    work: Floats = cells(np.nan, axis="rank")
    square: Floats = cells(np.nan, axis="rank")
    what: Floats = cells(0.0, axis="rank")
    over: Floats = cells(0.0, axis="rank")
    calm: Floats = cells(0.0, axis="rank")
    ratio: Floats = cells(1.0, axis="rank")
    usual: Floats = cells(0.0, axis="rank")
    since: Floats = cells(0.0, axis="rank")
    from_step: Floats = cells(-1.0, axis="rank")


#: Which number of a row tells how long a rank itself was busy, best first. A step's own time holds the waiting too.
BUSY = (("compute_s", 1.0), ("input_s", 3.0), ("step_time_s", 2.0))
DOES = {1.0: "computes", 2.0: "steps", 3.0: "waits for its input"}


@dataclass(frozen=True, slots=True)
class Pace:
    """Thresholds: all that begin with pace_, and training_forget_s, training_change_share. A job that the fleet once
    had and has no more has ended: that is no hang. Of a run without a job nobody tells the end: its silence is INFO,
    unless some of its ranks stayed behind."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = frozenset({STEP, SAVES})

    @property
    def name(self) -> str:
        return "training/pace"

    def start(self, fleet: Fleet) -> PaceState:
        return started(PaceState, fleet)

    def move(self, state: PaceState, old: Fleet, new: Fleet) -> PaceState:
        return state

    def step(self, state: PaceState, tick: Tick, fleet: Fleet) -> Judged:
        found = rows(tick, STEP, SAVES)
        _meet(state, found)
        for _, _, some in by_step(found):
            at = memory.place(state, some[0])
            for row in some:
                if row.event.namespace == SAVES:
                    self._phase(state, at, row)
                elif not row.layer:
                    self._fold(state, at, row, tick.at)
            if any(row.rank >= 0 and not row.layer for row in some):
                self._ranks(state, at)
        memory.forget(state, tick.at, self.catalogue.limit("training_forget_s"), ("rank",))
        self._stands(state, tick.at, fleet)
        return Judged(self._findings(state, fleet))

    # --- what is folded in ----------------------------------------------------------------------------------------

    def _phase(self, state: PaceState, at: int, row: Row) -> None:
        memory.saved(state, at, row)
        state.saving[at] = row.event.code.endswith("_begin")
        state.run_at[at] = max(float(state.run_at[at]), row.at)
        if not state.saving[at] and state.new_at[at] > 0:
            length = number(row.event.attrs.get("duration_s"))
            if length is not None and np.isfinite(length) and row.event.attrs.get("blocking") != "no":
                self._pause(state, at, float(whole(row.event.attrs.get("step"))), length + _median(state, at))
            state.new_at[at] = max(float(state.new_at[at]), row.at)  # its end is a sign of life

    def _pause(self, state: PaceState, at: int, step: float, length: float) -> None:
        """A save or an evaluation: how long steps may stay away, and after how many steps it comes again."""
        state.pause[at] = max(0.95 * float(state.pause[at]), length)
        if step <= state.pause_step[at]:
            return
        before, every = float(state.pause_every[at]), step - float(state.pause_step[at])
        state.regular[at] = state.pause_n[at] >= 2 and abs(every - before) <= max(1.0, 0.02 * every)
        state.pause_every[at] = every if state.pause_step[at] >= 0 else 0.0
        state.pause_step[at] = step
        state.pause_n[at] += 1

    def _fold(self, state: PaceState, at: int, row: Row, now: float) -> None:
        back = memory.advance(state, at, row)
        if memory.changed(state, at, row, self.catalogue.limit("training_change_share")) or back:
            state.gaps_n[at] = 0.0
            state.new_step[at] = row.step - 1 if back else state.new_step[at]
            state.judged[at] = min(float(state.judged[at]), row.step - 1.0)
        state.saving[at] = 0
        state.lag[at] = max(0.98 * float(state.lag[at]), min(now - row.at, 600.0))
        if row.step > state.new_step[at] and row.at >= state.new_at[at]:
            self._gap(state, at, row)
        if row.rank >= 0:
            _rank(state, row)

    def _gap(self, state: PaceState, at: int, row: Row) -> None:
        """A new step: how long it took since the one before, which may hold a save or an evaluation."""
        before, steps = float(state.new_at[at]), row.step - float(state.new_step[at])
        state.new_at[at], state.new_step[at] = row.at, row.step
        if before <= 0 or steps <= 0:
            return
        gap, median = row.at - before, _median(state, at)
        long = state.gaps_n[at] >= self.catalogue.limit("pace_learn_steps") and gap > median * self.catalogue.limit(
            "pace_long_times"
        )
        if long:
            if state.hang_since[at] == 0:
                self._pause(state, at, row.step - 1.0, gap)
        else:
            place = int(state.gaps_n[at]) % GAPS
            state.between[place, at], state.gaps[place, at] = gap, gap / steps
            state.gaps_n[at] += 1
            self._period(state, at, row)

    def _period(self, state: PaceState, at: int, row: Row) -> None:
        """The whole job: the median of the last steps against that of those before."""
        limit, n = self.catalogue.limit, int(state.gaps_n[at])
        few = int(limit("pace_period_steps"))
        if n < GAPS:
            return
        order = (np.arange(n, n + GAPS)) % GAPS  # oldest first
        gaps = state.gaps[order, at]
        usual, now = float(np.median(gaps[:-few])), float(np.median(gaps[-few:]))
        noise = 1.4826 * float(np.median(np.abs(gaps[:-few] - usual)))
        slow = usual > 0 and now > limit("pace_period_share") * usual and now - usual > 6 * noise / few**0.5
        if slow and state.slow_since[at] == 0:
            state.slow_since[at], state.slow_usual[at], state.slow_calm[at] = row.at, usual, 0.0
        if state.slow_since[at] > 0:
            state.slow_now[at] = now
            within = now <= limit("pace_period_share") * float(state.slow_usual[at])
            state.slow_calm[at] = state.slow_calm[at] + 1 if within else 0.0
            if state.slow_calm[at] >= limit("pace_calm_steps"):
                state.slow_since[at] = 0.0

    def _ranks(self, state: PaceState, at: int) -> None:
        """One rank against its group, for the newest step that most of them told of. With tokens (and their squares)
        told, time a unit of work counts: ResiHP's expectation a N + b sum l^2."""
        mine = np.flatnonzero(state.rank_of == state.run[at]) if at >= 0 else np.zeros(0, np.intp)
        if len(mine) < 3:
            return
        step = float(np.max(state.rank_step[mine]))
        here = mine[(state.rank_step[mine] == step) & np.isfinite(state.took[mine]) & (state.took[mine] > 0)]
        if step <= state.judged[at] or 2 * len(here) <= len(mine) or len(here) < 3 or len(here) < 0.9 * len(mine):
            return
        state.judged[at] = step
        load = _work(state.took[here], state.work[here], state.square[here])
        pace = state.took[here] / load
        middle = float(np.median(pace))
        ratio = pace / middle
        spread = 1.4826 * float(np.median(np.abs(ratio - 1.0)))
        known = float(state.usual_spread[at])
        state.usual_spread[at] = spread if known == 0 else known + (spread - known) / 16
        limit = self.catalogue.limit
        bound = max(limit("pace_slow_share"), 1 + limit("pace_slow_spreads") * max(spread, known))
        out = ratio > bound
        state.ratio[here], state.usual[here] = ratio, middle * load
        state.over[here] = np.where(out, state.over[here] + 1, 0.0)
        state.calm[here] = np.where(out, 0.0, state.calm[here] + 1)
        begins = (state.since[here] == 0) & (state.over[here] >= limit("pace_slow_in_a_row"))
        state.since[here] = np.where(begins, state.rank_at[here], state.since[here])
        state.from_step[here] = np.where(begins, step, state.from_step[here])
        state.since[here] = np.where(state.calm[here] >= limit("pace_calm_steps"), 0.0, state.since[here])

    def _stands(self, state: PaceState, now: float, fleet: Fleet) -> None:
        """Runs whose next step is overdue by their own pace, their due pauses known."""
        jobs = set(fleet.jobs)
        for at in range(len(state.run)):
            job = str(state.run_job[at])
            there = bool(job) and job in jobs
            state.run_seen[at] |= there
            ended = bool(state.run_seen[at]) and not there
            quiet = now - float(state.new_at[at])
            allowed = self.allowed(state, at)
            state.hang_sure[at] = quiet > self.catalogue.limit("pace_sure_times") * allowed
            if ended or state.gaps_n[at] < self.catalogue.limit("pace_learn_steps") or quiet <= allowed:
                state.hang_since[at] = 0.0
            elif state.hang_since[at] == 0:
                state.hang_since[at] = float(state.new_at[at])

    def allowed(self, state: PaceState, at: int) -> float:
        """Seconds without a new step that the run's own past explains."""
        limit, median = self.catalogue.limit, _median(state, at)
        allowed = max(limit("pace_hang_steps") * median, limit("pace_floor_s")) + float(state.lag[at])
        pause = limit("pace_pause_times") * float(state.pause[at])
        if (
            state.pause_n[at] < limit("pace_learn_pauses") or state.saving[at]
        ):  # nobody knows yet how long a save or an evaluation takes
            return max(allowed, pause, limit("pace_unknown_s"))
        every, last, step = (float(x[at]) for x in (state.pause_every, state.pause_step, state.new_step))
        near = max(3.0, 0.02 * every)  # it comes, or one has just been and another may follow it
        due = not state.regular[at] or abs(step - (last + every)) <= near or abs(step - last) <= near
        return max(allowed, pause) if due else allowed

    # --- what is said ---------------------------------------------------------------------------------------------

    def _findings(self, state: PaceState, fleet: Fleet) -> tuple[Finding, ...]:
        found = [self._hang(state, int(at), fleet) for at in np.flatnonzero(state.hang_since > 0)]
        found += [self._slow(state, int(at), fleet) for at in np.flatnonzero(state.since > 0)]
        found += [self._slow_job(state, int(at), fleet) for at in np.flatnonzero(state.slow_since > 0)]
        return tuple(sorted(found, key=lambda f: f.key))

    def _hang(self, state: PaceState, at: int, fleet: Fleet) -> Finding:
        mine = np.flatnonzero(state.rank_of == state.run[at])
        step = float(state.new_step[at])
        behind = mine[state.rank_step[mine] < step] if len(mine) else mine
        named = len(behind) and 2 * len(behind) <= len(mine)
        who = ", ".join(str(int(n)) for n in np.sort(state.rank_number[behind])[:8]) if named else ""
        pace, name = _median(state, at), str(state.run_name[at])
        reason = (
            f"{name}: no step since {int(step):,}, and one is told of every {plain_number(pace)} s; no save or "
            f"evaluation that is due explains it. "
            + (f"Rank {who} stayed behind. " if who else "")
            + "Collect stacks and flight recorder "
            "before it is restarted."
        )
        evidence = [
            Evidence("Last step", f"{int(step):,}", ref=f"step:{name}/{int(step)}"),
            Evidence("Usual time between steps told", plain_number(pace), unit="s", grade="derived"),
            Evidence("Longest it may be silent", plain_number(self.allowed(state, at)), unit="s", grade="derived"),
        ]
        evidence += [Evidence("Ranks behind", who, f"step {int(step):,}")] if who else []
        score, since = (0.6 if state.run_seen[at] else 0.5), float(state.hang_since[at])
        # Steps alone are one witness: an unusual pause opens nothing until it lasts, or others say so too. And a run
        # that names no job of the fleet may as well have finished: nobody would tell.
        lasts = bool(state.hang_sure[at]) and bool(state.run_seen[at])
        severity = Severity.HIGH if lasts or who else Severity.INFO
        return Finding(self.name, "job_hang", _job(state, at, fleet), severity, score, since, reason, tuple(evidence))

    def _slow(self, state: PaceState, at: int, fleet: Fleet) -> Finding:
        run = memory.column(state, state.rank_of[at])
        name, rank, host = str(state.run_name[run]), int(state.rank_number[at]), str(state.rank_host[at])
        ratio, does = float(state.ratio[at]), DOES.get(float(state.what[at]), "computes")
        took, usual = float(state.took[at]), float(state.usual[at])
        reason = (
            f"{name}: rank {rank}{f' on {host}' if host else ''} {does} {plain_number(ratio)} times as long as the "
            f"median of its group for the same work, since step {int(state.from_step[at]):,}; all others wait. Look at "
            f"its GPU and node, or swap it."
        )
        ref = f"step:{name}/{int(state.rank_step[at])}"
        evidence = (
            Evidence("Its time", plain_number(took), plain_number(usual), "s", ref),
            Evidence("Against the group", plain_number(ratio), "at most 1.1", "times", grade="derived"),
        )
        since, entity = float(state.since[at]), rank_entity(fleet.cluster, name, rank, host)
        return Finding(self.name, "job_slow", entity, Severity.WARNING, 0.7, since, reason, evidence)

    def _slow_job(self, state: PaceState, at: int, fleet: Fleet) -> Finding:
        name, now, usual = str(state.run_name[at]), float(state.slow_now[at]), float(state.slow_usual[at])
        ranks = np.flatnonzero((state.rank_of == state.run[at]) & (state.since > 0))
        who = (
            f"{counted(len(ranks), 'rank')} of it stand out"
            if len(ranks)
            else "no rank stands out: it is all of the job"
        )
        reason = (
            f"{name}: a step takes {plain_number(now)} s, and {plain_number(usual)} s was usual; {who}. Look at what "
            "all ranks share: network, storage, input."
        )
        evidence = (Evidence("Median step", plain_number(now), plain_number(usual), "s", grade="derived"),)
        since = float(state.slow_since[at])
        return Finding(self.name, "job_slow", _job(state, at, fleet), Severity.WARNING, 0.6, since, reason, evidence)


def _job(state: PaceState, at: int, fleet: Fleet) -> Entity:
    job = str(state.run_job[at])
    return Entity(fleet.cluster, "job", job, f"job:{job}") if job else memory.entity(state, at, fleet)


def _median(state: PaceState, at: int) -> float:
    """Usual seconds from row to row: a step, or as many as the trainer tells of at once."""
    n = int(min(state.gaps_n[at], GAPS))
    return float(np.median(state.between[:n, at])) if n else 0.0


def _meet(state: PaceState, found: Sequence[Row]) -> None:
    """Columns for all ranks of a tick that are new, in one go."""
    told = (row for row in found if row.rank >= 0 and not row.layer and row.event.namespace == STEP)
    named = {(row.run, row.rank): row for row in reversed(list(told))}
    by_key = {mark(run, f"rank:{rank}"): row for (run, rank), row in named.items()}
    keys = np.array(sorted(by_key), np.uint64)
    keys = keys[~np.isin(keys, state.rank)]
    if not len(keys):
        return
    new = [by_key[int(key)] for key in keys]
    memory.grow(state, "rank", keys, {"rank_host": [_host(row) for row in new]})
    at = np.searchsorted(state.rank, keys)
    state.rank_of[at] = [mark(row.run) for row in new]
    state.rank_number[at] = [row.rank for row in new]


def _host(row: Row) -> str:
    return (row.event.attrs.get("host") or row.event.entity.node)[:LONGEST]


def _rank(state: PaceState, row: Row) -> None:
    """What one rank, whose column is there, says of its own step."""
    host = _host(row)
    at = int(np.searchsorted(state.rank, np.uint64(mark(row.run, f"rank:{row.rank}"))))
    if host and state.rank_host[at] != host:
        state.rank_host = memory.with_text(state.rank_host, at, host)
        state.since[at] = state.over[at] = 0.0
    if row.at < state.rank_at[at] or (row.at == state.rank_at[at] and row.step <= state.rank_step[at]):
        return
    state.rank_step[at], state.rank_at[at] = row.step, row.at
    attrs = row.event.attrs
    told = [(value, what) for name, what in BUSY if (value := number(attrs.get(name))) is not None]
    state.took[at], state.what[at] = told[0] if told else (np.nan, 0.0)
    for name, signal in (("work", "tokens"), ("square", "tokens_sq")):
        value = number(attrs.get(signal))
        getattr(state, name)[at] = np.nan if value is None else value


def _work(took: Floats, tokens: Floats, squares: Floats) -> Floats:
    """Relative work of each rank, median 1. With tokens and squares: a N + b sum l^2, a and b fitted over the ranks
    by least squares, twice, the second time without those far above (ResiHP 2605.06374)."""
    if not (np.isfinite(tokens).all() and (tokens > 0).all()):
        return np.ones(len(took))
    load = tokens
    if np.isfinite(squares).all() and len(took) >= 4:
        terms, kept = np.stack([tokens, squares], axis=1), np.ones(len(took), np.bool_)
        for _ in range(2):
            best = np.linalg.lstsq(terms[kept], took[kept], rcond=None)[0]
            guess = terms @ best
            if not (guess > 0).all():
                break
            load = guess
            off = took / guess
            kept = off <= np.median(off) * 1.05
            if int(kept.sum()) < 3:
                break
    relative: Floats = load / np.median(load)
    return relative
