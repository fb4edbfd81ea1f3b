"""The whole over one window of days: reliability.json, and beside it trends, losses, exclusions over time, repairs."""

from __future__ import annotations

from typing import Any

from backend.reliability.account import Accounts, account
from backend.reliability.churn import churn
from backend.reliability.cost import gpus
from backend.reliability.efficacy import efficacy
from backend.reliability.lost import DIMENSIONS, Dimension, Lost, lost, usage
from backend.reliability.repair import lives_of, survival
from backend.reliability.report import reliability_json
from backend.reliability.totals import bounds_json, interval, number
from backend.rollups.gather import narrowed
from backend.rollups.trend import trend_json

#: Windows, in days; those longer than what is counted are left out.
WINDOWS = (7, 28, 90)
#: Rows of one dimension of losses, and corners of the survival curve.
MOST_ROWS, MOST_CORNERS = 30, 200


def windows(days: int) -> tuple[int, ...]:
    """The windows that are told where ``days`` are counted; the longest is all of it."""
    return (*(one for one in WINDOWS if one < days), days)


def document_of(
    accounts: Accounts, days: int, left_out: int = 0, price: float | None = None, currency: str = ""
) -> dict[str, Any]:
    """Over the last ``days`` of ``accounts``. left_out: attempts beyond the most that are counted; price: money a
    GPU-hour, in ``currency``."""
    start = accounts.history.end - days * 86_400.0
    told = accounts if start <= accounts.history.start else account(narrowed(accounts.history, start))
    return {
        **reliability_json(told),
        "days": days,
        "price": None if price is None else {"gpu_hour": price, "currency": currency},
        "trend": trend_json(told, days),
        "lost": {by: _lost_json(told, by, price) for by in DIMENSIONS},
        "usage": _usage_json(told),
        "churn": _churn_json(told),
        "efficacy": _efficacy_json(told),
        "survival": _survival_json(told),
        "attempts": len(told.attempts),
        "runs": len(told.runs),
        "gpu_hours_held": number(sum(a.wall_s * gpus(a) for a in told.attempts) / 3600),
        "attempts_not_counted": left_out,
    }


def _lost_json(accounts: Accounts, by: Dimension, price: float | None) -> list[dict[str, Any]]:
    return [_one_lost(row) for row in lost(accounts, by, price)[:MOST_ROWS]]


def _one_lost(row: Lost) -> dict[str, Any]:
    money = {} if row.money is None else {"money": bounds_json(row.money)}
    return {"name": row.name, "failures": row.failures, "gpu_hours": bounds_json(row.gpu_hours), **money}


def _usage_json(accounts: Accounts) -> dict[str, Any]:
    found = usage(accounts)
    return {
        "capacity_gpu_hours": number(found.capacity),
        "held_gpu_hours": number(found.held),
        "free_gpu_hours": number(found.free),
        "out_gpu_hours": number(found.out),
        "idle_gpu_hours": bounds_json(found.idle),
        "not_told_gpu_hours": number(found.dark),
        "asleep_gpu_hours": number(found.asleep),
    }


def _churn_json(accounts: Accounts) -> dict[str, Any]:
    found = churn(accounts)
    return {
        "added": found.added,
        "dropped": found.dropped,
        "live": found.live,
        "added_a_day": number(found.added_a_day),
        "stood_days": number(found.stood_days),
        "by": dict(list(found.by.items())[:MOST_ROWS]),
        "why": dict(list(found.why.items())[:MOST_ROWS]),
        "right": found.proof.right,
        "judged": found.proof.n,
        "right_ci95": interval(found.proof.interval),
        "right_by_chance": number(found.proof.expected),
        "not_judged_yet": found.proof.open,
        "pareto": [[node, count, number(share)] for node, count, share in found.pareto[:MOST_ROWS]],
    }


def _efficacy_json(accounts: Accounts) -> list[dict[str, Any]]:
    return [
        {
            "what": row.what,
            "n": row.n,
            "held": row.held,
            "share": number(row.share),
            "ci95": interval(row.interval),
            "too_young": row.young,
            "median_relapse_s": number(row.median_relapse_s),
        }
        for row in efficacy(accounts)
    ]


def _survival_json(accounts: Accounts) -> dict[str, Any]:
    found = survival(lives_of(accounts))
    names = [name for name in found.__slots__]
    return {name: _plain(getattr(found, name)) for name in names}


def _plain(value: Any) -> Any:
    """Corners of a curve, thinned where there are many."""
    if not hasattr(value, "__len__") or isinstance(value, str):
        return number(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value
    every = max(1, -(-len(value) // MOST_CORNERS))
    return [number(float(one)) for one in list(value)[::every]]
