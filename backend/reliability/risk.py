"""Failure risk: the chance that a node has a fault within 24 hours, learnt from the fleet's own past.

A logistic model on counts of signs over the last day, week and month, calibrated on later time (Platt) and judged on
time later still, which it never saw: Brier score against the base rate, lift of the nodes it ranks highest. It says
nothing where the past is too short, where too few faults came, or where it does no better than the base rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.reliability.account import Accounts
from backend.reliability.history import Floats
from backend.reliability.intervals import Interval, wilson
from backend.reliability.signs import FEATURES, Signs, signs_of

DAY_S = 86_400.0
HORIZON_S = DAY_S
#: What the features look back over before the first row is made, s.
WARM_UP_S = 7 * DAY_S
#: Share of the time that is learnt from, and of what calibrates; the rest judges.
LEARN, CALIBRATE = 0.6, 0.2
#: Fewer days than this, or faults in each of the three spans, say too little.
LEAST_DAYS, LEAST_FAULTS = 28.0, 10
#: The nodes that the lift is of: the highest-ranked share of them.
TOP = 0.05
#: Rows of (node, day) at most; beyond, days are skipped evenly.
MOST_ROWS = 200_000
#: Strength of the prior that a sign means nothing (scikit-learn's C).
STRENGTH = 0.1
#: Edges of the bins in which calibration is shown: quantiles of what was predicted.
BINS = 5


@dataclass(frozen=True, slots=True)
class Bin:
    """Of ``n`` node-days with a mean chance of ``said``, ``k`` had a fault."""

    said: float
    k: int
    n: int


@dataclass(frozen=True, slots=True)
class Quality:
    """On held-out time from begin to end (unix s): ``n`` node-days, of which ``faults`` had one.

    skill: 1 - brier / brier of the base rate. lift: share of the top TOP of node-days with a fault over the base rate,
    ``top_k`` of ``top_n``; its interval is Wilson's, over the base rate.
    """

    begin: float
    end: float
    n: int
    faults: int
    brier: float
    brier_base: float
    lift: float
    lift_interval: Interval
    top_k: int
    top_n: int
    bins: tuple[Bin, ...]

    @property
    def skill(self) -> float:
        return 1 - self.brier / self.brier_base if self.brier_base > 0 else 0.0


@dataclass(frozen=True, slots=True)
class NodeRisk:
    """chance: of a fault within HORIZON_S; why: the signs that raise it most, (sign, log odds)."""

    node: str
    chance: float
    why: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Risk:
    """nodes: the highest chance first; empty where ``silent`` says why nothing is said."""

    nodes: tuple[NodeRisk, ...]
    quality: Quality | None
    silent: str


@dataclass(frozen=True, slots=True)
class _Rows:
    """at: float64[k], x: float64[k, f] features, y: bool[k] a fault within the horizon."""

    at: Floats
    x: Floats
    y: NDArray[np.bool_]

    def between(self, low: float, high: float) -> _Rows:
        """Rows whose horizon ends by ``high``: no label looks into the next span."""
        which = (self.at >= low) & (self.at + HORIZON_S <= high)
        return _Rows(self.at[which], self.x[which], self.y[which])


def failure_risk(accounts: Accounts) -> Risk:
    """Of every node of the inventory, or that anything names, for the 24 hours after the history's end."""
    start, end = accounts.history.start + WARM_UP_S, accounts.history.end
    days = (end - start) / DAY_S
    if days + WARM_UP_S / DAY_S < LEAST_DAYS:
        return Risk((), None, f"{max(0.0, days + 7):.0f} days of history; {LEAST_DAYS:.0f} are needed")
    signs = signs_of(accounts)
    rows = _rows(signs, start, end)
    first, second = start + LEARN * (end - start), start + (LEARN + CALIBRATE) * (end - start)
    spans = [rows.between(start, first), rows.between(first, second), rows.between(second, end)]
    faults = [int(span.y.sum()) for span in spans]
    if min(faults) < LEAST_FAULTS:
        return Risk((), None, f"{sum(faults)} days with a fault; each of three spans of time needs {LEAST_FAULTS}")
    model = _Model(spans[0], spans[1])
    quality = _quality(model.chance(spans[2].x), spans[2], float(rows.between(start, second).y.mean()), second, end)
    if quality.brier >= quality.brier_base or quality.lift_interval.low <= 1:
        return Risk((), quality, "on held-out time it does no better than the base rate")
    latest = _Model(rows.between(start, second), rows.between(second, end))
    now = signs.features(np.array([end]))[:, 0, :]
    return Risk(_ranked(signs.nodes, latest, now), quality, "")


