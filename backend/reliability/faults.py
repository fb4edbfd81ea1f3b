"""Faults of nodes: incidents, lost nodes, unplanned outages and failed jobs that are one event are one fault."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass

from backend.reliability.account import Account, Accounts
from backend.reliability.causes import AFTER_S, BEFORE_S
from backend.reliability.exclusions import is_drain
from backend.reliability.outcomes import failed_nodes
from detectors.model import Severity

#: Signs of one node that begin within this of the last one are one fault, s: a repair and its return take longer.
SAME_FAULT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one node. begin and end: when its first and last sign began; what: the sign that came first.

    node "": it ended a job, and which of ``among`` it was is not known.
    """

    node: str
    begin: float
    end: float
    what: str
    among: tuple[str, ...] = ()


def node_faults(accounts: Accounts) -> list[Fault]:
    """Distinct faults by node and time: loud incidents of the infrastructure's kinds on a node, nodes that went down
    by themselves (a drain is somebody's act and counts apart), and failures of jobs that these do not explain."""
    signs: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    loud = {i.id for i in accounts.history.incidents if i.severity >= Severity.HIGH}
    for cause in accounts.causes:
        if cause.infra and cause.incident in loud:
            for node in cause.nodes[:1]:
                signs[node].append((cause.begin, cause.kind))
    for outage in accounts.history.outages:
        if "DOWN" in outage.state.upper() and not is_drain(outage):
            signs[outage.node].append((outage.start, "down"))
    failed = [a for a in accounts.attempts if a.failed and a.verdict.infra is True]
    open_ones: list[Fault] = []
    times = {node: sorted(at for at, _ in rows) for node, rows in signs.items()}
    for account in failed:
        _explain(account, times, signs, open_ones)
    known = [fault for node in sorted(signs) for fault in _together(node, sorted(signs[node]))]
    return known + sorted(open_ones, key=lambda f: (f.begin, f.among))


def _explain(
    account: Account,
    times: dict[str, list[float]],
    signs: defaultdict[str, list[tuple[float, str]]],
    open_ones: list[Fault],
) -> None:
    """Put the failure on its node where that is known and shows no sign yet."""
    attempt, cause = account.attempt, account.verdict.cause
    assert attempt.end is not None
    blamed = failed_nodes(attempt) or (attempt.nodes if len(attempt.nodes) == 1 else ())
    if cause is not None and not set(cause.nodes).isdisjoint(attempt.nodes):
        signs[cause.nodes[0]].append((cause.begin, cause.kind))
    elif blamed:
        for node in blamed:
            signs[node].append((attempt.end, attempt.state))
    elif cause is None and not any(_within(times.get(node, []), attempt.end) for node in attempt.nodes):
        open_ones.append(Fault("", attempt.end, attempt.end, attempt.state, attempt.nodes))


def _within(times: list[float], end: float) -> bool:
    first = bisect_left(times, end - BEFORE_S)
    return first < len(times) and times[first] <= end + AFTER_S


def _together(node: str, signs: list[tuple[float, str]]) -> list[Fault]:
    found: list[Fault] = []
    for at, what in signs:
        if found and at - found[-1].end <= SAME_FAULT_S:
            found[-1] = Fault(node, found[-1].begin, at, found[-1].what)
        else:
            found.append(Fault(node, at, at, what))
    return found
