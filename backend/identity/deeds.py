"""What an admin does to people and tokens, by page, API or command line: each deed with its audit row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import Session

from backend import auth
from backend.model.people import Token, User
from backend.security import passwords
from backend.security import tokens as token_text
from backend.settings_identity import Security
from backend.store import people
from backend.store.engine import Store
from backend.store.people import EVERYTHING, Scope

#: Longest life of a token, where one is given.
LONGEST = timedelta(days=3660)


@dataclass(frozen=True, slots=True)
class Made:
    """A new token. ``text`` is told once and kept nowhere."""

    row: Token
    text: str


def add_user(
    store: Store,
    rules: Security,
    by: str,
    now: datetime,
    name: str,
    role: str,
    password: str,
    scope: Scope = EVERYTHING,
    *,
    anew: bool = True,
) -> User:
    """A person who signs in with a password. ``anew``: a known one gets this role and password.

    Raises ValueError for a name, role or password that cannot be, and for a known name where not ``anew``.
    """
    passwords.check_password(password, name, rules.password_min)
    hashed = passwords.hash_password(password)
    with store.write() as session:
        if not anew and people.user(session, name) is not None:
            raise ValueError(f"there is a person named {name} already")
        row = people.put_user(session, name, role, hashed, now, scope)
        people.audit(session, now, by, "user set", name, {"role": role} | written(scope))
        return row


def change_role(store: Store, by: str, now: datetime, name: str, role: str, scope: Scope | None = None) -> User:
    """Raises LookupError where nobody has that name, ValueError for what cannot be, or for the last admin."""
    with store.write() as session:
        _still_an_admin(session, name, role)
        row = people.set_role(session, name, role, scope)
        if row is None:
            raise LookupError(f"nobody is named {name}")
        limits = Scope(tuple(row.clusters), tuple(row.projects), tuple(row.nodes))
        people.audit(session, now, by, "role changed", name, {"role": role} | written(limits))
        return row


def disable(store: Store, by: str, now: datetime, name: str) -> None:
    """No more sign-ins, and the open ones end. Raises as change_role does."""
    with store.write() as session:
        _still_an_admin(session, name, "")
        if not people.disable_user(session, name, now):
            raise LookupError(f"nobody is named {name}")
        people.audit(session, now, by, "user disabled", name)


def change_password(
    store: Store, rules: Security, now: datetime, key: bytes, name: str, old: str, new: str, whence: auth.Whence
) -> str:
    """A person's own new password: they are signed out everywhere, and the cookie of a new session is returned.

    Raises ValueError for a password that cannot be, SignInError where the old one is wrong.
    """
    passwords.check_password(new, name, rules.password_min)
    auth.sign_out_of(store, auth.sign_in(store, rules, name, old, now, key, whence), key)
    hashed = passwords.hash_password(new)
    with store.write() as session:
        row = people.user(session, name)
        if row is None or row.id is None:
            raise ValueError(f"nobody is named {name}")
        people.set_hash(session, row.id, hashed)
        people.end_sessions(session, row.id)
        people.audit(session, now, name, "password changed", name)
    return auth.sign_in_as(store, rules, name, now, key, whence, by="password")


def sign_out_everywhere(store: Store, now: datetime, name: str, by: str = "") -> int:
    """How many sessions ended."""
    with store.write() as session:
        row = people.user(session, name)
        ended = people.end_sessions(session, row.id) if row is not None and row.id is not None else 0
        people.audit(session, now, by or name, "sign out everywhere", name, {"sessions": ended})
        return ended


def life(days: float | None) -> timedelta | None:
    """How long a token of so many days lasts; None = until it is revoked. Raises ValueError for what no token lasts."""
    if days is not None and not 0 < days <= LONGEST.days:
        raise ValueError(f"a token lasts more than nothing and at most {LONGEST.days} days")
    return timedelta(days=days) if days is not None else None


def make_token(
    store: Store,
    key: bytes,
    by: str,
    now: datetime,
    name: str,
    scope: str,
    reach: Scope = EVERYTHING,
    lasts: timedelta | None = None,
) -> Made:
    """Raises ValueError for a name, scope, life or limits that cannot be."""
    if lasts is not None and not timedelta() < lasts <= LONGEST:
        raise ValueError(f"a token lasts more than nothing and at most {LONGEST.days} days")
    text = token_text.new_token()
    ends = now + lasts if lasts is not None else None
    with store.write() as session:
        row = people.add_token(session, name, scope, token_text.hash_token(text, key), now, ends, reach, by)
        details = {"id": row.id, "scope": scope, "expires": ends.isoformat() if ends else ""}
        people.audit(session, now, by, "token made", name, details | written(reach))
    return Made(row, text)


def revoke_tokens(store: Store, by: str, now: datetime, ids: Iterable[int]) -> None:
    """Raises LookupError where one of them is no live token; then none is revoked."""
    with store.write() as session:
        for token_id in ids:
            row = session.get(Token, token_id)
            if row is None or not people.revoke_token(session, token_id, now):
                raise LookupError(f"there is no live token {token_id}")
            people.audit(session, now, by, "token revoked", row.name, {"id": token_id})


def ensure_admin(store: Store, rules: Security, now: datetime) -> bool:
    """True where somebody may administer this service; makes the configured admin where nobody may yet.

    Raises ValueError for a configured password that cannot be.
    """
    with store.read() as session:
        known = [row for row in people.admins(session) if row.password_hash or row.origin != "local"]
    if known:
        return True
    if rules.admin_password is None:
        return False
    add_user(store, rules, "configuration", now, rules.admin, "admin", rules.admin_password.get_secret_value())
    return True


def written(scope: Scope) -> dict[str, list[str]]:
    """The limits of a scope, those that it has."""
    limits = {"clusters": scope.clusters, "projects": scope.projects, "nodes": scope.nodes}
    return {name: list(held) for name, held in limits.items() if held}


def _still_an_admin(session: Session, name: str, role: str) -> None:
    """Raises ValueError where ``name`` would be the last admin to go."""
    left = [row.name for row in people.admins(session) if row.name != name]
    row = people.user(session, name)
    if row is not None and row.role == "admin" and role != "admin" and not left:
        raise ValueError(f"{name} is the last admin; make another one first")
