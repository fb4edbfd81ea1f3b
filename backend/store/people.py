"""Users, their sessions, API tokens, and the audit chain: every query about people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import orjson
from sqlalchemy import CursorResult, delete, text, update
from sqlmodel import Session as Database
from sqlmodel import col, select

from backend.model.people import Audit, Session, Token, User
from backend.security import audit as chain

ROLES = ("viewer", "operator", "approver", "admin")
SCOPES = ("ingest", "read", "operate", "approve")
#: A key of ours for the advisory lock ("wkaudit" in ASCII): the chain grows by one row at a time.
AUDIT_LOCK = 0x776B6175646974
#: The last use of a token is kept no finer than this, so that reading does not become writing.
TOUCH_EVERY = timedelta(hours=1)


# --- users ----------------------------------------------------------------------------------------------------------


def users(session: Database) -> Sequence[User]:
    """Everybody, also who is disabled, by name."""
    return session.exec(select(User).order_by(col(User.name))).all()


def user(session: Database, name: str) -> User | None:
    return session.exec(select(User).where(col(User.name) == name)).one_or_none()


def user_by_id(session: Database, user_id: int) -> User | None:
    return session.get(User, user_id)


def put_user(session: Database, name: str, role: str, password_hash: str, now: datetime) -> User:
    """Add a person, or give a known one this role and password; their open sessions end and a lock is lifted.

    Raises ValueError for an unknown role or a name that is empty, over 64 characters, or not printable.
    """
    _check(name, role)
    row = user(session, name) or User(name=name, role=role, password_hash=password_hash, created_at=now)
    row.role, row.password_hash, row.disabled_at = role, password_hash, None
    row.failures, row.locked_until = 0, None
    session.add(row)
    session.flush()
    assert row.id is not None
    end_sessions(session, row.id)
    return row


def ensure_user(session: Database, name: str, role: str, now: datetime) -> User:
    """A person with this role who cannot sign in by password; a known one keeps password and sessions."""
    _check(name, role)
    row = user(session, name) or User(name=name, role=role, password_hash="", created_at=now)
    row.role = role
    session.add(row)
    session.flush()
    return row


def disable_user(session: Database, name: str, now: datetime) -> bool:
    """End a person's sessions and refuse new ones; False where nobody has that name."""
    row = user(session, name)
    if row is None or row.id is None:
        return False
    row.disabled_at = now
    session.add(row)
    end_sessions(session, row.id)
    return True


def _check(name: str, role: str) -> None:
    if role not in ROLES:
        raise ValueError(f"no role {role!r}; there are {', '.join(ROLES)}")
    if not name or len(name) > 64 or not name.isprintable() or name != name.strip():
        raise ValueError("a name has 1 to 64 printable characters and no space around it")


# --- sign-in counters -----------------------------------------------------------------------------------------------


def count_try(session: Database, user_id: int, now: datetime, lockout_after: int, lockout_s: float) -> datetime | None:
    """Take one try at a password before it is checked, so that many at once cannot get past the limit.

    None: go on and check; the try counts as failed until clear_tries. Else the account waits until this time.
    A lock that ran out gives a new round of tries.
    """
    mine = select(User).where(col(User.id) == user_id).with_for_update()
    row = session.exec(mine.execution_options(populate_existing=True)).one()
    if row.locked_until is not None and row.locked_until > now:
        return row.locked_until
    row.failures = 1 if row.locked_until is not None else row.failures + 1
    row.locked_until = now + timedelta(seconds=lockout_s) if row.failures >= lockout_after else None
    session.add(row)
    return None


def clear_tries(session: Database, user_id: int) -> None:
    """The password was right."""
    session.connection().execute(update(User).where(col(User.id) == user_id).values(failures=0, locked_until=None))


def set_hash(session: Database, user_id: int, password_hash: str) -> None:
    """The same password, hashed with newer parameters; sessions go on."""
    session.connection().execute(update(User).where(col(User.id) == user_id).values(password_hash=password_hash))


# --- sessions -------------------------------------------------------------------------------------------------------


def add_session(session: Database, user_id: int, id_hash: str, csrf: str, now: datetime, lasts_s: float) -> Session:
    """A signed-in browser; sessions that ran out, anybody's, are swept on the way."""
    session.connection().execute(delete(Session).where(col(Session.expires_at) <= now))
    until = now + timedelta(seconds=lasts_s)
    row = Session(id_hash=id_hash, user_id=user_id, csrf=csrf, created_at=now, expires_at=until, last_used_at=now)
    session.add(row)
    return row


