"""Sign-in and rights: who gets in, who waits, who may do what, and what counts as this very machine."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backend.auth import (
    LOCAL,
    RIGHTS,
    Person,
    SignInError,
    allows,
    is_loopback,
    may,
    person_of,
    sign_in,
    sign_in_as,
    sign_out,
    token_of,
)
from backend.model.people import Session
from backend.security import passwords, tokens
from backend.settings import Security
from backend.store import people
from backend.store.engine import Store
from tests.conftest import NOW

KEY = b"k" * 32
RULES = Security(session_s=100, lockout_after=3, lockout_s=50)
PASSWORD = "correct horse"


@pytest.fixture
def ann(sqlite_store: Store) -> Store:
    """A store with an approver named ann."""
    with sqlite_store.write() as session:
        people.put_user(session, "ann", "approver", passwords.hash_password(PASSWORD), NOW)
    return sqlite_store


def tried(store: Store, name: str, password: str, after_s: float = 0) -> str:
    return sign_in(store, RULES, name, password, NOW + timedelta(seconds=after_s), KEY)


def test_the_right_password_opens_a_session_that_knows_the_person(ann: Store) -> None:
    cookie = tried(ann, "ann", PASSWORD)
    with ann.read() as session:
        person = person_of(session, cookie, NOW, KEY)
        assert person is not None and (person.name, person.role) == ("ann", "approver") and len(person.csrf) > 20
        assert person_of(session, cookie + "x", NOW, KEY) is None
        assert person_of(session, cookie, NOW, b"other key") is None
        assert person_of(session, "", NOW, KEY) is None
        assert person_of(session, cookie, NOW + timedelta(seconds=100), KEY) is None


def test_the_cookie_itself_is_nowhere_in_the_database(ann: Store) -> None:
    cookie = tried(ann, "ann", PASSWORD)
    with ann.read() as session:
        assert cookie not in str(session.get_one(Session, tokens.hash_token(cookie, KEY)).model_dump())


def test_two_sign_ins_are_two_sessions_and_sign_out_ends_one(ann: Store) -> None:
    first, second = tried(ann, "ann", PASSWORD), tried(ann, "ann", PASSWORD)
    with ann.write() as session:
        assert sign_out(session, first, KEY) and not sign_out(session, first, KEY)
    with ann.read() as session:
        assert person_of(session, first, NOW, KEY) is None
        assert person_of(session, second, NOW, KEY) is not None


@pytest.mark.parametrize("name", ["nobody", "ann", "", "nul\x00", "x" * 10_000, "\ud800"])
def test_a_wrong_name_and_a_wrong_password_read_the_same(ann: Store, name: str) -> None:
    with pytest.raises(SignInError, match=r"^Name or password is wrong\.$"):
        tried(ann, name, "wrong")


def test_after_three_failures_the_account_waits_also_with_the_right_password(ann: Store) -> None:
    for n in range(3):
        with pytest.raises(SignInError, match="wrong"):
            tried(ann, "ann", "wrong", n)
    with pytest.raises(SignInError, match="wrong") as caught:
        tried(ann, "ann", PASSWORD, 10)
    assert caught.value.wait_s == 42
    with pytest.raises(SignInError) as nobody:
        tried(ann, "nobody", PASSWORD, 10)
    assert str(nobody.value) == str(caught.value), "who asks must not learn who has an account"
    assert tried(ann, "ann", PASSWORD, 52)


def test_a_right_password_forgets_the_failures_before_it(ann: Store) -> None:
    for _ in range(3):
        for _ in range(2):
            with pytest.raises(SignInError, match="wrong"):
                tried(ann, "ann", "wrong")
        assert tried(ann, "ann", PASSWORD)


def test_a_disabled_person_and_one_without_password_cannot_sign_in(ann: Store) -> None:
    cookie = tried(ann, "ann", PASSWORD)
    with ann.write() as session:
        people.disable_user(session, "ann", NOW)
        people.ensure_user(session, "demo", "approver", NOW)
    for name, password in (("ann", PASSWORD), ("demo", "")):
        with pytest.raises(SignInError, match="wrong"):
            tried(ann, name, password)
    with ann.read() as session:
        assert person_of(session, cookie, NOW, KEY) is None


def test_the_demo_signs_its_own_person_in(ann: Store) -> None:
    with ann.write() as session:
        people.ensure_user(session, "demo", "approver", NOW)
    cookie = sign_in_as(ann, RULES, "demo", NOW, KEY)
    with ann.read() as session:
        person = person_of(session, cookie, NOW, KEY)
    assert person is not None and person.name == "demo"
    with pytest.raises(SignInError, match="nobody named x"):
        sign_in_as(ann, RULES, "x", NOW, KEY)


def test_a_change_of_role_is_seen_by_open_sessions(ann: Store) -> None:
    cookie = tried(ann, "ann", PASSWORD)
    with ann.write() as session:
        people.ensure_user(session, "ann", "viewer", NOW)
    with ann.read() as session:
        person = person_of(session, cookie, NOW, KEY)
    assert person is not None and not allows(person, "approver")


def test_a_hash_of_older_parameters_is_renewed_at_sign_in(ann: Store) -> None:
    from argon2 import PasswordHasher

    with ann.write() as session:
        people.put_user(session, "ann", "viewer", PasswordHasher(1, 8, 1).hash(PASSWORD), NOW)
    assert tried(ann, "ann", PASSWORD) and tried(ann, "ann", PASSWORD)
    with ann.read() as session:
        row = people.user(session, "ann")
    assert row is not None and f"m={passwords.MEMORY_KIB},t={passwords.PASSES},p={passwords.LANES}" in row.password_hash


def test_a_sign_in_is_audited(ann: Store) -> None:
    tried(ann, "ann", PASSWORD)
    with ann.read() as session:
        assert [(row.actor, row.action) for row in people.audits(session)] == [("ann", "sign in")]


# --- tokens ---------------------------------------------------------------------------------------------------------


def test_a_token_acts_within_its_scope(sqlite_store: Store) -> None:
    text = tokens.new_token()
    with sqlite_store.write() as session:
        people.add_token(session, "prolog", "operate", tokens.hash_token(text, KEY), NOW)
    with sqlite_store.read() as session:
        caller = token_of(session, text, NOW, KEY)
        assert caller is not None and (caller.name, caller.scope) == ("prolog", "operate")
        assert caller.person == Person("token:prolog", "operator")
        assert token_of(session, text[:-1], NOW, KEY) is None
        assert token_of(session, "", NOW, KEY) is None


def test_an_ingest_token_reads_nothing(sqlite_store: Store) -> None:
    text = tokens.new_token()
    with sqlite_store.write() as session:
        people.add_token(session, "agent", "ingest", tokens.hash_token(text, KEY), NOW)
    with sqlite_store.read() as session:
        caller = token_of(session, text, NOW, KEY)
    assert caller is not None and not may(caller.person, "read")


# --- rights ---------------------------------------------------------------------------------------------------------

CONTRACT = {
    "vendor": {"hardware"},
    "viewer": {"read"},
    "operator": {"acknowledge", "note", "label", "silence", "exclude", "lift", "backtest"},
    "approver": {"approve", "reject", "undo"},
    "admin": {"users", "tokens", "configuration", "breaker", "kill switch"},
}


@pytest.mark.parametrize("role", CONTRACT)
def test_each_role_may_what_it_and_those_before_it_may_and_no_more(role: str) -> None:
    order = list(CONTRACT)
    expected = set().union(*(CONTRACT[r] for r in order[: order.index(role) + 1]))
    assert {right for right in RIGHTS if may(Person("x", role), right)} == expected


def test_nobody_and_an_unknown_role_may_nothing() -> None:
    assert (
        not allows(None, "viewer")
        and not allows(Person("x", "root"), "viewer")
        and not allows(Person("x", ""), "viewer")
    )
    with pytest.raises(ValueError, match="root"):
        allows(LOCAL, "root")


# --- loopback -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "bind", "headers"),
    [
        ("127.0.0.1", "127.0.0.1", {}),
        ("127.9.9.9", "localhost", {"Host": "localhost:8000"}),
        ("::1", "::1", {"host": "[::1]:8000"}),
        ("::ffff:127.0.0.1", "127.0.0.1", {"Host": "127.0.0.1"}),
        ("127.0.0.1", "127.0.0.1", {"Origin": "http://localhost:8000", "Host": "localhost:8000"}),
    ],
)
def test_this_machine_is_known(peer: str, bind: str, headers: dict[str, str]) -> None:
    assert is_loopback(peer, bind, headers)


@pytest.mark.parametrize(
    ("peer", "bind", "headers"),
    [
        ("10.0.0.1", "127.0.0.1", {}),
        ("127.0.0.1", "0.0.0.0", {}),
        ("127.0.0.1", "::", {}),
        ("127.0.0.1", "gpu-head", {}),
        (None, "127.0.0.1", {}),
        ("", "127.0.0.1", {}),
        ("testclient", "127.0.0.1", {}),
        ("127.0.0.1", "127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}),
        ("127.0.0.1", "127.0.0.1", {"x-forwarded-proto": "https"}),
        ("127.0.0.1", "127.0.0.1", {"Forwarded": "for=127.0.0.1"}),
        ("127.0.0.1", "127.0.0.1", {"X-Real-IP": "127.0.0.1"}),
        ("127.0.0.1", "127.0.0.1", {"Via": "1.1 proxy"}),
        ("127.0.0.1", "127.0.0.1", {"Host": "rebound.example:8000"}),
        ("127.0.0.1", "127.0.0.1", {"Host": "["}),
        ("127.0.0.1", "127.0.0.1", {"Host": ""}),
        ("127.0.0.1", "127.0.0.1", {"Host": "localhost", "Origin": "https://evil.example"}),
        ("127.0.0.1", "127.0.0.1", {"Host": "localhost", "Origin": "null"}),
    ],
)
def test_everything_else_is_not_this_machine(peer: str | None, bind: str, headers: dict[str, str]) -> None:
    assert not is_loopback(peer, bind, headers)
