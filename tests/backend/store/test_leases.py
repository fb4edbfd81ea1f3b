"""The lease of a cluster: one holder at a time, a term that counts up, and a fence before each commit."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from backend.store import leases
from backend.store.engine import Store
from tests.conftest import NOW

LONG, GONE = 60.0, -1.0


def take(store: Store, holder: str, length_s: float = LONG, now: datetime = NOW) -> int:
    with store.write() as session:
        return leases.take(session, "main", holder, f"{holder}:1", length_s, now)


def keep(store: Store, term: int) -> bool:
    with store.write() as session:
        return leases.keep(session, "main", term, LONG, NOW)


def test_one_holds_it_and_the_other_waits(store: Store) -> None:
    assert take(store, "one") == 1
    assert take(store, "two") == 0
    assert keep(store, 1)


def test_when_it_has_run_out_the_other_takes_it_and_the_first_learns_so(store: Store) -> None:
    assert take(store, "one", GONE) == 1
    assert take(store, "two") == 2
    assert not keep(store, 1) and keep(store, 2)


def test_the_same_replica_need_not_wait_for_its_own_last_life(store: Store) -> None:
    assert [take(store, "one"), take(store, "one")] == [1, 2]
    assert not keep(store, 1)


def test_who_gives_it_up_keeps_nobody_waiting(store: Store) -> None:
    take(store, "one")
    with store.write() as session:
        leases.give_up(session, "main", 1, NOW)
    assert take(store, "two", now=NOW + timedelta(seconds=1)) == 2


def test_giving_up_an_old_term_costs_the_new_holder_nothing(store: Store) -> None:
    take(store, "one", GONE)
    take(store, "two")
    with store.write() as session:
        leases.give_up(session, "main", 1, NOW)
    assert keep(store, 2)


def test_before_a_commit_the_old_term_is_stopped(store: Store) -> None:
    take(store, "one", GONE)
    take(store, "two")
    with store.write() as session:
        leases.still(session, "main", 2)
    with pytest.raises(leases.LeaseLost, match="term 2, ours was 1"), store.write() as session:
        leases.still(session, "main", 1)
