"""How long it took to notice and to mend: MTTD and MTTR as measured, and how long runs and nodes survive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from backend.reliability.account import Account, Accounts
from backend.reliability.exclusions import outage_spans
from backend.reliability.history import Floats
from backend.reliability.intervals import Z


def repair_s(accounts: Accounts) -> list[float]:
    """Opening to closing of each closed incident of the infrastructure's kinds; closed means the node is back."""
    infra = {cause.incident for cause in accounts.causes if cause.infra}
    return [i.closed_at - i.opened_at for i in accounts.history.incidents if i.id in infra and i.closed_at is not None]


def outage_s(accounts: Accounts) -> list[float]:
    """Lengths of the outages of nodes that are over, drains included."""
    return [end - begin for _, spans in outage_spans(accounts.history.outages) for begin, end in spans if end < np.inf]


def detection_s(accounts: Accounts) -> list[float]:
    """From the last step of each attempt that the infrastructure ended to its incident: below 0 where that opened
    while it still stepped."""
    return detection_of(accounts.attempts)


def detection_of(accounts: Iterable[Account]) -> list[float]:
    """The same of some attempts."""
    found = []
    for account in accounts:
        last, cause = _last_step(account), account.verdict.cause
        if account.failed and account.verdict.infra and cause is not None and last is not None:
            found.append(cause.begin - last)
    return found


def _last_step(account: Account) -> float | None:
    if account.told is None:
        return None
    ends = [account.told.by_part[part][-1:, 1] for part in ("productive", "lost_since_checkpoint")]
    last = np.concatenate(ends)
    return float(last.max()) if len(last) else None


@dataclass(frozen=True, slots=True, eq=False)
class Survival:
    """Kaplan and Meier's curve: at hours[i] the share ``survived`` drops to survived[i]; low, high its 95 % interval
    (Greenwood, on log(-log)); at_risk before each drop. n lives, of which ``failures`` ended so."""

    hours: Floats
    survived: Floats
    low: Floats
    high: Floats
    at_risk: Floats
    n: int
    failures: int


def survival(lives: Sequence[tuple[float, bool]]) -> Survival:
    """``lives``: (hours, whether it ended in a failure); what ended otherwise, or goes on, is censored there."""
    times = np.array([hours for hours, _ in lives], np.float64)
    died = np.array([failed for _, failed in lives], np.bool_)
    hours = np.unique(times[died])
    deaths = np.array([int((times[died] == t).sum()) for t in hours], np.float64)
    at_risk = np.array([int((times >= t).sum()) for t in hours], np.float64)
    survived: Floats = np.cumprod(1 - deaths / at_risk).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.cumsum(deaths / (at_risk * (at_risk - deaths)))
        log = np.log(survived)
        width = Z * np.sqrt(variance) / np.abs(log)
        low, high = survived ** np.exp(width), survived ** np.exp(-width)
    low, high = np.nan_to_num(low, nan=0.0), np.nan_to_num(high, nan=1.0)
    return Survival(hours, survived, low, high, at_risk, len(lives), int(died.sum()))


def lives_of(accounts: Accounts) -> list[tuple[float, bool]]:
    """(hours that an attempt ran, whether the infrastructure ended it) of all that ran."""
    return [
        (a.recorded_s / 3600, a.failed and a.verdict.infra is True) for a in accounts.attempts if a.window is not None
    ]
