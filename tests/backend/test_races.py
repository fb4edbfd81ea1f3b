"""Two who change the same thing at once: on PostgreSQL, where transactions do not wait for each other by themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import pytest

from backend import writes
from backend.clock import ManualClock
from backend.decide.guards import Limits
from backend.proposals import Conflict, Refused
from backend.store import actions
from backend.store.engine import Store
from tests.backend.bench import APPROVER, Bench

WAIT_S = 1.0


class Meeting(ManualClock):
    """A clock that keeps each thread waiting at one of its looks until another one is there too, or time is up."""

    def __init__(self, at: datetime, look: int) -> None:
        super().__init__(at)
        self._look = look
        self._seen = threading.local()
        self._barrier = threading.Barrier(2)

    def now(self) -> datetime:
        self._seen.count = getattr(self._seen, "count", 0) + 1
        if self._seen.count == self._look:
            with suppress(threading.BrokenBarrierError):
                self._barrier.wait(WAIT_S)
        return super().now()


@pytest.fixture
def bench(postgres_store: Store, clock: ManualClock) -> Iterator[Bench]:
    made = Bench(postgres_store, clock)
    made.ticks(3)
    yield made


def outcome(step: Callable[[], object]) -> str:
    try:
        step()
    except (Conflict, Refused) as said:
        return type(said).__name__
    return "done"


def both(first: Callable[[], object], second: Callable[[], object]) -> list[str]:
    with ThreadPoolExecutor(2) as pool:
        return [one.result(30) for one in [pool.submit(outcome, first), pool.submit(outcome, second)]]


@pytest.mark.services
def test_two_approvals_at_once_cannot_pass_the_breaker_together(bench: Bench) -> None:
    """Each alone would take out the one node that may be out; neither sees the other unless they take turns."""
    for run in (0, 1):
        bench.xid(bench.busy_node(run), 3, 79)
    bench.turn()
    with bench.watch.store.read() as session:
        waiting = [row.id or 0 for row in actions.proposed(session, "main")]
    assert len(waiting) == 2
    bench.watch.rules = replace(bench.watch.rules, limits=Limits(max_out_share=0.0, max_out_min=1))
    bench.watch.clock = Meeting(bench.clock.now(), look=2)
    said = both(*(lambda number=number: writes.approve(bench.watch, number, APPROVER) for number in waiting))
    assert sorted(said) == ["Refused", "done"]
    assert len(bench.exclusions()) == 1
