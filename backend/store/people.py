"""Users, their sessions, API tokens, and the audit chain: every query about people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
from sqlalchemy import CursorResult, delete, text, update
from sqlmodel import Session as Database
from sqlmodel import col, func, select

from backend.model.people import Audit, AuditHead, Session, Token, User
from backend.security import audit as chain

ROLES = ("vendor", "viewer", "operator", "approver", "admin")
SCOPES = ("ingest", "vendor", "read", "operate", "approve")
#: A key of ours for the advisory lock ("wkaudit" in ASCII): the chain grows by one row at a time.
AUDIT_LOCK = 0x776B6175646974
#: The last use of a session is kept no finer than this, so that reading does not become writing.
SEEN_EVERY = timedelta(minutes=1)
#: A cookie that was changed for a new one still works this long: requests that were under way carry it.
GRACE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a role or a token holds for; empty = all of them. nodes: of a vendor, or of a token bound to nodes."""

    clusters: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


EVERYTHING = Scope()


# --- users ----------------------------------------------------------------------------------------------------------


def users(session: Database) -> Sequence[User]:
    """Everybody, also who is disabled, by name."""
    return session.exec(select(User).order_by(col(User.name))).all()


def user(session: Database, name: str) -> User | None:
    return session.exec(select(User).where(col(User.name) == name)).one_or_none()


def user_of(session: Database, origin: str, subject: str) -> User | None:
    """The person whom ``origin`` (oidc, proxy) knows as ``subject``."""
    query = select(User).where(col(User.origin) == origin, col(User.subject) == subject)
    return session.exec(query).one_or_none()


def put_user(
    session: Database, name: str, role: str, password_hash: str, now: datetime, scope: Scope = EVERYTHING
) -> User:
    """Add a person, or give a known one this role and password; their open sessions end.

    Raises ValueError for an unknown role or a name that is empty, over 64 characters, or not printable; and for one
    whom somebody else vouches for.
    """
    row = _person(session, name, role, now)
    if row.origin != "local":
        raise ValueError(f"{name} signs in by {row.origin}; their role comes from there and they have no password here")
    row.role, row.password_hash, row.disabled_at = role, password_hash, None
    _limit(row, scope)
    return _kept(session, row, ends=True)


def ensure_user(session: Database, name: str, role: str, now: datetime) -> User:
    """A person with this role who cannot sign in by password; a known one keeps password and sessions."""
    row = _person(session, name, role, now)
    row.role = role
    return _kept(session, row, ends=False)


def vouched_user(
    session: Database, origin: str, subject: str, name: str, role: str, scope: Scope, now: datetime
) -> User:
    """The person whom ``origin`` vouches for, with the role that it gives now.

    Raises ValueError where another person has that name already: nobody takes over an account by its name.
    """
    row = user_of(session, origin, subject)
    if row is None:
        row = _person(session, name, role, now)
        if row.id is not None:
            raise ValueError(f"there is another person named {name} here already")
        row.origin, row.subject = origin, subject
    row.role = role
    _limit(row, scope)
    return _kept(session, row, ends=False)


def set_role(session: Database, name: str, role: str, scope: Scope | None = None) -> User | None:
    """Another role, and other limits where ``scope`` is given; None where nobody has that name. Their open sessions
    end, so that nothing goes on under what they had. Raises ValueError as put_user does."""
    check_person(name, role)
    row = user(session, name)
    if row is None:
        return None
    if row.origin != "local":
        raise ValueError(f"{name} signs in by {row.origin}; change the groups there")
    row.role = role
    if scope is not None:
        _limit(row, scope)
    return _kept(session, row, ends=True)


def disable_user(session: Database, name: str, now: datetime) -> bool:
    """End a person's sessions and refuse new ones; False where nobody has that name."""
    row = user(session, name)
    if row is None or row.id is None:
        return False
    row.disabled_at = now
    _kept(session, row, ends=True)
    return True


def admins(session: Database) -> Sequence[User]:
    """Who may make others: admins for everything that are not disabled."""
    return [row for row in users(session) if row.role == "admin" and row.disabled_at is None and not row.clusters]


