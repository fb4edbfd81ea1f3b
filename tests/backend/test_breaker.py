"""A fleet that breaks as a whole: nothing is taken out, one incident says so, one message goes, a person resets."""

from __future__ import annotations

import pytest
from sqlmodel import select

from backend import breaker, writes
from backend.auth import Person
from backend.clock import ManualClock
from backend.model.actions import Decision
from backend.model.messages import Message
from backend.proposals import Conflict, Refused
from backend.store import system
from backend.store.engine import Store
from backend.writes import Forbidden
from tests.backend.bench import APPROVER, Bench

ADMIN = Person("root", "admin")


def storm(bench: Bench, share: float) -> list[str]:
    """So many nodes lose a GPU in the same minute, codes and silence both."""
    nodes = [machine.name for machine in bench.world.site.machines]
    hit = nodes[: round(share * len(nodes))]
    for node in hit:
        bench.xid(node, 3, 79)
    bench.turn()
    bench.ticks(2, silent={(node, 3) for node in hit})
    return hit


def told(bench: Bench) -> list[str]:
    with bench.watch.store.read() as session:
        rows = session.exec(select(Message)).all()
    return [row.kind for row in rows]


@pytest.mark.parametrize("mode", ["act", "propose"])
def test_when_sixty_percent_fail_the_breaker_holds_and_one_incident_says_so(
    sqlite_store: Store, clock: ManualClock, mode: str
) -> None:
    bench = Bench(sqlite_store, clock, mode=mode)  # type: ignore[arg-type]
    bench.ticks(3)
    hit = storm(bench, 0.6)
    assert bench.orders() == [] and bench.exclusions() == []
    assert not any(bench.backend.read(node).out for node in hit)
    loud = [row for row in bench.incidents() if row.kind == breaker.KIND]
    assert len(loud) == 1 and "29 nodes of 48" in loud[0].headline
    assert set(loud[0].victims) == set(hit)
    assert told(bench) == ["opened"], "one message, not one a node"


def test_an_approver_cannot_approve_past_it_and_only_an_admin_resets_it(
    sqlite_store: Store, clock: ManualClock
) -> None:
    bench = Bench(sqlite_store, clock)
    bench.ticks(3)
    storm(bench, 0.6)
    with bench.watch.store.read() as session:
        waiting = session.exec(select(Decision).where(Decision.state == "proposed")).first()
    assert waiting is not None
    with pytest.raises(Refused, match="breaker"):
        writes.approve(bench.watch, waiting.id or 0, APPROVER)
    with pytest.raises(Forbidden):
        writes.reset_breaker(bench.watch, APPROVER, "the leaf is back")
    assert "29 nodes" in writes.reset_breaker(bench.watch, ADMIN, "the leaf is back")
    bench.turn()
    loud = [row for row in bench.incidents() if row.kind == breaker.KIND]
    assert [row.state for row in loud] == ["resolved"], "and what broke before the reset does not trip it again"
    with pytest.raises(Conflict):
        writes.reset_breaker(bench.watch, ADMIN, "the leaf is back")


def test_it_stays_tripped_over_a_restart_and_when_all_is_well_again(sqlite_store: Store, clock: ManualClock) -> None:
    bench = Bench(sqlite_store, clock)
    bench.ticks(3)
    storm(bench, 0.6)
    bench.restart()
    bench.ticks(30)
    with bench.watch.store.read() as session:
        assert system.breaker(session, "main")
    assert [row.state for row in bench.incidents() if row.kind == breaker.KIND] == ["open"]


def test_a_few_broken_nodes_trip_nothing(sqlite_store: Store, clock: ManualClock) -> None:
    bench = Bench(sqlite_store, clock)
    bench.ticks(3)
    storm(bench, 0.08)
    with bench.watch.store.read() as session:
        assert system.breaker(session, "main") == ""
