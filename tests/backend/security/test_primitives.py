"""Passwords, tokens, CSRF and the audit chain: pure primitives."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from argon2 import extract_parameters
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.security import audit, csrf, passwords, tokens

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_the_right_password_passes_and_no_other() -> None:
    known = passwords.hash_password("correct horse")
    assert known.startswith("$argon2id$") and "correct" not in known
    assert passwords.verify_password("correct horse", known)
    assert not passwords.verify_password("correct horsf", known)
    assert not passwords.is_outdated(known)


def test_the_same_password_never_gives_the_same_hash() -> None:
    assert passwords.hash_password("x" * 10) != passwords.hash_password("x" * 10)


@pytest.mark.parametrize("known", [None, "", "not a hash", passwords.NOBODY])
def test_nobody_signs_in_without_a_hash(known: str | None) -> None:
    assert not passwords.verify_password("", known)
    assert not passwords.verify_password("anything", known)


def test_an_unknown_user_costs_as_much_as_a_known_one() -> None:
    assert extract_parameters(passwords.NOBODY) == extract_parameters(passwords.hash_password("x"))


def test_a_huge_password_is_wrong_and_quick() -> None:
    known = passwords.hash_password("x" * passwords.LONGEST)
    assert passwords.verify_password("x" * passwords.LONGEST, known)
    assert not passwords.verify_password("x" * (passwords.LONGEST + 1), known)
    with pytest.raises(ValueError, match="at most"):
        passwords.hash_password("x" * (passwords.LONGEST + 1))


@given(st.text(max_size=20))
@settings(max_examples=5, deadline=None)
def test_any_text_can_be_a_password(text: str) -> None:
    assert passwords.verify_password(text, passwords.hash_password(text))


def test_tokens_carry_our_prefix_and_hash_by_key() -> None:
    text = tokens.new_token()
    assert text.startswith("wk_") and len(text) > 40 and text != tokens.new_token()
    assert tokens.hash_token(text, b"k1") == tokens.hash_token(text, b"k1") != tokens.hash_token(text, b"k2")
    assert text not in tokens.hash_token(text, b"k1")


@pytest.mark.parametrize(
    ("header", "text"),
    [("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", ""), ("Bearer", ""), ("", ""), ("abc", "")],
)
def test_only_a_bearer_header_carries_a_token(header: str, text: str) -> None:
    assert tokens.bearer_of(header) == text


def test_a_forged_form_lacks_the_secret_of_the_session() -> None:
    known = csrf.new_csrf()
    assert csrf.is_ours(known, known)
    assert not any(csrf.is_ours(given, known) for given in (None, "", known[:-1], "é"))
    assert not csrf.is_ours("", "")


def test_a_browser_elsewhere_is_seen() -> None:
    assert csrf.same_origin("https://wk.example:8443", "wk.example:8443")
    assert csrf.same_origin(None, "wk.example")
    assert not csrf.same_origin("https://evil.example", "wk.example")
    assert not csrf.same_origin("null", "wk.example")
    assert not csrf.same_origin("https://wk.example", None)


def chain(count: int) -> list[audit.Link]:
    links, previous = [], audit.START
    for n in range(count):
        at = NOW + timedelta(seconds=n)
        made = audit.hash_of(previous, at, "ann", "approve", f"decision {n}", {"n": n, "é": [1.5, None]})
        links.append(
            audit.Link(n + 1, at, "ann", "approve", f"decision {n}", previous, made, {"é": [1.5, None], "n": n})
        )
        previous = made
    return links


def test_an_untouched_chain_holds() -> None:
    assert audit.first_broken([]) is None
    assert audit.first_broken(chain(5)) is None
    assert audit.first_broken(chain(5)[2:], previous=chain(2)[-1].hash) is None


@pytest.mark.parametrize(
    "change",
    [{"actor": "bob"}, {"action": "reject"}, {"target": "x"}, {"details": {}}, {"at": NOW}, {"hash": "0" * 64}],
)
def test_a_changed_row_shows(change: dict[str, object]) -> None:
    links = chain(5)
    links[2] = replace(links[2], **change)  # type: ignore[arg-type]  # one of several fields
    assert audit.first_broken(links) == 3


def test_a_missing_row_and_a_swap_show() -> None:
    links = chain(5)
    assert audit.first_broken([*links[:1], *links[2:]]) == 3
    assert audit.first_broken([links[0], links[2], links[1]]) == 3
