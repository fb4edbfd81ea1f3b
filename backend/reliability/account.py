"""One history accounted: runs, their attempts, and where the time of each went."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from backend.facts import AttemptFacts, CheckpointFacts
from backend.reliability.attempts import Told, Window, ending_of, tell
from backend.reliability.bounds import by_accounting, by_checkpoints, without_saves
from backend.reliability.causes import Around, Cause, Causes, Verdict, causes_of, judge
from backend.reliability.clean import Problem, clean
from backend.reliability.history import History, StepTable
from backend.reliability.outcomes import failed
from backend.reliability.parts import NOTHING, Parts
from backend.reliability.progress import Progress, progress
from backend.reliability.rows import Evidence, Rows
from backend.reliability.runs import Lane, Run, runs_of

#: An attempt this short that shows no step, of a run whose steps are known, never stepped, s; a longer one only where
#: its run's rows stand before and after it.
NEVER_STEPPED_S = 3600.0


#: Of an attempt that nobody told anything of from inside.
NO_EVIDENCE = Evidence(StepTable.of(()), ())
NO_PROGRESS = progress(NO_EVIDENCE.steps, NO_EVIDENCE.steps.at)


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """One attempt. window None: it did not run in the span. told: None where its steps are not known.

    source: what the parts rest on: steps, steps without saves, checkpoints, accounting, or waiting.
    """

    attempt: AttemptFacts
    window: Window | None
    parts: Parts
    source: str
    told: Told | None
    queue_s: float
    hold_s: float
    failed: bool
    verdict: Verdict
    rows: int = 0
    recorded_s: float = 0.0

    @property
    def wall_s(self) -> float:
        return self.window.wall_s if self.window else 0.0

    @property
    def over(self) -> bool:
        return self.attempt.end is not None


@dataclass(frozen=True, eq=False)
class RunAccount:
    """One run. ``lanes`` hold the accounts in order; most runs have one lane."""

    run: Run
    lanes: tuple[tuple[Account, ...], ...]
    checkpoints: tuple[CheckpointFacts, ...]
    pace_s: float

    @cached_property
    def accounts(self) -> tuple[Account, ...]:
        """All of them in the order they began."""
        place = {id(account.attempt): account for lane in self.lanes for account in lane}
        return tuple(place[id(attempt)] for attempt in self.run.attempts)


@dataclass(frozen=True, eq=False)
class Accounts:
    """What every figure is taken from."""

    history: History
    runs: tuple[RunAccount, ...]
    problems: tuple[Problem, ...]
    causes: tuple[Cause, ...]
    rows_outside: int

    @cached_property
    def attempts(self) -> tuple[Account, ...]:
        return tuple(account for run in self.runs for account in run.accounts)

    @cached_property
    def run_of(self) -> dict[int, int]:
        """The place of the run of each account, by its ``id``."""
        return {id(account): place for place, run in enumerate(self.runs) for account in run.accounts}

    @property
    def span_s(self) -> float:
        return max(0.0, self.history.end - self.history.start)


def account(history: History, table: Causes | None = None) -> Accounts:
    """Account ``history``. ``table``: which kinds and log classes are the infrastructure's, None = the packaged one."""
    table = table or causes_of()
    attempts, problems = clean(history.attempts)
    rows = Rows(history, attempts)
    causes = table.of(history.incidents)
    judging = _Judging(history, table, Around(causes))
    runs = [_run_account(judging, rows.of_run(run), run) for run in runs_of(attempts, rows.named)]
    placed = sum(account.rows for run in runs for account in run.accounts)
    return Accounts(history, tuple(runs), tuple(problems), causes, max(0, rows.total - placed))


