"""From an incident to the cluster and back, on the simulated hand: each border judged, each crash settled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from backend import orders, pipeline, proposals, writes
from backend.act.base import ActionError
from backend.act.dry_run import DryRunBackend
from backend.cases import case_of
from backend.clock import ManualClock
from backend.facts import OrderFacts, Outcome
from backend.model.actions import Order
from backend.proposals import Conflict, Refused
from backend.store.engine import Store
from backend.writes import Forbidden
from tests.backend.bench import APPROVER, OPERATOR, VIEWER, Bench


@pytest.fixture
def bench(sqlite_store: Store, clock: ManualClock) -> Bench:
    made = Bench(sqlite_store, clock)
    made.ticks(3)
    return made


def broken(bench: Bench) -> str:
    """GPU 3 of a busy node is lost: the kernel said so and its series are gone. Returns the node."""
    node = bench.busy_node()
    bench.xid(node, 3, 79)
    bench.turn()
    bench.ticks(3, silent={(node, 3)})
    return node


def test_a_lost_gpu_becomes_one_incident_and_one_plan_that_waits(bench: Bench) -> None:
    node = broken(bench)
    incident, decision = bench.incident(), bench.decision()
    assert (incident.kind, incident.entity_name, incident.state) == ("gpu_bus_loss", f"{node}/gpu3", "open")
    assert decision.state == "proposed"
    assert [step["verb"] for step in decision.plan] == [None, "drain", "requeue"]
    assert bench.orders() == []
    assert bench.exclusions() == []
    assert not bench.backend.read(node).out


def test_approval_drains_and_requeues_elsewhere_with_our_reason(bench: Bench) -> None:
    node = broken(bench)
    job = bench.job_of(node)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.turn()
    bench.ticks(3, silent={(node, 3)})
    read = bench.backend.read(node)
    assert read.reason == f"[watchkeeper] gpu_bus_loss gpu=3 inc={bench.incident().id}"
    assert [(o.verb, o.state) for o in bench.orders()] == [("drain", "done"), ("requeue", "done")]
    assert bench.world.scheduler.jobs[job].restart == 1
    assert node not in bench.world.scheduler.jobs[job].nodes
    assert [(e.node, e.origin) for e in bench.exclusions()] == [(node, "approved")]
    assert bench.incident().state == "mitigated"


def test_once_seen_and_clear_the_node_comes_back_and_the_incident_closes(bench: Bench) -> None:
    node = broken(bench)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.turn()
    bench.ticks(4, silent={(node, 3)})
    assert bench.incident().state == "mitigated"
    bench.ticks(20)
    incident = bench.incident()
    assert incident.state == "resolved"
    assert incident.closed_at is not None
    assert not bench.backend.read(node).out
    assert bench.exclusions() == []
    assert [(o.verb, o.state) for o in bench.orders()][-1] == ("resume", "done")


def test_blind_is_not_clear(bench: Bench) -> None:
    node = broken(bench)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.turn()
    bench.ticks(60, dark={node})
    assert bench.incident().state != "resolved"
    assert bench.backend.read(node).out


def test_observe_mode_binds_nobody_and_touches_nothing(sqlite_store: Store, clock: ManualClock) -> None:
    bench = Bench(sqlite_store, clock, mode="observe")
    bench.ticks(3)
    node = broken(bench)
    decision = bench.decision()
    assert decision.state == "observed"
    with pytest.raises(Conflict):
        writes.approve(bench.watch, decision.id or 0, APPROVER)
    bench.ticks(3, silent={(node, 3)})
    assert bench.orders() == []
    assert bench.exclusions() == []
    assert not bench.backend.read(node).out


def test_act_mode_acts_by_itself_and_says_so(sqlite_store: Store, clock: ManualClock) -> None:
    bench = Bench(sqlite_store, clock, mode="act")
    bench.ticks(3)
    node = broken(bench)
    assert bench.backend.read(node).out
    assert [e.origin for e in bench.exclusions()] == ["act"]


def test_a_viewer_and_an_operator_cannot_approve(bench: Bench) -> None:
    broken(bench)
    for person in (VIEWER, OPERATOR):
        with pytest.raises(Forbidden):
            writes.approve(bench.watch, bench.decision().id or 0, person)
    assert bench.decision().state == "proposed"


def test_two_approvals_make_one_set_of_orders(bench: Bench) -> None:
    broken(bench)
    number = bench.decision().id or 0
    writes.approve(bench.watch, number, APPROVER)
    with pytest.raises(Conflict):
        writes.approve(bench.watch, number, APPROVER)
    assert len(bench.orders()) == 2


def test_a_foreign_drain_between_proposal_and_click_refuses_the_click(bench: Bench) -> None:
    node = broken(bench)
    bench.world.scheduler.drain(node, "disk swap", "root")
    bench.read_cluster()
    with pytest.raises(Refused) as refused:
        writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    assert "root" in str(refused.value)
    assert bench.decision().state == "proposed"
    assert bench.exclusions() == []


def test_a_foreign_drain_between_click_and_claim_is_never_touched(bench: Bench) -> None:
    node = broken(bench)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.world.scheduler.drain(node, "disk swap", "root")
    bench.turn()
    assert bench.backend.read(node).reason == "disk swap"
    assert [o.state for o in bench.orders()] == ["refused", "cancelled"]


def test_the_kill_switch_between_click_and_claim_stops_the_order(bench: Bench) -> None:
    from backend.auth import Person

    node = broken(bench)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    writes.set_kill_switch(bench.watch, True, Person("root", "admin"))
    bench.turn()
    assert not bench.backend.read(node).out
    assert bench.orders()[0].state == "refused"


class DiesAfterTheCall:
    """A hand whose process is killed between the call and the outcome."""

    def __init__(self, hand: object) -> None:
        self._hand = hand

    def __getattr__(self, name: str) -> object:
        return getattr(self._hand, name)

    def perform(self, order: OrderFacts) -> Outcome:
        self._hand.perform(order)  # type: ignore[attr-defined]  # any ClusterBackend
        raise KeyboardInterrupt


def test_a_crash_after_the_call_is_settled_by_the_witness_and_never_sent_again(bench: Bench) -> None:
    node = broken(bench)
    job = bench.job_of(node)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.watch.backend = DiesAfterTheCall(bench.backend)  # type: ignore[assignment]  # dies on purpose
    with pytest.raises(KeyboardInterrupt):
        orders.act(bench.watch)
    assert bench.orders()[0].state == "sent"
    bench.restart()
    bench.turn()
    assert bench.orders()[0].state == "sent"  # the lease still holds: the other process may live
    bench.clock.set(bench.clock.now() + timedelta(seconds=31))
    bench.turn()
    bench.ticks(2, silent={(node, 3)})
    assert [o.state for o in bench.orders()] == ["done", "done"]
    assert [o.attempts for o in bench.orders()] == [1, 1]
    assert bench.world.scheduler.jobs[job].restart == 1


class NeverSettles(DiesAfterTheCall):
    def settle(self, order: OrderFacts) -> Outcome | None:
        raise ActionError("the job is gone from memory", permanent=True)


def test_what_no_witness_can_settle_becomes_uncertain_for_a_person(bench: Bench) -> None:
    broken(bench)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.watch.backend = NeverSettles(bench.backend)  # type: ignore[assignment]  # dies on purpose
    with pytest.raises(KeyboardInterrupt):
        orders.act(bench.watch)
    bench.clock.set(bench.clock.now() + timedelta(seconds=31))
    bench.turn()
    assert [o.state for o in bench.orders()] == ["uncertain", "cancelled"]
    assert "gone from memory" in bench.orders()[0].error


def test_a_crash_before_the_call_lets_the_order_wait_again(bench: Bench) -> None:
    node = broken(bench)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    claimed = orders._claim_next(bench.watch)
    assert claimed is not None
    bench.restart()
    bench.clock.set(bench.clock.now() + timedelta(seconds=31))
    bench.turn()
    assert bench.orders()[0].state == "done"
    assert bench.backend.read(node).out


def test_the_last_of_two_incidents_gives_their_node_back(bench: Bench) -> None:
    node = broken(bench)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.turn()
    bench.clock.set(bench.clock.now() + timedelta(hours=2))
    bench.ticks(2, silent={(node, 3)})
    bench.xid(node, 5, 79)
    bench.turn()
    bench.ticks(2, silent={(node, 3), (node, 5)})
    assert len(bench.incidents()) == 2
    bench.ticks(30, silent={(node, 5)})
    assert [i.state for i in bench.incidents()][0] == "resolved"
    assert bench.backend.read(node).out
    bench.ticks(30)
    assert [i.state for i in bench.incidents()] == ["resolved", "resolved"]


def test_rejecting_leaves_the_cluster_alone(bench: Bench) -> None:
    node = broken(bench)
    writes.reject(bench.watch, bench.decision().id or 0, APPROVER, "spare parts are here")
    bench.ticks(3, silent={(node, 3)})
    assert bench.decision().state == "rejected"
    assert bench.orders() == []
    assert "spare parts are here" in " ".join(bench.texts())


def test_resolving_gives_the_node_back_and_needs_an_approver_for_it(bench: Bench) -> None:
    node = broken(bench)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.turn()
    with pytest.raises(Forbidden):
        writes.resolve(bench.watch, bench.incident().id or 0, OPERATOR)
    writes.resolve(bench.watch, bench.incident().id or 0, APPROVER)
    bench.turn()
    assert not bench.backend.read(node).out


@pytest.fixture
def quiet(bench: Bench) -> Iterator[Bench]:
    yield bench


def test_a_quiet_cluster_stays_quiet(quiet: Bench) -> None:
    quiet.ticks(20)
    assert quiet.incidents() == []
    assert pipeline.observe(quiet.watch) is False


class NeverTakes(DiesAfterTheCall):
    """A cluster that does not answer the call, and where no witness shows that it was carried out."""

    def perform(self, order: OrderFacts) -> Outcome:
        raise ActionError("the controller timed out")

    def settle(self, order: OrderFacts) -> Outcome | None:
        return None


def test_an_order_that_the_cluster_never_takes_fails_in_the_end(bench: Bench) -> None:
    broken(bench)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.watch.backend = NeverTakes(bench.backend)  # type: ignore[assignment]  # never takes it, on purpose
    for _ in range(12):
        bench.clock.set(bench.clock.now() + timedelta(seconds=31))
        bench.read_cluster()
        bench.turn()
    assert [(o.state, o.attempts) for o in bench.orders()] == [("failed", 8), ("cancelled", 0)]
    assert "timed out" in bench.orders()[0].error


def test_orders_that_wait_for_others_do_not_keep_the_rest_from_going(bench: Bench) -> None:
    now = bench.clock.now()
    row: dict[str, Any] = {
        "cluster": "main",
        "decision_id": 1,
        "incident_id": 1,
        "node": "gpu-009",
        "kind": "x",
        "reason": "r",
    }
    row |= {"created_at": now, "not_before": now, "verb": "drain"}
    lease: dict[str, Any] = {"claimed_by": "another", "lease_until": now + timedelta(minutes=5)}
    with bench.watch.store.write() as session:
        session.add(Order(id=1, key="sent", state="sent", **row, **lease))
        for number in range(2, 40):
            session.add(Order(id=number, key=f"behind {number}", after_id=1, **row))
        session.add(Order(id=40, key="free", **row))
    claimed = orders._claim_next(bench.watch)
    assert claimed is not None and claimed.key == "free"


def test_one_job_that_cannot_be_requeued_does_not_keep_the_next_on_the_node(bench: Bench) -> None:
    broken(bench)
    decision, incident = bench.decision(), bench.incident()
    requeue = decision.plan[-1]
    with bench.watch.turn() as session:
        two = session.merge(decision)
        two.plan = [*decision.plan, {**requeue, "job": "another"}]
        proposals.enact(session, bench.watch, incident, two, origin="approved", actor="ada")
    drain, first, second = bench.orders()
    assert (first.after_id, second.after_id) == (drain.id, drain.id)


def test_a_dry_run_never_says_that_the_node_is_out(bench: Bench) -> None:
    broken(bench)
    bench.watch.backend = DryRunBackend(bench.backend.inventory)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.turn()
    assert [o.state for o in bench.orders()] == ["done", "done"]
    assert bench.incident().state == "open"


def test_act_mode_acts_once_a_passing_refusal_is_over(sqlite_store: Store, clock: ManualClock) -> None:
    """The state of the node was too old when the fault came: that is over with the next look at the cluster."""
    bench = Bench(sqlite_store, clock, mode="act")
    bench.ticks(3)
    node = bench.busy_node()
    bench.clock.set(bench.clock.now() + timedelta(minutes=2))
    bench.xid(node, 3, 79)
    bench.turn()
    assert bench.orders() == []
    assert bench.decision().state == "automatic"
    bench.clock.set(bench.clock.now() + timedelta(seconds=proposals.AGAIN_S))
    bench.read_cluster()
    bench.turn()
    assert bench.backend.read(node).out
    assert [o.verb for o in bench.orders()] == ["drain", "requeue"]


def test_a_plan_of_act_mode_that_is_judged_again_may_come_out_as_another(
    sqlite_store: Store, clock: ManualClock
) -> None:
    """The job has left the node while its state was too old to act on: only the drain is left to do."""
    bench = Bench(sqlite_store, clock, mode="act")
    bench.ticks(3)
    node = bench.busy_node()
    bench.clock.set(bench.clock.now() + timedelta(minutes=2))
    bench.xid(node, 3, 79)
    bench.turn()
    job = bench.world.scheduler.job_on(node)
    assert job is not None
    bench.world.scheduler.requeue(job, bench.now, bench.world.world_s, exclude=(node,))
    bench.clock.set(bench.clock.now() + timedelta(seconds=90))
    bench.read_cluster()
    bench.turn()
    assert [o.verb for o in bench.orders()] == ["drain"]


def test_a_decision_reads_the_gpus_of_its_own_node_only(bench: Bench) -> None:
    node = broken(bench)
    with bench.watch.store.read() as session:
        case = case_of(session, bench.watch, bench.incident())
    assert {facts.name for facts in case.fleet if facts.gpus} == {node}
    assert len(case.fleet) == 48 and bench.decision().blast["gpus"] > 8


def test_resolving_holds_although_the_sign_still_stands(bench: Bench) -> None:
    node = broken(bench)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.turn()
    bench.ticks(2, silent={(node, 3)})
    writes.resolve(bench.watch, bench.incident().id or 0, APPROVER)
    bench.ticks(3, silent={(node, 3)})
    assert bench.incident().state == "resolved"
    assert not bench.backend.read(node).out
    assert bench.exclusions() == []


def test_a_code_that_a_person_called_mended_does_not_come_back_by_itself(bench: Bench) -> None:
    node = bench.busy_node()
    bench.xid(node, 3, 79)
    bench.ticks(3)
    writes.resolve(bench.watch, bench.incident().id or 0, OPERATOR)
    bench.ticks(4)
    assert bench.incident().state == "resolved"
    assert not any("kernel/xid" in key for key in bench.held())


def test_a_gpu_that_fell_silent_before_a_restart_is_found_after_it(bench: Bench) -> None:
    node = bench.busy_node()
    bench.ticks(5)
    bench.ticks(1, silent={(node, 3)})
    bench.restart()
    bench.ticks(14, silent={(node, 3)})
    assert (bench.incident().kind, bench.incident().entity_name) == ("gpu_bus_loss", f"{node}/gpu3")


def test_another_mode_after_a_restart_decides_open_incidents_anew(sqlite_store: Store, clock: ManualClock) -> None:
    bench = Bench(sqlite_store, clock, mode="observe")
    bench.ticks(3)
    broken(bench)
    assert bench.decision().state == "observed"
    bench.watch.rules = replace(bench.watch.rules, mode="propose")
    bench.restart()
    assert proposals.reconsider(bench.watch) == 1
    bench.turn()
    assert bench.decision().state == "proposed"
    assert proposals.reconsider(bench.watch) == 0