def session_of(session: Database, id_hash: str, now: datetime) -> tuple[Session, User] | None:
    """The live session with this hash and its person; None when it ran out or the person is disabled."""
    query = select(Session, User).where(
        col(Session.id_hash) == id_hash,
        col(Session.expires_at) > now,
        col(User.id) == col(Session.user_id),
        col(User.disabled_at).is_(None),
    )
    found = session.exec(query).one_or_none()
    return (found[0], found[1]) if found is not None else None


def end_session(session: Database, id_hash: str) -> bool:
    """Sign out; False where there was no such session."""
    return _count(session.connection().execute(delete(Session).where(col(Session.id_hash) == id_hash))) == 1


def end_sessions(session: Database, user_id: int) -> int:
    """Sign a person out everywhere; how many sessions that were."""
    return _count(session.connection().execute(delete(Session).where(col(Session.user_id) == user_id)))


def _count(result: CursorResult[Any]) -> int:
    return result.rowcount


# --- tokens ---------------------------------------------------------------------------------------------------------


def tokens(session: Database) -> Sequence[Token]:
    """All tokens, also revoked ones, by name."""
    return session.exec(select(Token).order_by(col(Token.name), col(Token.id))).all()


def add_token(
    session: Database, name: str, scope: str, token_hash: str, now: datetime, expires_at: datetime | None = None
) -> Token:
    """Raises ValueError for an unknown scope or an empty name."""
    if scope not in SCOPES:
        raise ValueError(f"no scope {scope!r}; there are {', '.join(SCOPES)}")
    if not name.strip() or not name.isprintable():
        raise ValueError("a token needs a printable name that says who uses it")
    row = Token(name=name, scope=scope, token_hash=token_hash, created_at=now, expires_at=expires_at)
    session.add(row)
    session.flush()
    return row


def token_by_hash(session: Database, token_hash: str, now: datetime) -> Token | None:
    """The live token with this hash."""
    row = session.exec(select(Token).where(col(Token.token_hash) == token_hash)).one_or_none()
    if row is None or row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now):
        return None
    return row


def touch_token(session: Database, token_id: int, now: datetime) -> None:
    """Remember that it is in use, at most once in TOUCH_EVERY."""
    row = session.get(Token, token_id)
    if row is not None and (row.last_used_at is None or now - row.last_used_at >= TOUCH_EVERY):
        row.last_used_at = now
        session.add(row)


def revoke_token(session: Database, token_id: int, now: datetime) -> bool:
    """False where there is no such live token."""
    row = session.get(Token, token_id)
    if row is None or row.revoked_at is not None:
        return False
    row.revoked_at = now
    session.add(row)
    return True


# --- audit ----------------------------------------------------------------------------------------------------------


def audit(
    session: Database, now: datetime, actor: str, action: str, target: str, details: Mapping[str, Any] | None = None
) -> Audit:
    """Append one row to the chain, in the transaction of the write it tells about.

    On PostgreSQL writers queue here until they commit, so call it last.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.connection().execute(text("SELECT pg_advisory_xact_lock(:key)").bindparams(key=AUDIT_LOCK))
    last = session.exec(select(Audit).order_by(col(Audit.id).desc()).limit(1)).one_or_none()
    previous = last.hash if last is not None else chain.START
    kept: dict[str, Any] = orjson.loads(orjson.dumps(dict(details or {}), default=str, option=orjson.OPT_NON_STR_KEYS))
    made = chain.hash_of(previous, now, actor, action, target, kept)
    row = Audit(at=now, actor=actor, action=action, target=target, details=kept, previous=previous, hash=made)
    session.add(row)
    session.flush()
    return row


def audits(session: Database, limit: int = 100, before_id: int | None = None) -> Sequence[Audit]:
    """The newest rows first; ``before_id`` turns the page."""
    query = select(Audit).order_by(col(Audit.id).desc()).limit(limit)
    return session.exec(query if before_id is None else query.where(col(Audit.id) < before_id)).all()


def first_broken_audit(session: Database) -> int | None:
    """Id of the first audit row that was changed or follows a missing one; None when the chain holds."""
    return chain.first_broken(
        chain.Link(row.id or 0, row.at, row.actor, row.action, row.target, row.previous, row.hash, row.details)
        for row in _all_audits(session)
    )


def _all_audits(session: Database, page: int = 1000) -> Iterator[Audit]:
    """In the order of their ids, a page at a time."""
    last = 0
    while rows := session.exec(select(Audit).where(col(Audit.id) > last).order_by(col(Audit.id)).limit(page)).all():
        yield from rows
        last = rows[-1].id or 0
