"""Backtests as people ask for them: begin, cancel, adopt what was tried, withdraw it; each right, each audit row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlmodel import Session

from backend.auth import Person
from backend.clock import unix
from backend.model.tasks import Task
from backend.proposals import Conflict
from backend.store import tasks
from backend.watch import Watch
from backend.writes import Invalid, Missing, writing

#: Tasks of one cluster that wait or run; the next is refused until one ended.
MOST_OPEN = 10
#: Thresholds that one backtest changes.
MOST_CHANGED = 50
#: Longest span of one backtest, in days: 1,000 GPUs x 20 metrics every 15 s are some 3 h a GiB of recording.
MOST_DAYS = 31


def begin(watch: Watch, person: Person, start: datetime, end: datetime, thresholds: Mapping[str, float]) -> Task:
    """Ask for one: the span [start, end] under today's thresholds and under these.
    Raises Invalid, Conflict, Forbidden."""
    _check_span(start, end, watch.clock.now())
    _check_thresholds(watch, thresholds)
    with writing(watch, person, "operator", "backtest", f"{start.isoformat()} to {end.isoformat()}") as session:
        waiting = len(tasks.open_ones(session, watch.cluster))
        if waiting >= MOST_OPEN:
            raise Conflict(f"{waiting} backtests wait or run. Cancel one, or wait until one ended.")
        asked: dict[str, Any] = {"start": unix(start), "end": unix(end), "thresholds": dict(thresholds)}
        asked["today"] = {name: watch.catalogue.thresholds[name].value for name in thresholds}
        row = Task(cluster=watch.cluster, kind="backtest", at=watch.clock.now(), by=person.name, asked=asked)
        session.add(row)
        session.flush()
        return row


def _check_span(start: datetime, end: datetime, now: datetime) -> None:
    if start >= end:
        raise Invalid("The span ends before it begins: give an end after the start.")
    if end > now:
        raise Invalid("The span reaches into the future: give an end that has been.")
    if (end - start).total_seconds() > MOST_DAYS * 86_400:
        raise Invalid(f"A span has at most {MOST_DAYS} days: try it in parts.")


def _check_thresholds(watch: Watch, thresholds: Mapping[str, float]) -> None:
    known = watch.catalogue.thresholds
    if not 0 < len(thresholds) <= MOST_CHANGED:
        raise Invalid(
            f"Name 1 to {MOST_CHANGED} thresholds with their values: without one there is nothing to compare."
        )
    if unknown := sorted(set(thresholds) - set(known)):
        raise Invalid(f"No threshold is called {', '.join(unknown[:5])}. Settings, Rules & thresholds, lists them all.")
    for name, value in thresholds.items():
        if not (math.isfinite(value) and value >= 0):
            raise Invalid(f"{name} = {value:g} is no threshold: give a number from 0 up, in {known[name].unit}.")
    if all(known[name].value == value for name, value in thresholds.items()):
        raise Invalid("These are the values in force already; change at least one.")


def _task(session: Session, watch: Watch, number: int) -> Task:
    row = tasks.by_id(session, watch.cluster, number)
    if row is None:
        raise Missing(f"No backtest {number} in cluster {watch.cluster}.")
    return row


def cancel(watch: Watch, person: Person, number: int) -> Task:
    """Stop it; what runs ends within seconds. Raises Missing, and Conflict where it is over."""
    with writing(watch, person, "operator", "cancel backtest", f"backtest {number}") as session:
        row = _task(session, watch, number)
        if row.state not in tasks.OPEN:
            raise Conflict(f"Backtest {number} is {row.state} already.")
        row.cancelled_by = row.cancelled_by or person.name
        if row.state == "waiting":
            row.state, row.ended_at = "cancelled", watch.clock.now()
        session.add(row)
        return row


def adopt(watch: Watch, person: Person, number: int, reason: str = "") -> Task:
    """Put the thresholds that it tried in force, over the configuration, now and after each start. An admin's; Conflict
    where it is not done or adopted already."""
    with writing(watch, person, "admin", "adopt backtest", f"backtest {number}", why=reason.strip()) as session:
        row = _task(session, watch, number)
        if row.state != "done":
            raise Conflict(f"Backtest {number} is {row.state}: only what was tried to its end is adopted.")
        if row.adopted_at is not None:
            raise Conflict(f"Backtest {number} is adopted already, by {row.adopted_by}.")
        row.adopted_at, row.adopted_by = watch.clock.now(), person.name
        session.add(row)
        return row


def withdraw(watch: Watch, person: Person, number: int, reason: str = "") -> Task:
    """Take its thresholds out of force again. An admin's; Conflict where it is not adopted."""
    with writing(watch, person, "admin", "withdraw backtest", f"backtest {number}", why=reason.strip()) as session:
        row = _task(session, watch, number)
        if row.adopted_at is None:
            raise Conflict(f"Backtest {number} is not adopted; there is nothing to withdraw.")
        row.adopted_at, row.adopted_by = None, ""
        session.add(row)
        return row
