"""Queries about nodes and work that the inventory's tests do not reach."""

from __future__ import annotations

from datetime import timedelta

from backend.facts import AttemptFacts
from backend.model.cluster import Node
from backend.store import cluster as rows
from backend.store.attempts import AttemptsNow, holds, record_attempts
from backend.store.engine import Store
from backend.store.merging import merged
from tests.conftest import NOW

T = NOW.timestamp()


def test_a_cluster_is_made_once_and_keeps_its_kill_switch(store: Store) -> None:
    with store.write() as session:
        rows.ensure_cluster(session, "main").kill_switch = True
    with store.write() as session:
        row = rows.ensure_cluster(session, "main", simulated=True)
        assert row.kill_switch and row.simulated


def test_reading_when_a_node_was_last_heard_writes_nothing(store: Store) -> None:
    with store.write() as session:
        session.add(Node(cluster="main", name="n1", first_seen=NOW, last_seen=NOW))
        rows.mark(session, "main", rows.HEARD, NOW + timedelta(seconds=60))
    with store.write() as session:
        (row,) = rows.nodes(session, "main")
        assert row.last_seen == NOW + timedelta(seconds=60)
    with store.read() as session:
        kept = session.get_one(Node, ("main", "n1"))
        assert kept.last_seen == NOW


def test_what_holds_a_node_is_said_by_state_start_and_end() -> None:
    running = AttemptFacts("7", state="RUNNING", start=T, nodes=("n1",))
    assert holds(running)
    for state in ("PENDING", "COMPLETED", "REQUEUED", "CANCELLED"):
        assert not holds(AttemptFacts("7", state=state, start=T, nodes=("n1",)))
    assert not holds(AttemptFacts("7", state="RUNNING", nodes=("n1",)))
    assert merged(None, AttemptFacts("7", state="FAILED"), T).end == T
    assert merged(None, AttemptFacts("7", state="COMPLETED", end=T + 99), T).end == T
    assert merged(None, AttemptFacts("7", state="RUNNING", end=T + 99), T).end is None


def test_attempts_that_did_not_change_are_not_written_again() -> None:
    work = AttemptsNow()
    running = AttemptFacts("7", state="RUNNING", start=T, nodes=("n2", "n1"))
    assert len(work.news([running], (), T)) == 1
    assert work.news([running], (), T + 15) == []
    work.distrust()
    assert len(work.news([running], (), T + 30)) == 1


def test_a_whole_history_in_one_push_is_put_in_order(store: Store) -> None:
    history = [
        AttemptFacts("7", 2, state="RUNNING", submit=T - 90, start=T - 80, nodes=("n1",)),
        AttemptFacts("7", 0, state="NODE_FAIL", start=T - 300, end=T - 200, nodes=("n1", "n2")),
        AttemptFacts("7", 1, state="RUNNING", start=T - 190, nodes=("n2",)),
    ]
    with store.write() as session:
        record_attempts(session, "main", history, NOW)
    with store.read() as session:
        found = rows.attempts(session, "main", ["7"])
        spans = [(s.restart, s.node, s.end is None) for s in rows.allocations(session, "main", ["7"])]
        assert [a.restart for a in rows.running(session, "main")] == [2]
    assert [(a.restart, a.state) for a in found] == [(0, "NODE_FAIL"), (1, "REQUEUED"), (2, "RUNNING")]
    assert sorted(spans) == [(0, "n1", False), (0, "n2", False), (1, "n2", False), (2, "n1", True)]
    assert found[1].end is not None and found[1].end.timestamp() == T - 90
