"""What saves and loads cost as measured, and how often to save: Young, Daly and E[ETTR] with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from backend.facts import CheckpointFacts
from backend.reliability.account import Accounts, RunAccount
from backend.reliability.expected import daly_s, expected_ettr, young_s
from backend.reliability.intervals import Interval, bootstrap
from backend.reliability.mttf import RESAMPLES, SEED, failures, node_days

#: Fewer values than this bound no mean.
LEAST = 5


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
    """For one run: how often it saves, and how often it should. Times in s; bounds from those of MTTF and cost.

    failures: those that the MTTF rests on. ettr_now, ettr_then: E[ETTR] at the present and at the advised interval.
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
    ettr_now: float | None
    ettr_then: float


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
    cheap, dear = (write.interval.low, write.interval.high) if write.interval else (write.mean_s, write.mean_s)
    best, now = daly_s(write.mean_s, mttf), save_every_s(run)
    restart = _restart_s(run)
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
        daly_s=best,
        bounds=Interval(daly_s(cheap, within.low), daly_s(dear, within.high)),
        ettr_now=expected_ettr(mttf, restart, now, write.mean_s) if now else None,
        ettr_then=expected_ettr(mttf, restart, max(best, 1.0), write.mean_s),
    )


def _restart_s(run: RunAccount) -> float:
    """Mean seconds to the first step again, hangs included: what each failure costs beside the steps since a save."""
    told: Sequence[float] = [
        a.parts["startup"].middle + a.parts["load"].middle + a.queue_s for a in run.accounts if a.told
    ]
    hung = [a.parts["hang"].middle for a in run.accounts if a.told and a.failed]
    return (math.fsum(told) / len(told) if told else 0.0) + (math.fsum(hung) / len(hung) if hung else 0.0)
