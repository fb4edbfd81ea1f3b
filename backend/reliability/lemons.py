"""Lemon nodes: those that fail far more often than their exposure explains.

Each node has a rate of faults. Healthy ones share a rate, give or take (gamma), lemons have one many times as high
(gamma, wide); which of both a node is, and what its rate is, follows from its faults and its node-days (gamma-Poisson).
``p_false`` is the chance that a node is healthy. A failure that nobody pinned on a node is shown, shared by the nodes
of its job, and accuses none of them: one of many is guilty, and being in large jobs is no evidence. What users exclude
stands beside the score and is no part of it: by itself it does not tell lemons (papers.md 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp

from backend.reliability.account import Account, Accounts
from backend.reliability.exclusions import exclusions, outage_spans
from backend.reliability.faults import node_faults
from backend.reliability.history import Floats
from backend.reliability.mttf import DAY_S

#: What the signals and the score look back over, s (papers.md 3: 28 days).
WINDOW_S = 28 * DAY_S
#: Share of nodes that are lemons before anything is known (Meta found 1.2 to 1.7 %; small fleets are less even).
SHARE = 0.03
#: How many nodes that belief weighs.
SHARE_NODES = 40
#: A node that was hardly in a job can fail all the same: it is taken to have been exposed this long, node-days.
LEAST_DAYS = 3.0
#: How many times the usual rate a lemon may have; each as likely as the others.
TIMES = (6.0, 12.0, 24.0, 48.0)
#: Shapes of the rates: healthy nodes differ by about half, lemons among each other by more.
HEALTHY_SHAPE, LEMON_SHAPE = 4.0, 2.0
#: A fleet's rate before anything is known: faults a node-day (papers.md 3: 2.34 and 6.50 per 1000), as a gamma with
#: this many faults behind it, so that a quiet fleet's first fault accuses nobody.
USUAL_RATE, USUAL_FAULTS = 0.004, 1.0
#: A node is named where it is that unlikely to be healthy, and while those named before keep the mean under the second.
P_FALSE, MEAN_P_FALSE = 0.35, 0.10
#: Fewer faults than this name nobody.
LEAST_FAULTS = 2
#: Rounds in which the fleet's usual rate and share of lemons settle.
ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Exposure:
    """What the score is made of. nodes: names; days, faults: float64[n], node-days and faults that are the node's own;
    shared: for each failure that nobody pinned on a node the places of those it may have been."""

    nodes: tuple[str, ...]
    days: Floats
    faults: Floats
    shared: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """Of the nodes of an Exposure, float64[n]: the chance to be healthy, the rate as a multiple of the fleet's usual
    one, and the expected number of the shared failures that were the node's."""

    p_false: Floats
    times: Floats
    shared: Floats
    usual_rate: float


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
    named = naming(found.p_false, exposure.faults)
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
    """Node-days in jobs since ``since``, faults of each node, and failures of the infrastructure without a culprit."""
    names = {node.name for node in accounts.history.nodes} | {n for a in told for n in a.attempt.nodes}
    faults = [fault for fault in node_faults(accounts) if fault.begin >= since]
    nodes = tuple(sorted(names | {fault.node for fault in faults if fault.node}))
    place = {node: i for i, node in enumerate(nodes)}
    days, counts = np.zeros(len(nodes)), np.zeros(len(nodes))
    for account in told:
        assert account.window is not None
        held = (account.window.end - max(since, account.window.begin)) / DAY_S
        days[[place[node] for node in account.attempt.nodes]] += max(0.0, held)
    shared: list[tuple[int, ...]] = []
    for fault in faults:
        if fault.node:
            counts[place[fault.node]] += 1
        elif fault.among:
            shared.append(tuple(place[node] for node in fault.among if node in place))
    return Exposure(nodes, days, counts, tuple(shared))


def score(exposure: Exposure) -> Score:
    """EM over the usual rate and the share of lemons; the shared failures are split by the rates that come of it."""
    n = len(exposure.nodes)
    if not n:
        return Score(np.zeros(0), np.zeros(0), np.zeros(0), USUAL_RATE)
    faults = exposure.faults
    days = np.maximum(exposure.days, LEAST_DAYS)
    usual = (USUAL_FAULTS + float(np.median(faults)) * n) / (USUAL_FAULTS / USUAL_RATE + float(days.sum()))
    share = SHARE
    for _ in range(ROUNDS):
        lemon, rates = _posterior(faults, days, usual, share)
        healthy = 1.0 - lemon
        usual = _usual(float(healthy @ faults), float(healthy @ days))
        share = (SHARE * SHARE_NODES + float(lemon.sum())) / (SHARE_NODES + n)
    return Score(1.0 - lemon, rates / usual, _shares(exposure.shared, rates, n), usual)


def _usual(faults: float, days: float) -> float:
    """The rate of healthy nodes, half a standard deviation up: few faults say little of it, and too low a rate would
    make lemons of those that had bad luck."""
    behind = USUAL_FAULTS + faults
    return (behind + 0.5 * math.sqrt(behind)) / (USUAL_FAULTS / USUAL_RATE + days)


def _posterior(faults: Floats, days: Floats, usual: float, share: float) -> tuple[Floats, Floats]:
    """(chance to be a lemon, expected rate) of each node."""
    hypotheses = [(HEALTHY_SHAPE, usual, np.log1p(-share))]
    hypotheses += [(LEMON_SHAPE, usual * times, np.log(share / len(TIMES))) for times in TIMES]
    logs = np.array([prior + _log_chance(faults, days, shape, mean) for shape, mean, prior in hypotheses])
    weights = np.exp(logs - logsumexp(logs, axis=0))
    means = np.array([(shape + faults) / (shape / mean + days) for shape, mean, _ in hypotheses])
    return 1.0 - weights[0], (weights * means).sum(axis=0)


def _log_chance(faults: Floats, days: Floats, shape: float, mean: float) -> Floats:
    """Log of the negative binomial: faults of a node whose rate is gamma (shape, mean) over ``days``."""
    p = shape / (shape + mean * days)
    log_chance: Floats = gammaln(shape + faults) - gammaln(shape) - gammaln(faults + 1)
    return log_chance + shape * np.log(p) + faults * np.log1p(-p)


def _shares(shared: Sequence[tuple[int, ...]], rates: Floats, n: int) -> Floats:
    """Each failure among several nodes, split by their rates."""
    found = np.zeros(n)
    for among in shared:
        places = list(among)
        if places:
            found[places] += rates[places] / rates[places].sum()
    return found


def naming(p_false: Floats, faults: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which nodes are named: the surest first, while the mean chance of a false accusation stays low."""
    named = np.zeros(len(p_false), np.bool_)
    total = 0.0
    for count, i in enumerate(np.argsort(p_false, kind="stable"), 1):
        total += float(p_false[i])
        if p_false[i] > P_FALSE or total / count > MEAN_P_FALSE:
            break
        named[i] = faults[i] >= LEAST_FAULTS
    return named


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
