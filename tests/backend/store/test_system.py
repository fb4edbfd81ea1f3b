"""Watchkeeper's own state: beats, cursors, a secret made once, the kill switch."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from backend.model.cluster import Cluster
from backend.store import system
from backend.store.engine import Store, open_store
from tests.conftest import NOW


def test_a_beat_keeps_the_first_failure_and_forgets_it_when_well_again(store: Store) -> None:
    at = [NOW + timedelta(seconds=n) for n in range(5)]
    with store.write() as session:
        system.beat_ok(session, "main", "source", "slurm", at[0], 0.1, {"nodes": 4}, every_s=15)
    with store.write() as session:
        system.beat_failed(session, "main", "source", "slurm", at[1], "down", every_s=15)
        beat = system.beat_failed(session, "main", "source", "slurm", at[2], "still \x00 down" + "x" * 5000)
        assert (beat.ok_at, beat.failing_since, beat.errors, beat.every_s) == (at[0], at[1], 2, 15)
        assert beat.error.startswith("still  down") and len(beat.error) <= system.LONGEST_ERROR
    with store.write() as session:
        beat = system.beat_ok(session, "main", "source", "slurm", at[3], 0.2, {})
        assert (beat.ok_at, beat.failing_since, beat.error, beat.errors) == (at[3], None, "", 2)


def test_a_source_that_never_answered_was_never_well(store: Store) -> None:
    with store.write() as session:
        assert system.beat_failed(session, "main", "source", "slurm", NOW, "down").ok_at is None


def test_beats_are_listed_by_cluster(store: Store) -> None:
    with store.write() as session:
        for cluster, name in (("b", "x"), ("a", "y"), ("a", "x"), ("", "follow")):
            system.beat_ok(session, cluster, "loop", name, NOW, 0.0, {})
    with store.read() as session:
        assert [(b.cluster, b.name) for b in system.beats(session)] == [
            ("", "follow"),
            ("a", "x"),
            ("a", "y"),
            ("b", "x"),
        ]
        assert [b.name for b in system.beats(session, "a")] == ["x", "y"]


def test_a_cursor_starts_at_nothing_and_stays_where_it_was_set(store: Store) -> None:
    with store.write() as session:
        assert system.cursor(session, "main", "events") == 0
        system.set_cursor(session, "main", "events", 7, NOW)
    with store.write() as session:
        system.set_cursor(session, "main", "events", 9, NOW)
        system.set_cursor(session, "other", "events", 1)
    with store.read() as session:
        assert (system.cursor(session, "main", "events"), system.cursor(session, "other", "events")) == (9, 1)


def test_the_secret_is_made_once(store: Store) -> None:
    with store.write() as session:
        first = system.secret(session, "tokens", NOW)
        assert len(first) == 32 and system.secret(session, "tokens", NOW) == first
    with store.write() as session:
        assert system.secret(session, "tokens", NOW) == first
        assert system.secret(session, "other", NOW) != first


def test_processes_that_start_together_agree_on_the_secret(store: Store) -> None:
    url = store.engine.url.render_as_string(hide_password=False)
    stores = [open_store(url, store.folder) for _ in range(4)]
    start = threading.Barrier(4)
    got: list[bytes] = []

    def first_start(own: Store) -> None:
        start.wait(20)
        with own.write() as session:
            got.append(system.secret(session, "tokens", NOW))

    threads = [threading.Thread(target=first_start, args=(own,)) for own in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for own in stores:
        own.close()
    assert len(got) == 4 and len(set(got)) == 1


def test_the_kill_switch_is_seen_at_once_and_says_who_threw_it(store: Store) -> None:
    with store.write() as session:
        session.add(Cluster(name="main"))
    with store.write() as session:
        assert not system.kill_switch(session, "main") and not system.kill_switch(session, "none")
        system.set_kill_switch(session, "main", True, "ann", NOW)
        assert system.kill_switch(session, "main")
    with store.read() as session:
        row = session.get_one(Cluster, "main")
        assert (row.kill_switch_by, row.kill_switch_at) == ("ann", NOW)
    with store.write() as session, pytest.raises(LookupError, match="no cluster 'none'"):
        system.set_kill_switch(session, "none", True, "ann", NOW)