def _person(session: Database, name: str, role: str, now: datetime) -> User:
    check_person(name, role)
    return user(session, name) or User(name=name, role=role, password_hash="", created_at=now)


def _limit(row: User, scope: Scope) -> None:
    row.clusters, row.projects, row.nodes = list(scope.clusters), list(scope.projects), list(scope.nodes)


def _kept(session: Database, row: User, *, ends: bool) -> User:
    session.add(row)
    session.flush()
    assert row.id is not None
    if ends:
        end_sessions(session, row.id)
    return row


def check_person(name: str, role: str) -> None:
    """Raises ValueError for a role that does not exist, or a name that nobody can have."""
    if role not in ROLES:
        raise ValueError(f"no role {role!r}; there are {', '.join(ROLES)}")
    if not name or len(name) > 64 or not name.isprintable() or name != name.strip():
        raise ValueError("a name has 1 to 64 printable characters and no space around it")


def set_hash(session: Database, user_id: int, password_hash: str) -> None:
    """The same password, hashed with newer parameters; sessions go on."""
    session.connection().execute(update(User).where(col(User.id) == user_id).values(password_hash=password_hash))


# --- sessions -------------------------------------------------------------------------------------------------------


def add_session(
    session: Database,
    user_id: int,
    id_hash: str,
    csrf: str,
    now: datetime,
    lasts_s: float,
    idle_s: float | None = None,
    address: str = "",
    agent: str = "",
) -> Session:
    """A signed-in browser; sessions that ran out, anybody's, are swept on the way."""
    session.connection().execute(delete(Session).where(col(Session.expires_at) <= now))
    ends = now + timedelta(seconds=lasts_s)
    row = Session(
        id_hash=id_hash,
        user_id=user_id,
        csrf=csrf,
        created_at=now,
        expires_at=ends if idle_s is None else min(ends, now + timedelta(seconds=idle_s)),
        ends_at=ends,
        last_used_at=now,
        address=address[:64],
        agent=agent[:200],
    )
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


def sessions_of(session: Database, user_id: int, now: datetime) -> Sequence[Session]:
    """Where a person is signed in, newest use first."""
    query = select(Session).where(col(Session.user_id) == user_id, col(Session.expires_at) > now)
    return session.exec(query.order_by(col(Session.last_used_at).desc())).all()


def use_session(session: Database, row: Session, now: datetime, idle_s: float) -> None:
    """It is in use: it lasts on, to its end at most."""
    row.last_used_at = now
    row.expires_at = min(row.ends_at, now + timedelta(seconds=idle_s))
    session.add(row)


def renew_session(session: Database, row: Session, id_hash: str, now: datetime) -> None:
    """The same session under a new cookie. The old one works for GRACE, and is not renewed again in it."""
    fresh = Session.model_validate(row.model_dump() | {"id_hash": id_hash, "created_at": now})
    session.add(fresh)
    row.created_at, row.expires_at = now, min(row.expires_at, now + GRACE)
    row.ends_at = row.expires_at
    session.add(row)


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
    session: Database,
    name: str,
    scope: str,
    token_hash: str,
    now: datetime,
    expires_at: datetime | None = None,
    reach: Scope = EVERYTHING,
    by: str = "",
) -> Token:
    """Raises ValueError for an unknown scope, an empty name, an end in the past, or limits the scope cannot have."""
    if scope not in SCOPES:
        raise ValueError(f"no scope {scope!r}; there are {', '.join(SCOPES)}")
    if not name.strip() or not name.isprintable() or len(name) > 64:
        raise ValueError("a token needs a printable name that says who uses it")
    if expires_at is not None and expires_at <= now:
        raise ValueError("a token cannot end before it begins; give a later end")
    if reach.nodes and scope not in ("ingest", "vendor"):
        raise ValueError("only tokens of scope ingest or vendor are bound to nodes")
    if reach.projects and scope in ("ingest", "vendor"):
        raise ValueError("tokens of scope ingest or vendor have no projects")
    row = Token(
        name=name,
        scope=scope,
        token_hash=token_hash,
        created_at=now,
        created_by=by,
        expires_at=expires_at,
        clusters=list(reach.clusters),
        projects=list(reach.projects),
        nodes=list(reach.nodes),
    )
    session.add(row)
    session.flush()
    return row


