"""Runs and the whole, as the accounting wrote them down: what REST, CLI, pages and the report read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session

from backend.model.reckoning import Reckoning, Run
from backend.store import reckoning

#: Words of a window, and its days.
DAY_WORDS = {"7d": 7, "28d": 28, "90d": 90}


@dataclass(frozen=True, slots=True)
class RunList:
    """``rows``: runs as dictionaries; ``states``: how many runs are in each state."""

    rows: list[dict[str, Any]]
    states: dict[str, int]


def run_list(
    session: Session,
    cluster: str,
    limit: int,
    before: datetime | None,
    state: str,
    user: str,
    projects: Sequence[str] = (),
) -> RunList:
    """``projects``: what the asker is limited to, () = nothing."""
    rows = reckoning.runs_page(session, cluster, limit, before, state=state, user=user, projects=projects)
    return RunList(rows, reckoning.run_states(session, cluster, projects))


def run_of(session: Session, cluster: str, name: str, projects: Sequence[str] = ()) -> Run | None:
    """A run by its name, or by the id of one of its jobs; of several that share a name the one that moved last. None
    where it belongs to none of the ``projects`` that the asker is limited to."""
    found = _run_of(session, cluster, name)
    return found if found is None or not projects or found.account in projects else None


def _run_of(session: Session, cluster: str, name: str) -> Run | None:
    found = reckoning.run_named(session, cluster, name)
    if found is None and (of := reckoning.run_of_job(session, cluster, name)):
        found = reckoning.run_named(session, cluster, of)
    return found or reckoning.newest_named(session, cluster, name)


def whole_of(session: Session, cluster: str, days: int, longest: int) -> Reckoning | None:
    """The whole over ``days``; the longest that is counted where it is shorter."""
    return reckoning.reckoning(session, cluster, min(days, longest))


def listed(row: dict[str, Any]) -> dict[str, Any]:
    """One run of a list as JSON values."""
    return {
        "run": row["name"],
        "user": row["user"],
        "account": row["account"],
        "state": row["state"],
        "nodes": row["nodes"],
        "gpus": row["gpus"],
        "began_at": row["began_at"],
        "moved_at": row["moved_at"],
        "attempts": row["attempts"],
        "failures": row["failures"],
        "infra_failures": row["infra_failures"],
        "last_failure_at": row["failed_at"],
        "last_failure": row["failed_why"],
        "ettr": middle(row["ettr_low"], row["ettr_high"]),
        "ettr_bounds": None if row["ettr_low"] is None else [row["ettr_low"], row["ettr_high"]],
        "lost_gpu_hours": [round(row["lost_low_gpu_s"] / 3600, 3), round(row["lost_high_gpu_s"] / 3600, 3)],
    }


def middle(low: float | None, high: float | None, close: float = 0.005) -> float | None:
    """One number, where bounds leave no more open than ``close`` either way (the bar of contracts.md)."""
    if low is None or high is None or high - low > 2 * close:
        return None
    return round((low + high) / 2, 6)
