"""Numbers that carry their n and their 95 % interval: shares, rates, means, quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

#: Two-sided 95 %: the normal quantile, and what is left in each tail.
Z = 1.959963984540054
TAIL = 0.025
#: Fewer groups than this say too little of the groups not seen: their bootstrap comes out far too narrow.
LEAST_RUNS = 5


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Share:
    """``k`` of ``n`` with Wilson's interval. ``by_run``: cluster bootstrap over ``runs`` groups, None where every
    member is a run of its own, below LEAST_RUNS, and where all or none hit (it would have no width)."""

    k: int
    n: int
    interval: Interval | None
    runs: int = 0
    by_run: Interval | None = None

    @property
    def value(self) -> float | None:
        return self.k / self.n if self.n else None


@dataclass(frozen=True, slots=True)
class Rate:
    """``count`` events in ``exposure`` units, with the exact Poisson interval of the rate."""

    count: int
    exposure: float
    interval: Interval | None

    @property
    def value(self) -> float | None:
        return self.count / self.exposure if self.exposure > 0 else None


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean of ``n`` values, with the cluster bootstrap over ``runs`` groups (None below LEAST_RUNS)."""

    value: float | None
    n: int
    runs: int
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Quantile:
    """The ``q`` quantile of ``n`` values; a side of its interval is None where n values cannot bound it."""

    q: float
    n: int
    value: float | None
    low: float | None
    high: float | None


def wilson(k: int, n: int) -> Interval | None:
    """Wilson's score interval of k in n (Wilson 1927, without continuity correction); None for n = 0."""
    if n == 0:
        return None
    share, z2 = k / n, Z * Z
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return Interval(0.0 if k == 0 else centre - half, 1.0 if k == n else centre + half)


def share(hits: Sequence[bool], groups: Sequence[str], seed: int, resamples: int) -> Share:
    """Share of ``hits``; ``groups`` names the run of each."""
    k, n, runs = sum(hits), len(hits), len(set(groups))
    correlated = LEAST_RUNS <= runs < n and 0 < k < n
    by_run = bootstrap([float(hit) for hit in hits], groups, seed, resamples) if correlated else None
    return Share(k, n, wilson(k, n), runs, by_run)


def rate(count: int, exposure: float) -> Rate:
    """Exact (Garwood) interval: chi-square quantiles; 0 events bound the rate by 3.689 over the exposure."""
    if exposure <= 0:
        return Rate(count, 0.0, None)
    low = float(stats.chi2.ppf(TAIL, 2 * count)) / 2 if count else 0.0
    high = float(stats.chi2.ppf(1 - TAIL, 2 * count + 2)) / 2
    return Rate(count, exposure, Interval(low / exposure, high / exposure))


def mean(values: Sequence[float], groups: Sequence[str], seed: int, resamples: int) -> Mean:
    """Mean of ``values``; ``groups`` names the run of each."""
    runs = len(set(groups))
    interval = bootstrap(values, groups, seed, resamples) if runs >= LEAST_RUNS else None
    return Mean(math.fsum(values) / len(values) if values else None, len(values), runs, interval)


def bootstrap(values: Sequence[float], groups: Sequence[str], seed: int, resamples: int) -> Interval:
    """Percentile interval of the mean when whole groups are drawn with replacement; the order has no effect."""
    names = sorted(set(groups))
    place = {name: at for at, name in enumerate(names)}
    members: list[list[float]] = [[] for _ in names]
    for value, group in zip(values, groups, strict=True):
        members[place[group]].append(value)
    totals = np.array([math.fsum(sorted(m)) for m in members])
    sizes = np.array([len(m) for m in members], dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(names), (resamples, len(names)))
    low, high = np.quantile(totals[drawn].sum(axis=1) / sizes[drawn].sum(axis=1), [TAIL, 1 - TAIL])
    return Interval(float(low), float(high))


def quantile(values: Sequence[float], q: float) -> Quantile:
    """The empirical quantile (inverse of the distribution) with order statistics that bound it at 95 %: the number
    of values below it is binomial (n, q), whatever their distribution."""
    n = len(values)
    if not n:
        return Quantile(q, 0, None, None, None)
    ordered = sorted(values)
    at = max(math.ceil(q * n - 1e-9), 1) - 1
    below: NDArray[np.float64] = stats.binom.cdf(np.arange(n + 1), n, q)
    lows = np.flatnonzero(below[:n] <= TAIL)  # P(at most r values below) <= 2.5 %: value r may bound from below
    highs = np.flatnonzero(below[:n] >= 1 - TAIL)
    low = ordered[int(lows[-1])] if lows.size else None
    high = ordered[int(highs[0])] if highs.size else None
    return Quantile(q, n, ordered[at], low, high)
