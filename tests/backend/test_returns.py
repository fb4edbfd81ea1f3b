"""The way back: only what is seen and clear at that moment is given back, once, and by whoever keeps it out then."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from backend import orders, pipeline, writes
from backend.act.base import ActionError
from backend.auth import Person
from backend.clock import ManualClock
from backend.facts import NodeFacts
from backend.incidents import lifecycle
from backend.model.actions import Order
from backend.model.incidents import Incident
from backend.store import actions, incidents
from backend.store.claims import Conflict
from backend.store.engine import Store
from tests.backend.bench import APPROVER, Bench

ADMIN = Person("root", "admin")


@pytest.fixture
def bench(sqlite_store: Store, clock: ManualClock) -> Bench:
    made = Bench(sqlite_store, clock)
    made.ticks(3)
    return made


def drained(bench: Bench) -> str:
    """GPU 3 of a busy node is lost, its drain approved and done. Returns the node."""
    node = bench.busy_node()
    bench.xid(node, 3, 79)
    bench.turn()
    bench.ticks(3, silent={(node, 3)})
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.turn()
    bench.ticks(3, silent={(node, 3)})
    assert bench.backend.read(node).out
    return node


class Deaf:
    """A hand that does not answer while ``deaf``."""

    def __init__(self, hand: object) -> None:
        self._hand = hand
        self.deaf = True

    def __getattr__(self, name: str) -> object:
        return getattr(self._hand, name)

    def read(self, node: str) -> NodeFacts:
        if self.deaf:
            raise ActionError("the controller does not answer")
        found: NodeFacts = self._hand.read(node)  # type: ignore[attr-defined]  # any ClusterBackend
        return found


def resumes(bench: Bench) -> list[Order]:
    return [order for order in bench.orders() if order.verb == "resume"]


def ready_but_unanswered(bench: Bench, node: str) -> Deaf:
    """The node is clear, its resume is ordered, and the cluster does not answer."""
    deaf = Deaf(bench.backend)
    bench.watch.backend = deaf  # type: ignore[assignment]  # deaf on purpose
    for _ in range(40):
        bench.ticks(1)
        if resumes(bench):
            break
    assert [order.state for order in resumes(bench)] == ["waiting"]
    return deaf


def test_a_resume_that_waits_is_not_sent_once_the_fault_is_back(bench: Bench) -> None:
    node = drained(bench)
    deaf = ready_but_unanswered(bench, node)
    bench.xid(node, 3, 79)
    bench.turn()
    deaf.deaf = False
    bench.ticks(3, silent={(node, 3)})
    assert bench.backend.read(node).out
    assert resumes(bench)[0].state == "refused"
    bench.ticks(40)
    assert not bench.backend.read(node).out
    assert bench.incident().state == "resolved"


def test_a_resume_that_waits_is_not_sent_while_its_node_is_dark(bench: Bench) -> None:
    node = drained(bench)
    deaf = ready_but_unanswered(bench, node)
    bench.watch.backend = None
    bench.ticks(4, dark={node})
    bench.watch.backend, deaf.deaf = deaf, False  # type: ignore[assignment]  # answers again
    bench.ticks(2, dark={node})
    assert bench.backend.read(node).out


def test_what_a_person_gives_back_is_given_back_whatever_still_shows(bench: Bench) -> None:
    node = drained(bench)
    deaf = Deaf(bench.backend)
    bench.watch.backend = deaf  # type: ignore[assignment]  # deaf on purpose
    writes.resolve(bench.watch, bench.incident().id or 0, APPROVER)
    bench.ticks(1, silent={(node, 3)})
    deaf.deaf = False
    bench.ticks(2, silent={(node, 3)})
    assert not bench.backend.read(node).out


def test_a_night_with_the_kill_switch_on_leaves_one_refused_resume_not_hundreds(bench: Bench) -> None:
    node = drained(bench)
    writes.set_kill_switch(bench.watch, True, ADMIN)
    bench.ticks(60)
    assert [order.state for order in resumes(bench)] == ["refused"]
    writes.set_kill_switch(bench.watch, False, ADMIN)
    bench.ticks(8)
    assert not bench.backend.read(node).out


def test_a_clock_that_stepped_back_does_not_hide_a_drain(bench: Bench) -> None:
    """A drain that ended, by the clock, before the resume of the drain before it still stands."""
    now = bench.clock.now()
    row: dict[str, Any] = {
        "cluster": "main",
        "decision_id": 1,
        "incident_id": 1,
        "node": "gpu-009",
        "kind": "x",
        "reason": "r",
    }
    row |= {"state": "done", "created_at": now, "not_before": now}
    with bench.watch.store.write() as session:
        session.add(Order(id=1, key="a", verb="drain", ended_at=now, **row))
        session.add(Order(id=2, key="b", verb="resume", undoes_id=1, ended_at=now + timedelta(minutes=1), **row))
        session.add(Order(id=3, key="c", verb="drain", ended_at=now - timedelta(minutes=9), **row))
    with bench.watch.store.read() as session:
        assert [order.id for order in actions.standing_drains(session, "main", "gpu-009")] == [3]


def test_an_heir_that_gives_the_node_back_does_not_call_itself_mitigated(bench: Bench) -> None:
    node = drained(bench)
    bench.clock.set(bench.clock.now() + timedelta(hours=2))
    bench.ticks(2, silent={(node, 3)})
    bench.xid(node, 5, 79)
    bench.turn()
    bench.ticks(2, silent={(node, 3), (node, 5)})
    bench.ticks(30, silent={(node, 5)})
    bench.ticks(30)
    first, heir = bench.incidents()
    assert (first.state, heir.state) == ("resolved", "resolved")
    assert heir.mitigated_at is None
    with bench.watch.store.read() as session:
        assert "mitigated" not in [entry.what for entry in incidents.timeline(session, heir.id or 0)]


def test_what_is_given_back_is_looked_at_again_inside_the_write(bench: Bench) -> None:
    """The fault is back between the look for what is ready and the write that gives it back."""
    node = drained(bench)
    bench.watch.backend = None
    bench.ticks(20)
    for order in resumes(bench):
        with bench.watch.store.write() as session:
            session.delete(session.get_one(Order, order.id))
    bench.xid(node, 3, 79)
    incident = bench.incident()
    assert incident.clear_s >= bench.watch.rules.hold_s
    pipeline.observe(bench.watch)
    with bench.watch.turn() as session:
        assert not lifecycle.seen_clear(session.get_one(Incident, incident.id), bench.watch.rules.hold_s)
    assert orders.act(bench.watch) is False


def test_once_an_incident_is_closed_its_story_tells_the_plan_that_was_carried_out(bench: Bench) -> None:
    drained(bench)
    number = bench.incident().id or 0
    writes.resolve(bench.watch, number, ADMIN)
    bench.ticks(60)
    with bench.watch.store.read() as session:
        row = incidents.by_id(session, bench.watch.cluster, number)
        assert row is not None and row.closed_at is not None
        told = actions.told_decision(session, row)
        assert told is not None and told.plan and told.decided_by == APPROVER.name


def test_an_undo_that_cannot_be_sent_is_refused_and_lifts_nothing(sqlite_store: Store, clock: ManualClock) -> None:
    bench = Bench(sqlite_store, clock, mode="act")
    bench.ticks(3)
    node = bench.busy_node()
    bench.xid(node, 3, 79)
    bench.ticks(2)
    drain = next(order for order in bench.orders() if order.verb == "drain" and order.state == "done")
    acting, bench.watch.rules = bench.watch.rules, replace(bench.watch.rules, mode="observe")
    with pytest.raises(Conflict, match="observe"):
        writes.undo(bench.watch, drain.id or 0, APPROVER)
    assert bench.backend.read(node).out and [row.node for row in bench.exclusions()] == [node]
    bench.watch.rules = acting
    writes.undo(bench.watch, drain.id or 0, APPROVER)
    assert [row.node for row in bench.exclusions()] == [node], "it holds until the node is back"
    bench.turn()
    assert not bench.backend.read(node).out and bench.exclusions() == []
