"""Faults of nodes: incidents, lost nodes and unplanned outages that are one event are one fault."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from backend.reliability.account import Accounts
from backend.reliability.exclusions import is_drain
from backend.reliability.outcomes import NODE_STATES
from detectors.model import Severity

#: Signs of one node that begin within this of the last one are one fault, s: a repair and its return take longer.
SAME_FAULT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one node. begin and end: when its signs began; what: the sign that came first."""

    node: str
    begin: float
    end: float
    what: str


def node_faults(accounts: Accounts) -> list[Fault]:
    """Distinct faults of nodes in the span: loud incidents of the infrastructure's kinds on a node, nodes that went
    down by themselves (a drain is somebody's act and counts apart), and an attempt that lost its only node."""
    signs: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    loud = {i.id for i in accounts.history.incidents if i.severity >= Severity.HIGH}
    for cause in accounts.causes:
        if cause.infra and cause.incident in loud:
            for node in cause.nodes[:1]:
                signs[node].append((cause.begin, cause.kind))
    for outage in accounts.history.outages:
        if "DOWN" in outage.state.upper() and not is_drain(outage):
            signs[outage.node].append((outage.start, "down"))
    for account in accounts.attempts:
        attempt = account.attempt
        if attempt.state in NODE_STATES and attempt.end is not None and len(attempt.nodes) == 1:
            signs[attempt.nodes[0]].append((attempt.end, attempt.state))
    return [fault for node in sorted(signs) for fault in _together(node, sorted(signs[node]))]


def _together(node: str, signs: list[tuple[float, str]]) -> list[Fault]:
    found: list[Fault] = []
    for at, what in signs:
        if found and at - found[-1].end <= SAME_FAULT_S:
            found[-1] = Fault(node, found[-1].begin, at, found[-1].what)
        else:
            found.append(Fault(node, at, at, what))
    return found
