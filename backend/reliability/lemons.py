"""Lemon nodes: those that fail far more often than their exposure explains, with Meta's seven signals beside.

``suspects`` says how likely each is to be healthy; here are the counts it takes, over 28 days. What users exclude
stands beside the score and is no part of it: by itself it does not tell lemons (papers.md 3).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backend.reliability.account import Account, Accounts
from backend.reliability.exclusions import exclusions, is_drain, outage_spans
from backend.reliability.faults import Fault, node_faults
from backend.reliability.history import Floats
from backend.reliability.mttf import DAY_S
from backend.reliability.suspects import Exposure, naming, score

#: What the signals and the score look back over, s (papers.md 3: 28 days).
WINDOW_S = 28 * DAY_S
#: A node is named where it is that unlikely to be healthy, and while those named before keep the mean under the second.
P_FALSE, MEAN_P_FALSE = 0.25, 0.10
#: Fewer faults than this name nobody; of those whose culprit is not known the expected number counts.
LEAST_FAULTS = 1.5
#: A ticket, a drain or an XID this soon after a fault of its node, or so shortly before, is its echo, s.
ECHO_S, AHEAD_S = 2 * DAY_S, 6 * 3600.0
#: Nodes that were taken out within this of each other, s, this many of them: somebody's work on the fleet.
TOGETHER_S, TOGETHER = 3600.0, 4
#: Failures of one user within this of each other count as one where their cause is not known, s: bugs come in rows.
SAME_BUG_S = DAY_S
#: XIDs that a user's program causes (papers.md 9): they accuse no node.
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68})


@dataclass(frozen=True, slots=True)
class Lemon:
    """One node with the seven signals of papers.md 3 over the window; None = not known."""

    node: str
    lemon: bool
    score: float
    p_false: float
    failures: int
    shared: float
    node_days: float
    signals: Mapping[str, float | None]


def lemons(accounts: Accounts) -> list[Lemon]:
    """Nodes that show any signal, the most suspicious first."""
    since = accounts.history.end - WINDOW_S
    told = [a for a in accounts.attempts if a.window is not None and a.window.end > since]
    exposure = exposure_of(accounts, told, since)
    found = score(exposure)
    named = naming(found.p_false, exposure.faults + found.shared, P_FALSE, MEAN_P_FALSE, LEAST_FAULTS)
    signals = signals_of(accounts, told, since)
    rows = [
        Lemon(
            node=node,
            lemon=bool(named[i]),
            score=float(found.times[i]),
            p_false=float(found.p_false[i]),
            failures=int(exposure.faults[i]),
            shared=float(found.shared[i]),
            node_days=float(exposure.days[i]),
            signals=signals.get(node, {}),
        )
        for i, node in enumerate(exposure.nodes)
    ]
    shown = [row for row in rows if row.lemon or row.failures or any(row.signals.values())]
    return sorted(shown, key=lambda row: (not row.lemon, row.p_false, row.node))


def exposure_of(accounts: Accounts, told: Sequence[Account], since: float) -> Exposure:
    """Node-days in jobs since ``since``, faults of each node, failures without a culprit, and weaker signs."""
    names = {node.name for node in accounts.history.nodes} | {n for a in told for n in a.attempt.nodes}
    faults = [fault for fault in node_faults(accounts) if fault.begin >= since]
    nodes = tuple(sorted(names | {fault.node for fault in faults if fault.node}))
    place = {node: i for i, node in enumerate(nodes)}
    days, counts = np.zeros(len(nodes)), np.zeros(len(nodes))
    job_days = 0.0
    for account in told:
        assert account.window is not None
        held = max(0.0, (account.window.end - max(since, account.window.begin)) / DAY_S)
        job_days += held
        days[[place[node] for node in account.attempt.nodes]] += held
    shared: list[tuple[int, ...]] = []
    for fault in faults:
        if fault.node:
            counts[place[fault.node]] += 1
        elif fault.among:
            shared.append(tuple(place[node] for node in fault.among if node in place))
    unsure = tuple(tuple(place[node] for node in a.attempt.nodes) for a in _unsure(told, since))
    return Exposure(nodes, days, counts, tuple(shared), unsure, job_days, _signs(accounts, place, faults, since))


def _unsure(told: Sequence[Account], since: float) -> list[Account]:
    """Failures whose cause is not known, one a user and day."""
    latest: dict[str, float] = {}
    found = []
    for account in sorted(told, key=lambda a: a.attempt.end or 0.0):
        end, user = account.attempt.end, account.attempt.user
        if end is None or end < since or not account.failed or account.verdict.infra is not None:
            continue
        if end - latest.get(user, -SAME_BUG_S) >= SAME_BUG_S:
            found.append(account)
            latest[user] = end
    return found


def _signs(accounts: Accounts, place: Mapping[str, int], faults: Iterable[Fault], since: float) -> tuple[Floats, ...]:
    """Counts a node of tickets, drains, XIDs of the hardware and quieter incidents that are no echo of a fault."""
    history = accounts.history
    begins: defaultdict[str, list[float]] = defaultdict(list)
    for fault in sorted(faults, key=lambda f: f.begin):
        begins[fault.node].append(fault.begin)
    drained = sorted((o.start, o.node) for o in history.outages if is_drain(o))
    drains = [(node, at) for at, node in drained if _alone(drained, at)]
    xids = [(n, at) for n, rows in history.xids.items() for at, code in rows if code not in APPLICATION_XIDS]
    tickets = [(node, at) for node, rows in history.tickets.items() for at in rows]
    quiet = [(node, c.begin) for c in accounts.causes if c.infra is not False for node in c.nodes[:1]]
    found = []
    for told in (drains, xids, tickets, quiet):
        counts = np.zeros(len(place))
        latest: dict[str, float] = {}
        for node, at in sorted(told, key=lambda t: t[1]):
            own = at >= since and node in place and not _echo(begins[node], at)
            if own and at - latest.get(node, -ECHO_S) >= DAY_S:
                counts[place[node]] += 1
                latest[node] = at
        if counts.any():
            found.append(counts)
    return tuple(found)


def _alone(drained: Sequence[tuple[float, str]], at: float) -> bool:
    low, high = bisect_left(drained, (at - TOGETHER_S, "")), bisect_left(drained, (at + TOGETHER_S, ""))
    return len({node for _, node in drained[low:high]}) < TOGETHER


def _echo(begins: Sequence[float], at: float) -> bool:
    first = bisect_left(begins, at - ECHO_S)
    return first < len(begins) and begins[first] <= at + AHEAD_S


def signals_of(accounts: Accounts, told: Sequence[Account], since: float) -> dict[str, dict[str, float | None]]:
    """The seven signals a node; failures only where the infrastructure is their cause."""
    history = accounts.history
    excluded = exclusions([a.attempt for a in told], 0).counts
    outs = {node: sum(begin >= since for begin, _ in spans) for node, spans in outage_spans(history.outages)}
    single: dict[str, list[int]] = {}
    multi: dict[str, int] = {}
    for account in told:
        bad = account.failed and account.verdict.infra is True
        if len(account.attempt.nodes) == 1:
            counts = single.setdefault(account.attempt.nodes[0], [0, 0])
            counts[0] += bad
            counts[1] += account.over
        elif bad:
            for node in account.attempt.nodes:
                multi[node] = multi.get(node, 0) + 1
    nodes = {*excluded, *outs, *single, *multi, *history.xids, *history.tickets}
    return {
        node: {
            "excl_jobid_count": excluded.get(node, 0),
            "xid_cnt": len({c for at, c in history.xids.get(node, ()) if at >= since}) if history.xids else None,
            "tickets": sum(at >= since for at in history.tickets.get(node, ())) if history.tickets else None,
            "out_count": outs.get(node, 0),
            "multi_node_node_fails": multi.get(node, 0),
            "single_node_node_fails": single.get(node, [0, 0])[0],
            "single_node_node_failure_rate": _ratio(*single.get(node, [0, 0])),
        }
        for node in nodes
    }


def _ratio(k: int, n: int) -> float | None:
    return k / n if n else None
