"""Failure rates and times between failures, measured: counts over exposure with exact Poisson intervals.

Beside them stands what a model says (papers.md 3): MTTF = 1 / (nodes x rate). The two differ, often widely; one rate
never stands for all sizes of jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from backend.reliability.account import Account, Accounts
from backend.reliability.history import Floats
from backend.reliability.intervals import LEAST_RUNS, TAIL, Interval, Rate, Z, rate

DAY_S = 86_400.0
#: Draws of the bootstrap by run, and its seed: the same facts give the same interval.
RESAMPLES, SEED = 1000, 20260101
#: Of more runs than this the interval is that of the log of a ratio of sums, which the bootstrap tends to.
MANY_RUNS = 2000
#: Sizes of jobs, in nodes, that are told apart: up to and including each.
SIZES = (1, 4, 16, 64, 256, 1024, 4096)


@dataclass(frozen=True, slots=True)
class Failures:
    """``rate`` per unit of exposure; ``by_run``: the interval when whole runs are drawn, since failures of one run
    come in rows (None below LEAST_RUNS runs, or where no run or exposure is). mean_nodes: of the jobs, by time."""

    rate: Rate
    by_run: Interval | None
    runs: int
    mean_nodes: float

    def mean_time(self) -> tuple[float | None, Interval | None]:
        """(exposure per failure, its interval); an end that no failure bounds is infinity."""
        value = 1 / self.rate.value if self.rate.value else None
        within = self.rate.interval
        if within is None or within.high == 0:
            return value, None
        return value, Interval(1 / within.high, 1 / within.low if within.low > 0 else math.inf)


def node_days(account: Account) -> float:
    """Nodes times days that an attempt held them."""
    return len(account.attempt.nodes) * account.recorded_s / DAY_S


def failures(accounts: Accounts, of: Iterable[Account], *, by_nodes: bool, any_cause: bool = False) -> Failures:
    """Failed attempts of the infrastructure's fault (or of ``any_cause``) over node-days (``by_nodes``) or hours."""
    run_of = accounts.run_of
    counts: dict[int, list[float]] = {}
    of = list(of)
    wall_s = math.fsum(account.recorded_s for account in of)
    mean_nodes = math.fsum(node_days(account) for account in of) * DAY_S / wall_s if wall_s else 0.0
    for account in of:
        sums = counts.setdefault(run_of[id(account)], [0.0, 0.0])
        sums[0] += account.failed and (any_cause or account.verdict.infra is True)
        sums[1] += node_days(account) if by_nodes else account.recorded_s / 3600
    hits, exposure = [c[0] for c in counts.values()], [c[1] for c in counts.values()]
    return Failures(rate(int(sum(hits)), math.fsum(exposure)), by_run(hits, exposure), len(counts), mean_nodes)


def by_run(hits: Sequence[float], exposure: Sequence[float]) -> Interval | None:
    """Interval of sum(hits) / sum(exposure) when runs are drawn with replacement; the order has no effect."""
    if len(hits) < LEAST_RUNS or sum(hits) == 0 or sum(exposure) <= 0:
        return None
    pairs = np.array(sorted(zip(hits, exposure, strict=True)), np.float64)
    if len(pairs) > MANY_RUNS:
        return _by_spread(pairs)
    drawn = np.random.default_rng(SEED).integers(0, len(pairs), (RESAMPLES, len(pairs)))
    sums = pairs[drawn].sum(axis=1)
    rates = sums[:, 0] / np.maximum(sums[:, 1], 1e-12)
    low, high = np.quantile(rates, [TAIL, 1 - TAIL])
    return Interval(float(low), float(high))


def _by_spread(pairs: Floats) -> Interval:
    hits, exposure = pairs.sum(axis=0)
    spread = float(np.sqrt(((pairs[:, 0] - hits / exposure * pairs[:, 1]) ** 2).sum())) / float(hits)
    value = float(hits / exposure)
    return Interval(value * math.exp(-Z * spread), value * math.exp(Z * spread))


def by_size(accounts: Accounts) -> list[tuple[int, int, Failures]]:
    """(least, most nodes, failures over hours of jobs) of each size that ran."""
    found = []
    for low, high in zip((0, *SIZES), (*SIZES, 10**9), strict=True):
        of = [a for a in accounts.attempts if a.window is not None and low < len(a.attempt.nodes) <= high]
        if of:
            found.append((low + 1, high, failures(accounts, of, by_nodes=False)))
    return found