def live_tokens(session: Database, now: datetime) -> Sequence[Token]:
    """Every token that is neither revoked nor run out."""
    rows = session.exec(select(Token).where(col(Token.revoked_at).is_(None))).all()
    return [row for row in rows if row.expires_at is None or row.expires_at > now]


def tokens_mark(session: Database) -> tuple[int, int, int]:
    """Changes whenever a token is made or revoked."""
    query = select(func.count(col(Token.id)), func.max(col(Token.id)), func.count(col(Token.revoked_at)))
    count, newest, revoked = session.exec(query).one()
    return count, newest or 0, revoked


def token_by_hash(session: Database, token_hash: str, now: datetime) -> Token | None:
    """The live token with this hash."""
    row = session.exec(select(Token).where(col(Token.token_hash) == token_hash)).one_or_none()
    if row is None or row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now):
        return None
    return row


def touch_tokens(session: Database, used: Mapping[int, datetime]) -> None:
    """Remember when each was last in use."""
    for at in set(used.values()):
        ids = [token_id for token_id, when in used.items() if when == at]
        for start in range(0, len(ids), 500):
            some = update(Token).where(col(Token.id).in_(ids[start : start + 500]))
            session.connection().execute(some.values(last_used_at=at))


def revoke_token(session: Database, token_id: int, now: datetime) -> bool:
    """False where there is no such live token."""
    row = session.get(Token, token_id)
    if row is None or row.revoked_at is not None:
        return False
    row.revoked_at = now
    session.add(row)
    return True


def token_named(session: Database, name: str) -> Sequence[Token]:
    """Live tokens of that name."""
    query = select(Token).where(col(Token.name) == name, col(Token.revoked_at).is_(None))
    return session.exec(query.order_by(col(Token.id))).all()


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
    assert row.id is not None
    head = session.get(AuditHead, 1, populate_existing=True) or AuditHead(id=1, last_id=0, hash="")
    head.last_id, head.hash = row.id, made
    session.add(head)
    return row


def audits(session: Database, limit: int = 100, before_id: int | None = None, actor: str = "") -> Sequence[Audit]:
    """The newest rows first; ``before_id`` turns the page; ``actor``: what this one did."""
    query = select(Audit).order_by(col(Audit.id).desc()).limit(limit)
    query = query.where(col(Audit.actor) == actor) if actor else query
    return session.exec(query if before_id is None else query.where(col(Audit.id) < before_id)).all()


def first_broken_audit(session: Database) -> int | None:
    """Id of the first audit row that was changed or follows a missing one; None when the chain holds."""
    return chain.first_broken(
        chain.Link(row.id or 0, row.at, row.actor, row.action, row.target, row.previous, row.hash, row.details)
        for row in _all_audits(session)
    )


def audit_flaw(session: Database) -> str:
    """What is wrong with the chain, in words; empty when every row is as it was written and none is missing."""
    broken = first_broken_audit(session)
    if broken is not None:
        return f"Row {broken} is not as it was written, or does not follow the row that it followed."
    head, last = session.get(AuditHead, 1), next(iter(audits(session, 1)), None)
    if (head.last_id if head else 0) != (last.id if last else 0) or (head and last and head.hash != last.hash):
        return (
            f"Rows are missing at the end: the last is {last.id if last else 0}, it was {head.last_id if head else 0}."
        )
    return ""


def audit_head(session: Database) -> tuple[int, str]:
    """Number and hash of the newest row, to be kept elsewhere; (0, START) where there is none."""
    last = next(iter(audits(session, 1)), None)
    return (last.id or 0, last.hash) if last is not None else (0, chain.START)


def _all_audits(session: Database, page: int = 1000) -> Iterator[Audit]:
    """In the order of their ids, a page at a time."""
    last = 0
    while rows := session.exec(select(Audit).where(col(Audit.id) > last).order_by(col(Audit.id)).limit(page)).all():
        yield from rows
        last = rows[-1].id or 0
