"""How the fleet does over time: failures over node-days and the share of time that was training, bin by bin."""

from __future__ import annotations

import math
from typing import Any

from backend.reliability.account import Accounts
from backend.reliability.cost import gpus
from backend.reliability.intervals import rate
from backend.reliability.mttf import DAY_S
from backend.reliability.totals import interval, number


def bin_s(days: int) -> float:
    """A day where the window is short, else a week."""
    return DAY_S if days <= 28 else 7 * DAY_S


def trend_json(accounts: Accounts, days: int) -> list[dict[str, Any]]:
    """One object a bin, oldest first; the last one ends now. Bins before the first attempt are left out.

    rate: failures of the infrastructure per 1,000 node-days, exact Poisson interval. held_gpu_hours and failures by
    when they were; ``ettr`` [low, high] of the attempts that ended in the bin or still run, by their GPUs.
    """
    end, size = accounts.history.end, bin_s(days)
    edges = [end - size * place for place in range(math.ceil(days * DAY_S / size), -1, -1)]
    first = min((a.window.begin for a in accounts.attempts if a.window is not None), default=end)
    bins = [(low, high) for low, high in zip(edges, edges[1:], strict=False) if high > first]
    return [_bin(accounts, low, high, last=high == end) for low, high in bins]


def _bin(accounts: Accounts, low: float, high: float, *, last: bool) -> dict[str, Any]:
    days = held = above_low = above_high = below = 0.0
    failures = infra = 0
    for account in accounts.attempts:
        window = account.window
        if window is None or window.begin >= high or window.end <= low:
            continue
        inside = min(window.end, high) - max(window.begin, low)
        days += inside * len(account.attempt.nodes) / DAY_S
        held += inside * gpus(account) / 3600
        ended = low < window.end <= high if account.over else last
        failures += account.failed and ended
        infra += account.failed and ended and account.verdict.infra is True
        if ended:
            above_low += account.parts["productive"].low * gpus(account)
            above_high += account.parts["productive"].high * gpus(account)
            below += (account.wall_s + account.queue_s) * gpus(account)
    told = rate(infra, days)
    return {
        "start": low,
        "end": high,
        "node_days": number(days),
        "held_gpu_hours": number(held),
        "failures": failures,
        "infra_failures": infra,
        "rate_per_1000_node_days": number(told.value, 1000),
        "ci95": interval(told.interval, 1000),
        "ettr": [number(above_low / below), number(min(1.0, above_high / below))] if below else None,
    }
