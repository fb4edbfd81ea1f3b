"""Sums per hour against what they were made of: all counted anew, and compared or written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from backend.clock import unix, utc
from backend.reliability.account import account
from backend.rollups.gather import Trained, gather, nothing_trained
from backend.rollups.hours import HOUR_S, hour_of, sums_of, with_findings
from backend.rollups.keep import counted, same, write_hours
from backend.store import reckoning
from backend.store.engine import Store
from backend.store.reckoning import SUMS, SumKey

#: Differences that are told one by one.
TOLD = 20


@dataclass(frozen=True, slots=True)
class Difference:
    """``kept`` is what the row says, ``counted`` what it should say."""

    hour: datetime
    job: str
    node: str
    what: str
    kept: float
    counted: float


@dataclass(frozen=True, slots=True)
class Checked:
    """Rows compared over ``hours``, and the first differences; ``wrong`` rows in all."""

    hours: int
    rows: int
    wrong: int
    differences: tuple[Difference, ...]


def check(
    store: Store, cluster: str, now: datetime, days: int, most: int, trained: Trained = nothing_trained
) -> Checked:
    """Compare the whole hours of the last ``days``, up to the last time that sums were written."""
    with store.read() as session:
        written = max((row.at for d in range(1, 401) if (row := reckoning.reckoning(session, cluster, d))), default=now)
        low, high = _bounds(now, min(now, written), days)
        found = gather(session, cluster, utc(low), now, most, trained)
        hours = {utc(low + HOUR_S * place) for place in range(int((high - low) / HOUR_S))}
        known = dict(reckoning.all_sums(session, cluster, utc(low), utc(high)))
        told = counted(session, cluster, hours)
    fresh = with_findings(sums_of(account(found.history), low, high), {}, told, hours)
    wrong = [key for key in sorted(set(known) | set(fresh)) if not same(_at(known, key), _at(fresh, key))]
    shown = [one for key in wrong for one in _differences(key, _at(known, key), _at(fresh, key))]
    return Checked(len(hours), len(set(known) | set(fresh)), len(wrong), tuple(shown[:TOLD]))


def rebuild(
    store: Store, cluster: str, now: datetime, days: int, most: int, trained: Trained = nothing_trained
) -> tuple[int, int]:
    """(rows written, rows dropped): all sums of the last ``days`` counted anew."""
    low, high = _bounds(now, now, days)
    high = unix(hour_of(now)) + HOUR_S
    with store.read() as session:
        found = gather(session, cluster, utc(low), now, most, trained)
    hours = {utc(low + HOUR_S * place) for place in range(int((high - low) / HOUR_S))}
    accounts = account(found.history)
    with store.write() as session:
        return write_hours(session, cluster, accounts, low, high, hours)


def _bounds(now: datetime, until: datetime, days: int) -> tuple[float, float]:
    return unix(hour_of(now - timedelta(days=days))) + HOUR_S, unix(hour_of(until))


def _at(rows: dict[SumKey, tuple[float, ...]] | dict[SumKey, list[float]], key: SumKey) -> list[float]:
    return list(rows.get(key, [0.0] * len(SUMS)))


def _differences(key: SumKey, kept: list[float], fresh: list[float]) -> list[Difference]:
    job, node, hour = key
    pairs = zip(SUMS, kept, fresh, strict=True)
    return [Difference(hour, job, node, name, a, b) for name, a, b in pairs if not same([a], [b])]
