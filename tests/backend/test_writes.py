"""What people may change: each right, each refusal, and an audit row for everything that happened."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import text as sql
from sqlmodel import select

from backend import writes
from backend.answers import verdicts
from backend.auth import Person
from backend.cases import case_of
from backend.clock import ManualClock
from backend.model.actions import Decision, Exclusion, Order
from backend.model.incidents import Incident
from backend.model.people import Audit
from backend.proposals import Conflict, Refused
from backend.store import people, system
from backend.store.engine import Store
from backend.writes import NOTE_MAX, Forbidden, Invalid, Missing
from tests.backend.bench import APPROVER, OPERATOR, VIEWER, Bench

ADMIN = Person("root", "admin")
PEOPLE = {person.role: person for person in (VIEWER, OPERATOR, APPROVER, ADMIN)}
ROLES = tuple(PEOPLE)


def faulty(store: Store, clock: ManualClock) -> Bench:
    """A cluster with one lost GPU, whose plan waits."""
    bench = Bench(store, clock)
    bench.ticks(2)
    bench.xid(bench.busy_node(), 3, 79)
    bench.turn()
    return bench


@pytest.fixture
def bench(sqlite_store: Store, clock: ManualClock) -> Bench:
    return faulty(sqlite_store, clock)


def incident_id(bench: Bench) -> int:
    return bench.incident().id or 0


def exclusion(bench: Bench, origin: str = "person", owner: str = "bob") -> int:
    """A live exclusion of a node that is not the faulty one."""
    now = bench.clock.now()
    row = Exclusion(
        cluster="main",
        node=bench.busy_node(1),
        owner=owner,
        origin=origin,
        reason="riser swap",
        created_at=now,
        until=now + timedelta(hours=8),
    )
    with bench.watch.store.write() as session:
        session.add(row)
    return row.id or 0


def approved_order(bench: Bench) -> int:
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    return bench.orders()[0].id or 0


Write = Callable[[Bench, Person], object]
WRITES: dict[str, tuple[str, Write]] = {
    "acknowledge": ("operator", lambda b, who: writes.acknowledge(b.watch, incident_id(b), who)),
    "note": ("operator", lambda b, who: writes.add_note(b.watch, incident_id(b), who, "looked at it")),
    "resolve": ("operator", lambda b, who: writes.resolve(b.watch, incident_id(b), who)),
    "approve": ("approver", lambda b, who: writes.approve(b.watch, b.decision().id or 0, who)),
    "reject": ("approver", lambda b, who: writes.reject(b.watch, b.decision().id or 0, who)),
    "cancel": ("approver", lambda b, who: writes.cancel(b.watch, approved_order(b), who)),
    "exclude": (
        "operator",
        lambda b, who: writes.exclude(b.watch, b.busy_node(2), who, "riser", b.clock.now() + timedelta(hours=1)),
    ),
    "lift a person's": ("operator", lambda b, who: writes.lift(b.watch, exclusion(b), who)),
    "lift an approved one": ("approver", lambda b, who: writes.lift(b.watch, exclusion(b, "approved"), who)),
    "lift an automatic one": ("approver", lambda b, who: writes.lift(b.watch, exclusion(b, "act"), who)),
    "kill switch": ("admin", lambda b, who: writes.set_kill_switch(b.watch, True, who)),
}


def audited(bench: Bench) -> list[tuple[str, str]]:
    with bench.watch.store.read() as session:
        return [(row.actor, row.action) for row in session.exec(select(Audit))]


# --- rights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITES)
def test_a_write_needs_its_role_and_no_more(bench: Bench, name: str) -> None:
    least, write = WRITES[name]
    at = ROLES.index(least)
    if name != "cancel":  # its order has to be approved first, which is a write too
        for role in ROLES[:at]:
            with pytest.raises(Forbidden):
                write(bench, PEOPLE[role])
        assert audited(bench) == []
    write(bench, PEOPLE[least])
    assert audited(bench)[-1][0] == PEOPLE[least].name


@pytest.mark.parametrize("name", WRITES)
def test_an_admin_may_everything(bench: Bench, name: str) -> None:
    WRITES[name][1](bench, ADMIN)
    assert audited(bench)[-1][0] == "root"


def test_below_approver_no_waiting_order_is_cancelled(bench: Bench) -> None:
    order = approved_order(bench)
    for person in (VIEWER, OPERATOR):
        with pytest.raises(Forbidden) as refused:
            writes.cancel(bench.watch, order, person)
        assert person.role in str(refused.value) and "approver" in str(refused.value)
    assert bench.orders()[0].state == "waiting"


@pytest.mark.parametrize("role", ["", "ingest"])
def test_who_has_no_role_changes_nothing(bench: Bench, role: str) -> None:
    for name, (_, write) in WRITES.items():
        if name != "cancel":
            with pytest.raises(Forbidden):
                write(bench, Person("token:agent", role))
    assert audited(bench) == []


# --- the audit chain ------------------------------------------------------------------------------------------------


def test_every_write_leaves_its_row_and_the_chain_holds(store: Store, clock: ManualClock) -> None:
    bench = faulty(store, clock)
    number, now = incident_id(bench), clock.now()
    writes.acknowledge(bench.watch, number, OPERATOR)
    writes.add_note(bench.watch, number, OPERATOR, "I am on it")
    row = writes.exclude(bench.watch, bench.busy_node(1), OPERATOR, "riser", now + timedelta(hours=1))
    writes.lift(bench.watch, row.id or 0, OPERATOR, "done")
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    writes.cancel(bench.watch, bench.orders()[1].id or 0, APPROVER)
    writes.set_kill_switch(bench.watch, True, ADMIN)
    writes.set_kill_switch(bench.watch, False, ADMIN)
    writes.resolve(bench.watch, number, APPROVER)
    assert [action for _, action in audited(bench)] == [
        "acknowledge",
        "note",
        "exclude",
        "lift",
        "approve",
        "cancel",
        "kill switch on",
        "kill switch off",
        "resolve",
    ]
    with store.read() as session:
        assert people.first_broken_audit(session) is None


def test_a_changed_audit_row_shows(bench: Bench) -> None:
    for text in ("one", "two", "three"):
        writes.add_note(bench.watch, incident_id(bench), OPERATOR, text)
    with bench.watch.store.write() as session:
        session.connection().execute(sql("DROP TRIGGER audit_no_update"))  # as whoever owns the database can
        row = session.exec(select(Audit)).all()[1]
        row.actor = "nobody"
        session.add(row)
    with bench.watch.store.read() as session:
        assert people.first_broken_audit(session) == row.id


def test_a_write_that_is_refused_leaves_no_row(bench: Bench) -> None:
    writes.set_kill_switch(bench.watch, True, ADMIN)
    with pytest.raises(Refused):
        writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    assert [action for _, action in audited(bench)] == ["kill switch on"]
    assert bench.decision().state == "proposed"


# --- incidents ------------------------------------------------------------------------------------------------------


def test_the_first_who_acknowledges_has_it(bench: Bench) -> None:
    writes.acknowledge(bench.watch, incident_id(bench), OPERATOR)
    writes.acknowledge(bench.watch, incident_id(bench), APPROVER)
    row = bench.incident()
    assert (row.state, row.acknowledged_by, row.acknowledged_at) == ("acknowledged", "bob", bench.clock.now())
    assert bench.texts().count("bob has it.") == 1


@pytest.mark.parametrize("text", ["", " \n\t ", "x" * (NOTE_MAX + 1)])
def test_an_empty_note_and_one_that_is_too_long_are_refused(bench: Bench, text: str) -> None:
    with pytest.raises(Invalid, match="4,000"):
        writes.add_note(bench.watch, incident_id(bench), OPERATOR, text)
    assert audited(bench) == []


@pytest.mark.parametrize(("text", "kept"), [("x" * NOTE_MAX, "x" * NOTE_MAX), ("  <b>brief</b> \n", "<b>brief</b>")])
def test_a_note_is_kept_whole_word_for_word(bench: Bench, text: str, kept: str) -> None:
    writes.add_note(bench.watch, incident_id(bench), OPERATOR, text)
    assert bench.texts()[-1] == kept


def test_a_resolved_incident_takes_a_note_and_nothing_else(bench: Bench) -> None:
    number = incident_id(bench)
    writes.resolve(bench.watch, number, OPERATOR)
    assert bench.incident().state == "resolved"
    writes.add_note(bench.watch, number, OPERATOR, "It was the riser.")
    for write in (writes.acknowledge, writes.resolve):
        with pytest.raises(Conflict, match="already resolved"):
            write(bench.watch, number, APPROVER)


def test_what_is_not_there_is_said_so(bench: Bench) -> None:
    watch = bench.watch
    for write in (writes.acknowledge, writes.resolve, writes.approve, writes.reject, writes.cancel, writes.lift):
        with pytest.raises(Missing, match="999"):
            write(watch, 999, APPROVER)
    with pytest.raises(Missing):
        writes.add_note(watch, 999, APPROVER, "x")


def test_what_belongs_to_another_cluster_is_not_there(bench: Bench) -> None:
    lifted, order = exclusion(bench), approved_order(bench)
    decided, number = bench.decision().id or 0, incident_id(bench)
    with bench.watch.store.write() as session:
        for table, id_ in ((Incident, number), (Decision, decided), (Order, order), (Exclusion, lifted)):
            row = session.get_one(table, id_)
            row.cluster = "west"
            session.add(row)
    for write, id_ in (
        (writes.acknowledge, number),
        (writes.resolve, number),
        (writes.approve, decided),
        (writes.reject, decided),
        (writes.cancel, order),
        (writes.lift, lifted),
    ):
        with pytest.raises(Missing):
            write(bench.watch, id_, ADMIN)


# --- decisions and orders -------------------------------------------------------------------------------------------


def test_a_rejected_plan_cannot_be_approved_nor_the_other_way_round(bench: Bench) -> None:
    number = bench.decision().id or 0
    writes.reject(bench.watch, number, APPROVER, "not now")
    for write in (writes.approve, writes.reject):
        with pytest.raises(Conflict, match="rejected"):
            write(bench.watch, number, APPROVER)
    assert bench.orders() == [] and bench.exclusions() == []
    assert (bench.decision().decided_by, bench.decision().note) == ("ada", "not now")


def test_a_cancelled_order_takes_those_behind_it_along(bench: Bench) -> None:
    order = approved_order(bench)
    writes.cancel(bench.watch, order, APPROVER)
    bench.turn()
    assert [o.state for o in bench.orders()] == ["cancelled", "cancelled"]
    assert not bench.backend.read(bench.busy_node()).out
    with pytest.raises(Conflict, match="cancelled"):
        writes.cancel(bench.watch, order, APPROVER)


def test_an_order_that_ran_cannot_be_cancelled(bench: Bench) -> None:
    order = approved_order(bench)
    bench.turn()
    with pytest.raises(Conflict, match="done"):
        writes.cancel(bench.watch, order, APPROVER)


# --- exclusions -----------------------------------------------------------------------------------------------------


def test_a_person_s_exclusion_binds_at_once_and_leaves_the_cluster_alone(bench: Bench) -> None:
    node, now = bench.busy_node(2), bench.clock.now()
    row = writes.exclude(bench.watch, node, OPERATOR, "  riser is swapped ", now + timedelta(hours=8))
    assert (row.origin, row.owner, row.reason) == ("person", "bob", "riser is swapped")
    with bench.watch.store.read() as session:
        found = verdicts.verdict(verdicts.snapshot(session, "main", now), node)
        case = case_of(session, bench.watch, bench.incident())
    assert (found.verdict, found.binding) == ("exclude", True)
    assert node in case.excluded
    assert not bench.backend.read(node).out and len(bench.orders()) == 0


def test_an_exclusion_ends_by_itself(bench: Bench) -> None:
    writes.exclude(bench.watch, bench.busy_node(2), OPERATOR, "riser", bench.clock.now() + timedelta(hours=1))
    assert len(bench.exclusions()) == 1
    bench.clock.set(bench.clock.now() + timedelta(hours=1))
    assert bench.exclusions() == []


def test_an_exclusion_without_a_reason_or_a_future_is_refused(bench: Bench) -> None:
    now = bench.clock.now()
    with pytest.raises(Invalid, match="until"):
        writes.exclude(bench.watch, "gpu-001", OPERATOR, "riser", now)
    with pytest.raises(Invalid, match="reason"):
        writes.exclude(bench.watch, "gpu-001", OPERATOR, " ", now + timedelta(hours=1))
    assert bench.exclusions() == []


def test_a_lifted_exclusion_no_longer_binds_and_is_not_lifted_twice(bench: Bench) -> None:
    number = exclusion(bench)
    row = writes.lift(bench.watch, number, OPERATOR, "swapped")
    assert (row.lifted_by, row.lift_reason, row.lifted_at) == ("bob", "swapped", bench.clock.now())
    assert bench.exclusions() == []
    with pytest.raises(Conflict, match="bob"):
        writes.lift(bench.watch, number, APPROVER)


# --- kill switch ----------------------------------------------------------------------------------------------------


def test_the_kill_switch_stops_approvals_until_it_is_released(bench: Bench) -> None:
    number = bench.decision().id or 0
    writes.set_kill_switch(bench.watch, True, ADMIN)
    with pytest.raises(Refused):
        writes.approve(bench.watch, number, APPROVER)
    with bench.watch.store.read() as session:
        assert system.kill_switch(session, "main")
    writes.set_kill_switch(bench.watch, False, ADMIN)
    bench.read_cluster()
    writes.approve(bench.watch, number, APPROVER)
    assert bench.decision().state == "approved"
