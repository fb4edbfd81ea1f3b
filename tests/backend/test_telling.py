"""What an incident says over its life: opened once, closed once, a change once a revision, and quietly where quiet."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlmodel import select

from backend import telling, writes
from backend.clock import ManualClock
from backend.model.incidents import Incident
from backend.model.messages import Message
from backend.store import messages
from backend.store.engine import Store
from detectors.model import Severity
from tests.backend.bench import APPROVER, Bench

CHANNELS = ("email", "slack")


@pytest.fixture
def bench(sqlite_store: Store, clock: ManualClock) -> Bench:
    made = Bench(sqlite_store, clock)
    made.watch.rules = replace(made.watch.rules, channels=CHANNELS, url="https://watch.test")
    made.ticks(3)
    return made


def said(bench: Bench) -> list[tuple[str, int]]:
    """Kind and revision of every message of the one incident."""
    with bench.watch.store.read() as session:
        found = messages.of_incident(session, "main", bench.incident().id or 0)
        return [(m.kind, m.revision) for m in found]


def sent_to(bench: Bench) -> list[tuple[str, str]]:
    """Kind and channel of every delivery of the one incident."""
    with bench.watch.store.read() as session:
        found = messages.deliveries_of(session, "main", bench.incident().id or 0)
        return [(message.kind, delivery.channel) for message, delivery in found]


def lost(bench: Bench) -> str:
    node = bench.busy_node()
    bench.xid(node, 3, 79)
    bench.turn()
    return node


def announced(bench: Bench, kind: str, revision: int = 0, severity: Severity | None = None) -> None:
    """Say it as the rooms do, about an incident that has grown by so many revisions."""
    with bench.watch.store.write() as session:
        row = session.get_one(Incident, bench.incident().id)
        row.revision += revision
        row.severity = severity.word if severity is not None else row.severity
        session.add(row)
        telling.announce(session, bench.watch, row, None, kind)  # type: ignore[arg-type]  # one of three words


def test_one_message_opens_it_with_the_plan_in_it(bench: Bench) -> None:
    lost(bench)
    assert said(bench) == [("opened", 0)]
    assert sent_to(bench) == [("opened", "email"), ("opened", "slack")]
    with bench.watch.store.read() as session:
        (row,) = messages.of_incident(session, "main", bench.incident().id or 0)
    assert row.body["advice"].endswith("It waits for an approver.")
    assert row.body["url"] == f"https://watch.test/incidents/{bench.incident().id}"


def test_more_evidence_opens_nothing_again(bench: Bench) -> None:
    node = lost(bench)
    bench.ticks(4, silent={(node, 3)})
    assert bench.incident().revision > 1
    assert said(bench) == [("opened", 0)]


def test_over_its_whole_life_it_is_opened_once_and_closed_once(bench: Bench) -> None:
    node = lost(bench)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.turn()
    bench.ticks(3, silent={(node, 3)})
    bench.ticks(20)
    assert bench.incident().state == "resolved"
    kinds = [kind for kind, _ in said(bench)]
    assert (kinds.count("opened"), kinds.count("closed"), kinds[0], kinds[-1]) == (1, 1, "opened", "closed")
    assert [kind for kind, channel in sent_to(bench) if channel == "slack"] == ["opened", "closed"]


def test_a_change_is_told_once_a_revision(bench: Bench) -> None:
    lost(bench)
    announced(bench, "changed")
    announced(bench, "changed")
    announced(bench, "changed", revision=1)
    changed = [revision for kind, revision in said(bench) if kind == "changed"]
    assert changed == [1, 2]


def test_below_the_floor_nothing_is_delivered_but_the_row_is_kept(bench: Bench) -> None:
    bench.watch.rules = replace(bench.watch.rules, notify_from=Severity.CRITICAL)
    bench.ticks(6, silent={(bench.busy_node(), 3)})  # a GPU that only fell silent: high
    assert bench.incident().severity == "high"
    assert said(bench) == [("opened", 0)]
    assert sent_to(bench) == []


def test_an_incident_that_opened_quietly_is_told_once_it_grows_loud(bench: Bench) -> None:
    bench.watch.rules = replace(bench.watch.rules, notify_from=Severity.CRITICAL)
    node = bench.busy_node()
    bench.ticks(6, silent={(node, 3)})
    bench.xid(node, 3, 79)
    bench.turn()
    assert bench.incident().severity == "critical"
    assert sent_to(bench) == [("opened", "email"), ("opened", "slack")]
    with bench.watch.store.read() as session:
        told = messages.of_incident(session, "main", bench.incident().id or 0)[-1]
    assert told.body["why"] == "It opened quietly and is critical now."
    bench.ticks(3, silent={(node, 3)})
    assert len(sent_to(bench)) == 2


def test_a_quiet_incident_closes_quietly(bench: Bench) -> None:
    bench.watch.rules = replace(bench.watch.rules, notify_from=Severity.CRITICAL)
    bench.ticks(6, silent={(bench.busy_node(), 3)})
    bench.ticks(20)
    assert bench.incident().state == "resolved"
    assert [kind for kind, _ in said(bench)] == ["opened", "closed"]
    assert sent_to(bench) == []


def test_a_message_stands_or_falls_with_what_made_it_true(bench: Bench) -> None:
    lost(bench)
    with pytest.raises(ZeroDivisionError), bench.watch.store.write() as session:
        row = session.get_one(Incident, bench.incident().id)
        telling.announce(session, bench.watch, row, None, "closed")
        raise ZeroDivisionError
    assert said(bench) == [("opened", 0)]


def test_every_incident_has_its_own_thread(bench: Bench) -> None:
    for run in (0, 1):
        bench.xid(bench.busy_node(run), 3, 79)
        bench.turn()
        bench.clock.set(bench.clock.now() + timedelta(seconds=1))
    first, second = bench.incidents()
    with bench.watch.store.read() as session:
        threads = {messages.of_incident(session, "main", i.id or 0)[0].body["thread"] for i in (first, second)}
        assert len(session.exec(select(Message)).all()) == 2
    assert threads == {f"main-inc-{first.id}", f"main-inc-{second.id}"}
