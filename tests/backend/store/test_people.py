"""People in the store: users, sessions, tokens, the counters of tries, and an audit chain that cannot fork."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from sqlalchemy import update
from sqlmodel import col

from backend.model.people import Audit
from backend.store import people
from backend.store.engine import Store
from tests.conftest import NOW


def added(store: Store, name: str = "ann", role: str = "approver") -> int:
    with store.write() as session:
        row = people.put_user(session, name, role, "hash", NOW)
    assert row.id is not None
    return row.id


def test_a_person_is_added_once_and_changed_after(store: Store) -> None:
    first = added(store)
    assert added(store, role="viewer") == first
    added(store, "bob")
    with store.read() as session:
        assert [(u.name, u.role) for u in people.users(session)] == [("ann", "viewer"), ("bob", "approver")]


@pytest.mark.parametrize("name", ["", " ann", "a\nb", "x" * 65, "nul\x00"])
def test_a_name_that_cannot_be_shown_is_refused(store: Store, name: str) -> None:
    with store.write() as session, pytest.raises(ValueError, match="1 to 64 printable"):
        people.put_user(session, name, "viewer", "hash", NOW)


def test_an_unknown_role_is_refused(store: Store) -> None:
    with store.write() as session, pytest.raises(ValueError, match="no role 'root'"):
        people.ensure_user(session, "ann", "root", NOW)


def test_a_person_made_sure_of_keeps_password_and_sessions(store: Store) -> None:
    user_id = added(store)
    with store.write() as session:
        people.add_session(session, user_id, "h", "c", NOW, 60)
        row = people.ensure_user(session, "ann", "viewer", NOW)
        assert (row.role, row.password_hash) == ("viewer", "hash")
        assert people.session_of(session, "h", NOW) is not None


def test_a_session_ends_by_time_by_sign_out_and_with_its_person(store: Store) -> None:
    user_id = added(store)
    with store.write() as session:
        for name in ("a", "b", "c"):
            people.add_session(session, user_id, name, "csrf", NOW, 60)
    later = NOW + timedelta(seconds=60)
    with store.write() as session:
        found = people.session_of(session, "a", NOW)
        assert found is not None and (found[0].csrf, found[1].name) == ("csrf", "ann")
        assert people.session_of(session, "a", later) is None
        assert people.end_session(session, "a") and not people.end_session(session, "a")
        assert people.session_of(session, "a", NOW) is None
        assert people.disable_user(session, "ann", NOW) and not people.disable_user(session, "nobody", NOW)
        assert people.session_of(session, "b", NOW) is None
    with store.write() as session:
        people.put_user(session, "ann", "viewer", "new", NOW)
        people.add_session(session, user_id, "d", "csrf", NOW, 60)
        assert people.session_of(session, "b", NOW) is None
        assert people.session_of(session, "d", NOW) is not None


def test_a_new_password_signs_out_everywhere(store: Store) -> None:
    user_id = added(store)
    with store.write() as session:
        people.add_session(session, user_id, "a", "csrf", NOW, 60)
    added(store)
    with store.read() as session:
        assert people.session_of(session, "a", NOW) is None


def test_sessions_that_ran_out_are_swept_at_the_next_sign_in(store: Store) -> None:
    user_id = added(store)
    with store.write() as session:
        people.add_session(session, user_id, "old", "csrf", NOW, 60)
    with store.write() as session:
        people.add_session(session, user_id, "new", "csrf", NOW + timedelta(seconds=61), 60)
    with store.write() as session:
        assert not people.end_session(session, "old")


def test_tries_are_counted_before_they_are_checked_and_the_account_waits(store: Store) -> None:
    user_id = added(store)

    def tried(after_s: float) -> float | None:
        at = NOW + timedelta(seconds=after_s)
        with store.write() as session:
            wait = people.count_try(session, user_id, at, 3, 100)
        return None if wait is None else (wait - NOW).total_seconds()

    assert [tried(0), tried(1), tried(2)] == [None, None, None]
    assert tried(3) == 102 and tried(101) == 102
    assert [tried(102), tried(103), tried(104)] == [None, None, None], "a lock that ran out gives a new round"
    assert tried(105) == 204
    with store.write() as session:
        people.clear_tries(session, user_id)
    assert tried(106) is None


def test_twenty_tries_at_once_get_no_more_than_the_limit(store: Store) -> None:
    user_id = added(store)
    let_through: list[int] = []

    def attempt(n: int) -> None:
        with store.write() as session:
            if people.count_try(session, user_id, NOW, 5, 100) is None:
                let_through.append(n)

    threads = [threading.Thread(target=attempt, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(let_through) == 5


def test_a_token_lives_until_it_is_revoked_or_runs_out(store: Store) -> None:
    with store.write() as session:
        keeps = people.add_token(session, "slurm prolog", "read", "h1", NOW)
        people.add_token(session, "old", "ingest", "h2", NOW, NOW + timedelta(seconds=1))
        assert keeps.id is not None
    with store.write() as session:
        assert people.token_by_hash(session, "h0", NOW) is None
        assert people.token_by_hash(session, "h2", NOW) is not None
        assert people.token_by_hash(session, "h2", NOW + timedelta(seconds=1)) is None
        assert people.revoke_token(session, keeps.id, NOW) and not people.revoke_token(session, keeps.id, NOW)
        assert people.token_by_hash(session, "h1", NOW) is None
        assert [token.name for token in people.tokens(session)] == ["old", "slurm prolog"]


def test_the_use_of_a_token_is_kept_no_finer_than_an_hour(store: Store) -> None:
    with store.write() as session:
        row = people.add_token(session, "t", "read", "h", NOW)
        assert row.id is not None
        for minutes, kept in ((0, 0), (59, 0), (60, 60)):
            people.touch_token(session, row.id, NOW + timedelta(minutes=minutes))
            assert row.last_used_at == NOW + timedelta(minutes=kept)


@pytest.mark.parametrize(("name", "scope"), [("x", "root"), ("", "read"), ("a\n", "read")])
def test_a_token_needs_a_known_scope_and_a_name(store: Store, name: str, scope: str) -> None:
    with store.write() as session, pytest.raises(ValueError, match=r"scope|printable name"):
        people.add_token(session, name, scope, "h", NOW)


# --- audit ----------------------------------------------------------------------------------------------------------


def test_the_chain_of_many_writers_at_once_holds(store: Store) -> None:
    def work(n: int) -> None:
        for m in range(4):
            with store.write() as session:
                people.audit(
                    session, NOW, f"person {n}", "approve", f"decision {m}", {"n": n, "é": [float("nan"), NOW]}
                )

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with store.read() as session:
        assert people.first_broken_audit(session) is None
        rows = people.audits(session, limit=30)
        assert len(rows) == 24 and len({row.previous for row in rows}) == 24
        assert [row.id for row in people.audits(session, 2, before_id=rows[1].id)] == [rows[2].id, rows[3].id]


def test_a_row_changed_behind_our_back_shows(store: Store) -> None:
    with store.write() as session:
        rows = [people.audit(session, NOW, "ann", "approve", f"decision {n}") for n in range(4)]
    with store.write() as session:
        session.connection().execute(update(Audit).where(col(Audit.id) == rows[2].id).values(actor="bob"))
    with store.read() as session:
        assert people.first_broken_audit(session) == rows[2].id


def test_a_write_that_fails_leaves_no_audit_row(store: Store) -> None:
    with pytest.raises(KeyError), store.write() as session:
        people.audit(session, NOW, "ann", "approve", "x")
        raise KeyError
    with store.read() as session:
        assert not people.audits(session)
