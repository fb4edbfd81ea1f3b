"""Of many who claim one row, exactly one wins, on both databases."""

from __future__ import annotations

import threading

import pytest

from backend.model.cluster import Cluster
from backend.model.events import Cursor
from backend.model.messages import Delivery
from backend.store.claims import claim
from backend.store.engine import Store
from tests.conftest import NOW


def waiting(store: Store) -> int:
    with store.write() as session:
        row = Delivery(cluster="main", message_id=1, incident_id=1, channel="email", not_before=NOW)
        session.add(row)
    assert row.id is not None
    return row.id


def test_of_eight_claimers_one_wins(store: Store) -> None:
    row_id = waiting(store)
    start = threading.Barrier(8)
    won: list[str] = []
    lost: list[str] = []

    def try_it(name: str) -> None:
        start.wait(20)
        with store.write() as session:
            mine = claim(session, Delivery, row_id, {"state": "waiting"}, {"state": "claimed", "claimed_by": name})
        (won if mine else lost).append(name)

    threads = [threading.Thread(target=try_it, args=(f"worker-{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(won) == 1 and len(lost) == 7
    with store.read() as session:
        row = session.get_one(Delivery, row_id)
        assert (row.state, row.claimed_by) == ("claimed", won[0])


def test_of_eight_processes_worth_of_stores_one_wins(sqlite_store: Store) -> None:
    """Each with its own connections and lock, as processes have them: only the file's lock is between them."""
    from backend.store.engine import open_store

    row_id = waiting(sqlite_store)
    stores = [open_store("", sqlite_store.folder) for _ in range(4)]
    start = threading.Barrier(4)
    won: list[Store] = []

    def try_it(store: Store) -> None:
        start.wait(20)
        with store.write() as session:
            if claim(session, Delivery, row_id, {"state": "waiting"}, {"state": "claimed"}):
                won.append(store)

    threads = [threading.Thread(target=try_it, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for store in stores:
        store.close()
    assert len(won) == 1


def test_a_held_row_shows_the_claim(store: Store) -> None:
    row_id = waiting(store)
    with store.write() as session:
        row = session.get_one(Delivery, row_id)
        row.attempts = 3  # not flushed yet
        assert claim(session, Delivery, row_id, {"state": "waiting", "attempts": 3}, {"state": "claimed"})
        assert row.state == "claimed" and row.attempts == 3


def test_null_and_any_of_can_be_expected(store: Store) -> None:
    row_id = waiting(store)
    with store.write() as session:
        assert not claim(session, Delivery, row_id, {"lease_until": NOW}, {"state": "sent"})
        assert claim(session, Delivery, row_id, {"lease_until": None}, {"lease_until": NOW})
        assert claim(
            session, Delivery, row_id, {"state": ("waiting", "claimed"), "lease_until": NOW}, {"state": "sent"}
        )
        assert not claim(session, Delivery, row_id, {"state": ("waiting", "claimed")}, {"state": "dead"})


def test_a_row_that_is_gone_is_lost_not_an_error(store: Store) -> None:
    with store.write() as session:
        assert not claim(session, Delivery, 404, {}, {"state": "sent"})


def test_a_key_of_several_columns_is_a_tuple(store: Store) -> None:
    with store.write() as session:
        session.add(Cursor(cluster="main", name="events", position=7))
        session.flush()
        assert claim(session, Cursor, ("main", "events"), {"position": 7}, {"position": 9})
        assert not claim(session, Cursor, ("main", "events"), {"position": 7}, {"position": 8})
        with pytest.raises(ValueError, match="keyed by cluster, name"):
            claim(session, Cursor, "events", {}, {"position": 1})


def test_an_unknown_column_is_named(store: Store) -> None:
    with store.write() as session, pytest.raises(ValueError, match="Cluster has no column 'colour'"):
        claim(session, Cluster, "main", {}, {"colour": "red"})