@dataclass(frozen=True, slots=True, eq=False)
class _Judging:
    history: History
    table: Causes
    around: Around

    def verdict(self, attempt: AttemptFacts, following: AttemptFacts | None) -> tuple[bool, Verdict]:
        bad = failed(attempt, following)
        seen = self.around.find(attempt, attempt.end) if attempt.end is not None else []
        log_class = self.history.classes.get((attempt.job, attempt.restart))
        return bad, judge(attempt, bad, log_class, seen, self.table)


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What is known of one attempt before its parts are told."""

    evidence: Evidence
    window: Window | None
    progress: Progress


def _run_account(judging: _Judging, evidence: dict[int, Evidence], run: Run) -> RunAccount:
    known = _with_strides({id(a): _known(judging.history, a, evidence.get(id(a))) for a in run.attempts})
    checkpoints = tuple(c for a in run.attempts for c in known[id(a)].evidence.checkpoints)
    paces = [k.progress.pace_s for k in known.values() if np.isfinite(k.progress.pace_s)]
    pace_s = float(np.median(paces)) if paces else float("nan")
    saves_known = bool(checkpoints) or judging.history.checkpoints_whole
    lanes = [_lane_accounts(judging, lane, known, saves_known, bool(checkpoints), pace_s) for lane in run.lanes]
    return RunAccount(run, tuple(lanes), checkpoints, pace_s)


def _with_strides(known: dict[int, _Known]) -> dict[int, _Known]:
    """Attempts with one row alone step as many steps a row as the others of their run."""
    told = [k.progress.stride for k in known.values() if k.progress.stride]
    if not told or len(told) == len(known):
        return known
    usual = int(np.median(told))
    alone = {key: k for key, k in known.items() if len(k.progress.at) and not k.progress.stride}
    return known | {key: replace(k, progress=replace(k.progress, stride=usual)) for key, k in alone.items()}


def _known(history: History, attempt: AttemptFacts, evidence: Evidence | None) -> _Known:
    if evidence is None or not (len(evidence.steps) or evidence.checkpoints):
        return _Known(NO_EVIDENCE, _window(history, attempt, NO_EVIDENCE), NO_PROGRESS)
    loads = np.array([c.at for c in evidence.checkpoints if c.kind == "load"])
    return _Known(evidence, _window(history, attempt, evidence), progress(evidence.steps, loads))


def _window(history: History, attempt: AttemptFacts, evidence: Evidence) -> Window | None:
    """The attempt as recorded. Where rows begin only with the data, what lies before them is not accounted."""
    if attempt.start is None or (attempt.end is None and attempt.start >= history.end):
        return None
    cut = attempt.start < history.start <= evidence.first_at < np.inf
    begin = history.start if cut else attempt.start
    end = history.end if attempt.end is None else attempt.end
    return Window(begin, max(begin, end), ending_of(attempt), cut)


def _lane_accounts(
    judging: _Judging, lane: Lane, known: dict[int, _Known], saves_known: bool, saves: bool, pace_s: float
) -> tuple[Account, ...]:
    stepped = [len(known[id(a)].progress.at) > 0 for a in lane.attempts]
    found: list[Account] = []
    for place, attempt in enumerate(lane.attempts):
        before = lane.attempts[place - 1] if place else None
        requeued = place < len(lane.links) and lane.links[place] == "requeue"
        bad, verdict = judging.verdict(attempt, lane.attempts[place + 1] if requeued else None)
        queue_s, hold_s = _waited(judging.history, before, attempt)
        here = known[id(attempt)]
        never = any(stepped) and _never_stepped(here.window, any(stepped[:place]), any(stepped[place:]))
        told, parts, source = _parts(here, saves_known, saves, never, pace_s)
        rows = len(here.evidence.steps)
        recorded = here.window.end - attempt.start if here.window and attempt.start is not None else 0.0
        found.append(Account(attempt, here.window, parts, source, told, queue_s, hold_s, bad, verdict, rows, recorded))
    return tuple(found)


def _never_stepped(window: Window | None, before: bool, after: bool) -> bool:
    return window is not None and (window.wall_s <= NEVER_STEPPED_S or (before and after))


def _parts(known: _Known, saves_known: bool, saves: bool, never: bool, pace_s: float) -> tuple[Told | None, Parts, str]:
    """(spans, parts, source) by the best source at hand."""
    window, checkpoints = known.window, known.evidence.checkpoints
    if window is None:
        return None, NOTHING, "waiting"
    if len(known.progress.at) or never:
        told = tell(window, known.progress, checkpoints, pace_s)
        if window.ending == "broken" and len(known.progress.at) and not saves_known:
            return told, without_saves(told.parts), "steps without saves"
        return told, told.parts, "steps"
    if saves:
        return None, by_checkpoints(window, checkpoints), "checkpoints"
    return None, by_accounting(window), "accounting"


def _waited(history: History, before: AttemptFacts | None, attempt: AttemptFacts) -> tuple[float, float]:
    """(queue_eligible, hold) in s: eligible to start, and the end of the attempt before to eligible. What waits still
    waits to the end of the data."""
    left = next((t for t in (attempt.start, attempt.end, history.end) if t is not None), history.end)
    left = min(left, history.end) if attempt.start is None else left
    eligible = attempt.eligible
    if eligible is None and attempt.start is not None:
        eligible = attempt.submit
    eligible = left if eligible is None else min(eligible, left)
    ready = eligible
    if before is not None and before.end is not None:
        ready = max(eligible, before.end)
    hold_s = max(0.0, min(ready, left) - before.end) if before is not None and before.end is not None else 0.0
    return max(0.0, left - ready), hold_s
