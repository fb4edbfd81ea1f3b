"""Attempts as told, made ready: repeated rows become one, impossible ones are listed and left out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from backend.facts import AttemptFacts
from backend.reliability.outcomes import REQUEUED, ended, state_of


@dataclass(frozen=True, slots=True)
class Problem:
    """An attempt that was left out, and why."""

    job: str
    restart: int
    what: str


def clean(told: Iterable[AttemptFacts]) -> tuple[list[AttemptFacts], list[Problem]]:
    """(attempts in the order they began, problems). Times beyond what is over are taken away: a running job's expected
    end, a waiting job's expected start."""
    by_key: defaultdict[tuple[str, int], list[AttemptFacts]] = defaultdict(list)
    for attempt in told:
        by_key[(attempt.job, attempt.restart)].append(_settled(attempt))
    kept: list[AttemptFacts] = []
    problems: list[Problem] = []
    for (job, restart), rows in sorted(by_key.items()):
        for attempt in _told_once(rows):
            what = _impossible(attempt)
            if what:
                problems.append(Problem(job, restart, what))
            else:
                kept.append(attempt)
    kept, stale = _without_stale(kept)
    return sorted(kept, key=began), problems + stale


def began(attempt: AttemptFacts) -> tuple[float, float, str, int]:
    """What orders attempts: when they were there first, then when they ran."""
    submit = attempt.submit if attempt.submit is not None else attempt.eligible
    first = attempt.start if attempt.start is not None else submit if submit is not None else math.inf
    return first, attempt.submit if attempt.submit is not None else first, attempt.job, attempt.restart


def _settled(attempt: AttemptFacts) -> AttemptFacts:
    state = state_of(attempt.state)
    nodes = attempt.nodes if len(set(attempt.nodes)) == len(attempt.nodes) else tuple(dict.fromkeys(attempt.nodes))
    over = ended(attempt)
    waits = state == "PENDING" or (state in REQUEUED and not over)
    start = None if waits or (over and attempt.start is None) else attempt.start
    end = attempt.end if over else None
    if state is attempt.state and nodes is attempt.nodes and start is attempt.start and end is attempt.end:
        return attempt
    return replace(attempt, state=state, nodes=nodes, start=start, end=end)


def _told_once(rows: list[AttemptFacts]) -> list[AttemptFacts]:
    """One of each attempt: of rows that agree in submit or start, the one that knows most; later rows win ties."""
    if len(rows) == 1:
        return rows
    kept: list[AttemptFacts] = []
    for row in sorted(rows, key=lambda row: row.submit if row.submit is not None else -math.inf):
        twin = next((i for i, other in enumerate(kept) if _same(row, other)), None)
        if twin is None:
            kept.append(row)
        elif _knows(row) >= _knows(kept[twin]):
            kept[twin] = row
    return kept


def _same(a: AttemptFacts, b: AttemptFacts) -> bool:
    if a.life != b.life:
        return False
    if a.start is not None and b.start is not None:
        return a.start == b.start
    return a.submit is None or b.submit is None or a.submit == b.submit


def _knows(attempt: AttemptFacts) -> tuple[bool, bool, bool]:
    return ended(attempt), attempt.start is not None, bool(attempt.nodes)


def _impossible(attempt: AttemptFacts) -> str:
    times = (attempt.submit, attempt.eligible, attempt.start, attempt.end)
    if any(t is not None and not math.isfinite(t) for t in times):
        return "a time is no number"
    if ended(attempt) and attempt.start is not None and attempt.end is None:
        return f"is {attempt.state} but has no end"
    if attempt.start is not None and attempt.end is not None and attempt.end < attempt.start:
        return f"ends {attempt.start - attempt.end:.0f} s before it starts"
    if attempt.start is None and attempt.state in ("RUNNING", "COMPLETING"):
        return f"is {attempt.state} but has no start"
    return ""


def _without_stale(attempts: list[AttemptFacts]) -> tuple[list[AttemptFacts], list[Problem]]:
    """An attempt that never ended although its job ran again later: when it ended is not known."""
    newest: dict[str, float] = {}
    for attempt in attempts:
        if attempt.start is not None:
            newest[attempt.job] = max(newest.get(attempt.job, -math.inf), attempt.start)
    kept: list[AttemptFacts] = []
    problems: list[Problem] = []
    for attempt in attempts:
        if attempt.start is not None and attempt.end is None and newest[attempt.job] > attempt.start:
            what = f"is {attempt.state}, yet its job started again later: its end is not known"
            problems.append(Problem(attempt.job, attempt.restart, what))
        else:
            kept.append(attempt)
    return kept, problems
