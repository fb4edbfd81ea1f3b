"""Exclusions over time: who adds and drops which node, why, how long they stand, and how many proved right."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backend.reliability.account import Account, Accounts
from backend.reliability.faults import node_faults
from backend.reliability.intervals import Interval, wilson

DAY_S = 86_400.0
#: A fault of the node from this long before an exclusion was made to this long after it proves it right, s.
BEFORE_S, AFTER_S = DAY_S, 7 * DAY_S
#: What an exclusion is put down to where no fault of the node was seen and nobody said why.
UNSEEN, OWN = "no fault was seen", "a failure of the run on that node"


@dataclass(frozen=True, slots=True)
class Stand:
    """One exclusion of a node from begin (unix s) to end (None = still). right: whether it proved so, None = open."""

    node: str
    begin: float
    end: float | None
    by: str
    why: str
    right: bool | None


@dataclass(frozen=True, slots=True)
class Proof:
    """Of ``n`` exclusions that can be judged, ``right`` proved right; ``expected``: as many would by chance."""

    right: int
    n: int
    interval: Interval | None
    expected: float | None
    open: int

    @property
    def share(self) -> float | None:
        return self.right / self.n if self.n else None


@dataclass(frozen=True, slots=True)
class Churn:
    """What was added and dropped over the span. stood_days: median of those that are over. pareto: (node, how often,
    share of all down to it), the most excluded first."""

    stands: tuple[Stand, ...]
    added: int
    dropped: int
    live: int
    added_a_day: float | None
    stood_days: float | None
    by: Mapping[str, int]
    why: Mapping[str, int]
    proof: Proof
    pareto: tuple[tuple[str, int, float], ...]


def churn(accounts: Accounts) -> Churn:
    """Exclusions in the lists of attempts, one a run, node and unbroken stretch of attempts, and those of History."""
    told = [stand for run in accounts.runs for lane in run.lanes for stand in _of_lane(lane)]
    told += [(e.node, e.begin, e.end, e.by, e.why) for e in accounts.history.excluded]
    faults = _faults(accounts)
    horizon = accounts.history.end
    stands = tuple(
        Stand(
            node, begin, end, by or "not said", why or _why(faults, node, begin), _right(faults, node, begin, horizon)
        )
        for node, begin, end, by, why in sorted(told, key=lambda t: (t[1], t[0], t[3]))
    )
    over = [s.end - s.begin for s in stands if s.end is not None]
    days = accounts.span_s / DAY_S
    return Churn(
        stands=stands,
        added=len(stands),
        dropped=len(over),
        live=len(stands) - len(over),
        added_a_day=len(stands) / days if days > 0 else None,
        stood_days=float(np.median(over)) / DAY_S if over else None,
        by=_ranked(s.by for s in stands),
        why=_ranked(s.why for s in stands),
        proof=_proof(accounts, stands, faults),
        pareto=pareto(Counter(s.node for s in stands)),
    )


def pareto(counts: Mapping[str, int]) -> tuple[tuple[str, int, float], ...]:
    """(name, count, share of the sum down to it), largest first."""
    total, so_far, rows = sum(counts.values()), 0, []
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        so_far += count
        rows.append((name, count, so_far / total))
    return tuple(rows)


def _of_lane(lane: Sequence[Account]) -> Iterable[tuple[str, float, float | None, str, str]]:
    standing: dict[str, tuple[float, str, str]] = {}
    before: Account | None = None
    for account in lane:
        attempt = account.attempt
        at = next((t for t in (attempt.submit, attempt.start) if t is not None), None)
        if at is None:
            continue
        if before is not None and before.attempt.end is not None:
            at = max(at, before.attempt.end)
        for node in [n for n in standing if n not in attempt.excluded]:
            begin, by, why = standing.pop(node)
            yield node, begin, at, by, why
        for node in dict.fromkeys(attempt.excluded):
            own = before is not None and before.failed and node in before.attempt.nodes
            standing.setdefault(node, (at, attempt.user, OWN if own else ""))
        before = account
    over = before.attempt.end if before is not None else None
    for node, (begin, by, why) in standing.items():
        yield node, begin, over, by, why


def _ranked(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


_Faults = Mapping[str, list[tuple[float, str]]]


def _faults(accounts: Accounts) -> _Faults:
    found: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for fault in node_faults(accounts):
        if fault.node:
            found[fault.node].append((fault.begin, fault.what))
    return {node: sorted(rows) for node, rows in found.items()}


def _first(faults: _Faults, node: str, low: float, high: float) -> str | None:
    rows = faults.get(node, [])
    place = bisect_left(rows, (low, ""))
    return rows[place][1] if place < len(rows) and rows[place][0] <= high else None


def _why(faults: _Faults, node: str, begin: float) -> str:
    return _first(faults, node, begin - BEFORE_S, begin) or UNSEEN


def _right(faults: _Faults, node: str, begin: float, horizon: float) -> bool | None:
    if _first(faults, node, begin - BEFORE_S, begin + AFTER_S) is not None:
        return True
    return False if begin + AFTER_S <= horizon else None


def _proof(accounts: Accounts, stands: Sequence[Stand], faults: _Faults) -> Proof:
    """Only those made early enough: the young ones that proved right already would make the share too good."""
    old = [s for s in stands if s.begin + AFTER_S <= accounts.history.end]
    right = sum(s.right is True for s in old)
    names = {n.name for n in accounts.history.nodes} | {n for a in accounts.attempts for n in a.attempt.nodes}
    names |= {s.node for s in stands}
    times = sorted({s.begin for s in old})[:: max(1, len(old) // 200)]
    expected = None
    if times and names:
        hits = sum(_first(faults, n, t - BEFORE_S, t + AFTER_S) is not None for t in times for n in faults)
        expected = len(old) * hits / (len(times) * len(names))
    return Proof(right, len(old), wilson(right, len(old)), expected, len(stands) - len(old))
