"""People in the store: users, sessions, tokens, the counters of tries, and an audit chain that cannot fork."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from sqlalchemy import delete, text, update
from sqlalchemy.exc import DBAPIError
from sqlmodel import col

from backend.model.people import Audit
from backend.store import people, tries
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

    def tried(after_s: float) -> float | None:
        at = NOW + timedelta(seconds=after_s)
        with store.write() as session:
            wait, _ = tries.count(session, "name:ann", at, 3, 100)
        return None if wait is None else (wait - NOW).total_seconds()

    assert [tried(0), tried(1), tried(2)] == [None, None, None]
    assert tried(3) == 102 and tried(101) == 102
    assert [tried(102), tried(103), tried(104)] == [None, None, None], "a lock that ran out gives a new round"
    assert tried(105) == 204
    with store.write() as session:
        tries.forget(session, "name:ann")
    assert tried(106) is None


def test_twenty_tries_at_once_get_no_more_than_the_limit(store: Store) -> None:
    let_through: list[int] = []

    def attempt(n: int) -> None:
        with store.write() as session:
            if tries.count(session, "name:ann", NOW, 5, 100)[0] is None:
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


def test_when_tokens_were_last_in_use_is_kept(store: Store) -> None:
    with store.write() as session:
        made = [people.add_token(session, f"t{n}", "read", f"h{n}", NOW).id for n in range(3)]
    later = NOW + timedelta(minutes=5)
    with store.write() as session:
        people.touch_tokens(session, {made[0] or 0: NOW, made[1] or 0: later})
    with store.read() as session:
        assert [row.last_used_at for row in people.tokens(session)] == [NOW, later, None]


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
    with pytest.raises(DBAPIError, match="append-only"), store.write() as session:
        session.connection().execute(update(Audit).where(col(Audit.id) == rows[2].id).values(actor="bob"))
    unlocked(store)
    with store.write() as session:
        session.connection().execute(update(Audit).where(col(Audit.id) == rows[2].id).values(actor="bob"))
    with store.read() as session:
        assert people.first_broken_audit(session) == rows[2].id
        assert people.audit_flaw(session).startswith(f"Row {rows[2].id} is not as it was written")


def unlocked(store: Store) -> None:
    """What somebody who owns the database can do: the chain must show what they did then."""
    with store.write() as session:
        if store.dialect == "sqlite":
            session.connection().execute(text("DROP TRIGGER audit_no_update"))
            session.connection().execute(text("DROP TRIGGER audit_no_delete"))
        else:
            session.connection().execute(text("DROP TRIGGER audit_append_only ON audit"))


def test_a_row_taken_out_in_the_middle_or_at_the_end_or_moved_shows(store: Store) -> None:
    with store.write() as session:
        rows = [people.audit(session, NOW, "ann", "approve", f"decision {n}") for n in range(4)]
        assert people.audit_flaw(session) == ""
        assert people.audit_head(session) == (rows[3].id, rows[3].hash)
    with pytest.raises(DBAPIError, match="append-only"), store.write() as session:
        session.connection().execute(delete(Audit).where(col(Audit.id) == rows[3].id))
    unlocked(store)
    with store.write() as session:
        session.connection().execute(delete(Audit).where(col(Audit.id) == rows[3].id))
    with store.read() as session:
        assert "missing at the end" in people.audit_flaw(session)
    with store.write() as session:
        session.connection().execute(delete(Audit).where(col(Audit.id) == rows[1].id))
    with store.read() as session:
        assert people.audit_flaw(session).startswith(f"Row {rows[2].id} ")
    with store.write() as session:
        move = update(Audit).where(col(Audit.id) == rows[2].id).values(id=1000)
        session.connection().execute(move)
    with store.read() as session:
        assert people.audit_flaw(session).startswith("Row 1000 ")


def test_a_name_somebody_else_vouches_for_takes_no_account_over(store: Store) -> None:
    with store.write() as session:
        people.put_user(session, "ann", "admin", "hash", NOW)
        with pytest.raises(ValueError, match="another person named ann"):
            people.vouched_user(session, "oidc", "iss|1", "ann", "viewer", people.EVERYTHING, NOW)
        people.vouched_user(session, "oidc", "iss|2", "bob", "operator", people.Scope(projects=("atlas",)), NOW)
        for change in (
            lambda: people.put_user(session, "bob", "admin", "hash", NOW),
            lambda: people.set_role(session, "bob", "admin"),
        ):
            with pytest.raises(ValueError, match="oidc"):
                change()


def test_a_changed_role_ends_open_sessions(store: Store) -> None:
    user_id = added(store)
    with store.write() as session:
        people.add_session(session, user_id, "a", "csrf", NOW, 60)
        assert people.set_role(session, "ann", "viewer", people.Scope(clusters=("east",))) is not None
        assert people.set_role(session, "nobody", "viewer") is None
        assert not people.sessions_of(session, user_id, NOW)
        known = people.user(session, "ann")
        assert known is not None and (known.role, known.clusters) == ("viewer", ["east"])


def test_a_session_lasts_on_while_it_is_used_and_never_past_its_end(store: Store) -> None:
    user_id = added(store)
    with store.write() as session:
        row = people.add_session(session, user_id, "a", "csrf", NOW, 100, 30)
        assert row.expires_at == NOW + timedelta(seconds=30)
        people.use_session(session, row, NOW + timedelta(seconds=20), 30)
        assert row.expires_at == NOW + timedelta(seconds=50)
        people.use_session(session, row, NOW + timedelta(seconds=45), 300)
        assert row.expires_at == row.ends_at == NOW + timedelta(seconds=100)


def test_a_renewed_session_is_the_same_one_and_the_old_cookie_dies_soon(store: Store) -> None:
    user_id = added(store)
    with store.write() as session:
        row = people.add_session(session, user_id, "old", "csrf", NOW, 10_000)
        people.renew_session(session, row, "new", NOW)
    for after_s, old in ((59, True), (60, False)):
        with store.read() as session:
            at = NOW + timedelta(seconds=after_s)
            assert (people.session_of(session, "old", at) is not None) is old
            found = people.session_of(session, "new", at)
            assert (
                found is not None
                and found[0].csrf == "csrf"
                and found[0].ends_at == row.created_at + timedelta(seconds=10_000)
            )


def test_a_write_that_fails_leaves_no_audit_row(store: Store) -> None:
    with pytest.raises(KeyError), store.write() as session:
        people.audit(session, NOW, "ann", "approve", "x")
        raise KeyError
    with store.read() as session:
        assert not people.audits(session)
