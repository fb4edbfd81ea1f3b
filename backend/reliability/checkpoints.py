"""What saves and loads cost as measured, and how often to save: Young, Daly and E[ETTR] with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from backend.facts import CheckpointFacts
from backend.reliability.account import Accounts, RunAccount
from backend.reliability.expected import (
    best_interval_s,
    best_intervals,
    daly_intervals,
    daly_s,
    exact_ettr,
    exact_shares,
    young_s,
)
from backend.reliability.history import Floats
from backend.reliability.intervals import TAIL, Interval, bootstrap
from backend.reliability.mttf import RESAMPLES, SEED, failures, node_days

#: Fewer values than this bound no mean.
LEAST = 5
#: Draws of failure rate and cost that carry their uncertainty into the advice.
DRAWS = 2000
#: Without a bound of the mean cost its spread is taken to be this share of it.
COST_SPREAD = 0.5
#: What a normal interval's half width is, in standard deviations.
Z95 = 1.96


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of ``n`` saves or loads: mean with its bootstrap interval, median; bytes a second where told."""

    n: int
    mean_s: float | None
    interval: Interval | None
    median_s: float | None
    rate_bytes_s: float | None


@dataclass(frozen=True, slots=True)
class Advice:
    """For one run: how often it saves, and how often it should, by three formulas. Times in s.

    failures: those that the MTTF rests on. young_s, daly_s, best_s: Young's, Daly's and that of the best E[ETTR];
    bounds, best: 95 % of the last two, as the rate (gamma, Jeffreys) and the cost are drawn. ettr_now, ettr_then:
    E[ETTR] at the present interval and at best_s. gain: 95 % of their difference; pays: the chance that it is above 0.
    """

    run: str
    saves: int
    write: Cost
    interval_s: float | None
    restart_s: float
    failures: int
    mttf_s: float
    mttf: Interval
    young_s: float
    daly_s: float
    bounds: Interval
    best_s: float
    best: Interval
    ettr_now: float | None
    ettr_then: float
    gain: Interval | None
    pays: float | None


def cost(checkpoints: Iterable[CheckpointFacts]) -> Cost:
    """Of checkpoints of one kind; those that took no time are marks, not measurements."""
    told = [c for c in checkpoints if c.duration_s > 0]
    if not told:
        return Cost(0, None, None, None, None)
    lengths = [c.duration_s for c in told]
    moved = [(c.bytes, c.duration_s) for c in told if c.bytes]
    rate = sum(size for size, _ in moved) / sum(s for _, s in moved) if moved else None
    within = bootstrap(lengths, [str(i) for i in range(len(lengths))], SEED, RESAMPLES) if len(told) >= LEAST else None
    return Cost(len(told), math.fsum(lengths) / len(lengths), within, float(np.median(lengths)), rate)


def save_every_s(run: RunAccount) -> float | None:
    """Median seconds of training between two saves of one attempt: from the end of one to the begin of the next."""
    found: list[float] = []
    for account in run.accounts:
        start = account.attempt.start
        if start is None:
            continue
        end = math.inf if account.attempt.end is None else account.attempt.end
        saves = [c for c in run.checkpoints if c.kind == "save" and start < c.at <= end]
        found += [b.at - b.duration_s - a.at for a, b in zip(saves, saves[1:], strict=False)]
    return float(np.median(found)) if found else None


def advice(accounts: Accounts) -> list[Advice]:
    """For each run that saves, from the failures of the whole fleet over its node-days: one run alone sees few.

    Empty where nothing failed: what has not failed says only that the MTTF is long.
    """
    fleet = failures(accounts, accounts.attempts, by_nodes=True, any_cause=True)
    if fleet.rate.value is None or fleet.rate.count == 0 or fleet.rate.interval is None:
        return []
    found = []
    for run in accounts.runs:
        write = cost(c for c in run.checkpoints if c.kind == "save" and c.blocking)
        hours = math.fsum(a.recorded_s for a in run.accounts) / 3600
        nodes = math.fsum(node_days(a) for a in run.accounts) * 24 / hours if hours else 0.0
        if write.mean_s is None or not nodes:
            continue
        per_day = nodes * fleet.rate.value
        low, high = 86_400 / (nodes * fleet.rate.interval.high), 86_400 / (nodes * fleet.rate.interval.low)
        found.append(_advise(run, write, fleet.rate.count, 86_400 / per_day, Interval(low, high)))
    return found


def _advise(run: RunAccount, write: Cost, count: int, mttf: float, within: Interval) -> Advice:
    assert write.mean_s is not None
    now, restart = save_every_s(run), _restart_s(run)
    best = max(best_interval_s(mttf, write.mean_s), 1.0)
    mttfs, writes = _drawn(write, count, mttf)
    gains = None
    if now:
        gains = exact_shares(mttfs, restart, best, writes) - exact_shares(mttfs, restart, now, writes)
    return Advice(
        run=run.run.name,
        saves=write.n,
        write=write,
        interval_s=now,
        restart_s=restart,
        failures=count,
        mttf_s=mttf,
        mttf=within,
        young_s=young_s(write.mean_s, mttf),
        daly_s=daly_s(write.mean_s, mttf),
        bounds=_middle(daly_intervals(mttfs, writes)),
        best_s=best,
        best=_middle(best_intervals(mttfs, writes)),
        ettr_now=exact_ettr(mttf, restart, now, write.mean_s) if now else None,
        ettr_then=exact_ettr(mttf, restart, best, write.mean_s),
        gain=None if gains is None else _middle(gains),
        pays=None if gains is None else float((gains > 0).mean()),
    )


def _drawn(write: Cost, count: int, mttf: float) -> tuple[Floats, Floats]:
    """(times between failures, costs of a save) as they may be: the rate by a gamma with Jeffreys' half a failure, the
    mean cost by its bootstrap interval. The same facts draw the same."""
    assert write.mean_s is not None
    rng = np.random.default_rng(SEED)
    rates = rng.gamma(count + 0.5, 1.0, DRAWS) / count
    spread = (write.interval.high - write.interval.low) / (2 * Z95) if write.interval else COST_SPREAD * write.mean_s
    costs = np.maximum(0.05 * write.mean_s, rng.normal(write.mean_s, spread, DRAWS))
    return mttf / rates, costs


def _middle(values: Floats) -> Interval:
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    return Interval(float(low), float(high))


def _restart_s(run: RunAccount) -> float:
    """Mean seconds to the first step again, hangs included: what each failure costs beside the steps since a save."""
    told: Sequence[float] = [
        a.parts["startup"].middle + a.parts["load"].middle + a.queue_s for a in run.accounts if a.told
    ]
    hung = [a.parts["hang"].middle for a in run.accounts if a.told and a.failed]
    return (math.fsum(told) / len(told) if told else 0.0) + (math.fsum(hung) / len(hung) if hung else 0.0)