def _rows(signs: Signs, start: float, end: float) -> _Rows:
    count = max(1, int((end - HORIZON_S - start) / DAY_S) + 1)
    stride = max(1, -(-count * len(signs.nodes) // MOST_ROWS))
    at: Floats = (start + DAY_S * np.arange(0, count, stride)).astype(np.float64)
    x = signs.features(at)
    y = signs.fault_within(at, HORIZON_S)
    up = ~signs.out_at(at)
    times = np.broadcast_to(at, y.shape)
    return _Rows(times[up], x[up], y[up])


class _Model:
    """Fitted on one span, calibrated on the next."""

    def __init__(self, learn: _Rows, calibrate: _Rows) -> None:
        from sklearn.linear_model import LogisticRegression  # takes a second, and most never ask

        self._mean = learn.x.mean(axis=0)
        self._width = np.maximum(learn.x.std(axis=0), 1e-6)
        self._model: Any = LogisticRegression(C=STRENGTH, max_iter=1000).fit(self._scaled(learn.x), learn.y)
        self._platt: Any = LogisticRegression(C=1e6, max_iter=1000).fit(self._odds(calibrate.x), calibrate.y)

    def _scaled(self, x: Floats) -> Floats:
        scaled: Floats = (x - self._mean) / self._width
        return scaled

    def _odds(self, x: Floats) -> Floats:
        odds: Floats = self._model.decision_function(self._scaled(x)).reshape(-1, 1)
        return odds

    def chance(self, x: Floats) -> Floats:
        chance: Floats = self._platt.predict_proba(self._odds(x))[:, 1]
        return chance

    def parts(self, x: Floats) -> Floats:
        """What each feature adds to the log odds, float64[k, f]."""
        parts: Floats = self._scaled(x) * self._model.coef_[0] * self._platt.coef_[0, 0]
        return parts


def _quality(said: Floats, rows: _Rows, base: float, begin: float, end: float) -> Quality:
    y = rows.y.astype(np.float64)
    order = np.argsort(-said, kind="stable")
    top_n = max(1, round(TOP * len(said)))
    top_k = int(rows.y[order[:top_n]].sum())
    share = float(y.mean())
    within = wilson(top_k, top_n)
    assert within is not None
    parts = np.array_split(order[::-1], BINS)
    return Quality(
        begin=begin,
        end=end,
        n=len(y),
        faults=int(rows.y.sum()),
        brier=float(((said - y) ** 2).mean()),
        brier_base=float(((base - y) ** 2).mean()),
        lift=top_k / top_n / share,
        lift_interval=Interval(within.low / share, within.high / share),
        top_k=top_k,
        top_n=top_n,
        bins=tuple(Bin(float(said[p].mean()), int(rows.y[p].sum()), len(p)) for p in parts if len(p)),
    )


def _ranked(nodes: Sequence[str], model: _Model, x: Floats) -> tuple[NodeRisk, ...]:
    chance, parts = model.chance(x), model.parts(x)
    rows = []
    for place, node in enumerate(nodes):
        best = np.argsort(-parts[place], kind="stable")[:3]
        why = tuple((FEATURES[i], float(parts[place, i])) for i in best if parts[place, i] > 0)
        rows.append(NodeRisk(node, float(chance[place]), why))
    return tuple(sorted(rows, key=lambda row: (-row.chance, row.node)))
