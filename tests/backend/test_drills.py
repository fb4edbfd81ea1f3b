"""A drill goes the whole way and touches nothing: not the cluster, not what keeps work away, not a report."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import select

from backend import advising, sweeps, writes
from backend.answers.fleet_state import Sight, fleet_state
from backend.answers.hardware import hardware
from backend.clock import ManualClock
from backend.facts import Mode
from backend.model.incidents import Incident
from backend.model.messages import Message
from backend.proposals import Conflict
from backend.rollups import gather
from backend.store import actions, alerts, cluster, incidents, owning
from backend.store.engine import Store
from backend.writes import Forbidden, Invalid, Missing
from tests.backend.bench import APPROVER, OPERATOR, Bench


def bench_in(store: Store, clock: ManualClock, mode: Mode) -> Bench:
    made = Bench(store, clock, mode=mode)
    made.ticks(3)
    return made


@pytest.mark.parametrize("mode", ["propose", "act"])
def test_it_is_decided_judged_and_claimed_and_nothing_is_sent(
    sqlite_store: Store, clock: ManualClock, mode: Mode
) -> None:
    bench = bench_in(sqlite_store, clock, mode)
    node = bench.busy_node()
    before = bench.backend.read(node)
    writes.drill(bench.watch, "gpu_bus_loss", node, APPROVER)
    bench.turn()
    if mode == "propose":
        writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.ticks(1)
    said = [(order.verb, order.state) for order in bench.orders()]
    assert said == [("drain", "cancelled"), ("requeue", "cancelled")]
    assert all(order.outcome.startswith("A drill: every guard held") and order.guards for order in bench.orders())
    after = bench.backend.read(node)
    assert (after.flags, after.reason, after.jobs) == (before.flags, before.reason, before.jobs)
    assert not bench.exclusions()
    with bench.watch.store.read() as session:
        assert not actions.standing_drains(session, "main", node)
        assert not incidents.struck(session, "main", clock.now().replace(year=2020))
        assert not gather._incidents(session, "main", clock.now().replace(year=2020)), "no report counts it"
        texts = [str(row.body) for row in session.exec(select(Message)).all()]
    assert texts and all("Drill by ada" in text for text in texts), "every message says that it is a drill"
    bench.ticks(10)
    assert bench.incident().state == "resolved", "it closes by itself"


def test_a_real_fault_on_the_same_node_has_its_own_incident(sqlite_store: Store, clock: ManualClock) -> None:
    bench = bench_in(sqlite_store, clock, "propose")
    node = bench.busy_node()
    writes.drill(bench.watch, "gpu_bus_loss", node, APPROVER)
    bench.xid(node, 3, 79)
    bench.turn()
    bench.ticks(2, silent={(node, 3)})
    assert sorted(bool(row.drill) for row in bench.incidents()) == [False, True]


def test_the_end_of_a_drill_mends_no_real_fault_of_its_node(sqlite_store: Store, clock: ManualClock) -> None:
    bench = bench_in(sqlite_store, clock, "act")
    node = bench.busy_node()
    drilled = writes.drill(bench.watch, "gpu_ecc_uncorrectable", node, APPROVER)
    bench.xid(node, 3, 79)
    bench.turn()
    bench.ticks(2)
    assert bench.backend.read(node).out
    writes.resolve(bench.watch, drilled.id or 0, APPROVER)
    bench.ticks(8)
    real = next(row for row in bench.incidents() if not row.drill)
    assert any("kernel/xid" in key for key in bench.held()) and real.state != "resolved"
    assert bench.backend.read(node).out and [row.incident_id for row in bench.exclusions()] == [real.id]


def test_resolving_one_fault_leaves_another_of_the_same_node(sqlite_store: Store, clock: ManualClock) -> None:
    bench = bench_in(sqlite_store, clock, "propose")
    node = bench.busy_node()
    bench.xid(node, 3, 79)
    bench.ticks(2)
    with bench.watch.turn() as session:
        checked = sweeps.raised(session, bench.watch, "host_hardware", node, f"A check of {node} failed.")
    writes.resolve(bench.watch, checked.id or 0, APPROVER)
    bench.ticks(8)
    states = {row.kind: row.state for row in bench.incidents()}
    assert states["host_hardware"] == "resolved" and states["gpu_bus_loss"] != "resolved"


def test_nobody_is_told_of_a_drill_but_who_decides_on_it(sqlite_store: Store, clock: ManualClock) -> None:
    bench = bench_in(sqlite_store, clock, "propose")
    node = bench.busy_node()
    drilled = writes.drill(bench.watch, "gpu_bus_loss", node, APPROVER)
    now = clock.now()
    week, soon = now - timedelta(days=7), now + timedelta(seconds=1)
    with bench.watch.store.read() as session:
        assert owning.incident_of(session, "main", bench.job_of(node), [node], now, 60.0, 60.0) is None
        (attempt,) = cluster.attempts(session, "main", [bench.job_of(node)])
        assert advising.troubles_of(session, "main", attempt, [node]) == []
        assert hardware(session, "main", {node}, week, soon).incidents == ()
        assert not [t for t in fleet_state(session, "main", now, Sight(600.0)).troubles if t.incident is not None]
        assert alerts.may_speak(session, "main", ["*"]) == [] and incidents.live_real(session, "main") == []
        later = Incident(**{**drilled.model_dump(exclude={"id"}), "drill": "", "opened_at": soon})
        assert alerts.openings(session, later, week) == ()


#: Who may see drills: what decides on one, carries it out and shows it, and the replay, which has none.
WITH_DRILLS = {
    "answers/node_history.py",
    "answers/pages.py",
    "breaker.py",
    "incidents/lifecycle.py",
    "pipeline.py",
    "proposals.py",
    "store/incidents.py",
    "sweeps.py",
    "web/fleet.py",
    "writes.py",
}
ASKS = re.compile(r"select\(Incident\)\.where\((?!col\(Incident\.id\))|incidents\.live\(|\blive_on\(")


def test_whoever_asks_for_incidents_asks_for_real_ones() -> None:
    root = Path(writes.__file__).parent
    asking = {str(file.relative_to(root)) for file in root.rglob("*.py") if ASKS.search(file.read_text("utf-8"))}
    assert asking <= WITH_DRILLS, "begin with store.incidents.real, or live_real"


def test_who_may_begin_one_and_of_what(sqlite_store: Store, clock: ManualClock) -> None:
    bench = bench_in(sqlite_store, clock, "propose")
    node = bench.busy_node()
    with pytest.raises(Forbidden):
        writes.drill(bench.watch, "gpu_bus_loss", node, OPERATOR)
    with pytest.raises(Invalid):
        writes.drill(bench.watch, "gremlins", node, APPROVER)
    with pytest.raises(Missing):
        writes.drill(bench.watch, "gpu_bus_loss", "nobody", APPROVER)
    writes.drill(bench.watch, "gpu_bus_loss", node, APPROVER)
    with pytest.raises(Conflict):
        writes.drill(bench.watch, "gpu_bus_loss", node, APPROVER)
