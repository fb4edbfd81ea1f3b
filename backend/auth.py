"""Sign-in and rights: who is asking, and may they."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from sqlmodel import Session

from backend.model.people import User
from backend.security import csrf, passwords, tokens
from backend.settings import Security
from backend.store import people
from backend.store.engine import Store

#: Each role may do all that the ones before it may.
ROLES = people.ROLES
#: What each right needs at least ("Rights" in the contracts).
RIGHTS: Mapping[str, str] = {
    "read": "viewer",
    "acknowledge": "operator",
    "note": "operator",
    "label": "operator",
    "silence": "operator",
    "exclude": "operator",
    "lift": "operator",
    "approve": "approver",
    "reject": "approver",
    "undo": "approver",
    "users": "admin",
    "tokens": "admin",
    "configuration": "admin",
    "breaker": "admin",
    "kill switch": "admin",
}
#: What a token of a scope may do as a person would; ``ingest`` may only bring telemetry.
SCOPE_ROLE: Mapping[str, str] = {"ingest": "", "read": "viewer", "operate": "operator", "approve": "approver"}
#: A request that carries one of these came through a proxy, so its peer says nothing about who asks.
FORWARDING = ("forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip", "x-original-host")


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks. role "" may do nothing that a person may. ``csrf`` is the secret that this session's forms carry."""

    name: str
    role: str
    csrf: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """A program with a token: its name, and the scope ingest, read, operate or approve."""

    token_id: int
    name: str
    scope: str

    @property
    def person(self) -> Person:
        """The token as a person: audit rows name it ``token:<name>``."""
        return Person(f"token:{self.name}", SCOPE_ROLE.get(self.scope, ""))


#: Name of the session cookie: pages set it, pages and API read it.
COOKIE = "watchkeeper_session"
#: Reads on loopback go as this one.
LOCAL = Person("local", "viewer")


class SignInError(Exception):
    """No sign-in. ``wait_s`` > 0: the account waits so long after too many tries; for us, not for who asks."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


# --- rights ---------------------------------------------------------------------------------------------------------


def allows(person: Person | None, role: str) -> bool:
    """True when ``person`` has ``role`` or a higher one. Raises ValueError for a role that does not exist."""
    if role not in ROLES:
        raise ValueError(f"no role {role!r}; there are {', '.join(ROLES)}")
    return person is not None and person.role in ROLES and ROLES.index(person.role) >= ROLES.index(role)


def may(person: Person | None, right: str) -> bool:
    """True when ``person`` has one of RIGHTS by name."""
    return allows(person, RIGHTS[right])


# --- people ---------------------------------------------------------------------------------------------------------


def sign_in(store: Store, rules: Security, name: str, password: str, now: datetime, key: bytes) -> str:
    """The cookie of a new session. Raises SignInError, in the same words and as slowly whether the name is unknown, the
    password wrong, or the account waits: who is told which would learn who has an account.

    Takes the store, not a session: a failed try must be committed although this raises, and the slow hash must not
    hold the one writer of SQLite.
    """
    with store.write() as session:
        known = _fresh_user(session, name)
        wait = people.count_try(session, _id(known), now, rules.lockout_after, rules.lockout_s) if known else None
    right = passwords.verify_password(password, known.password_hash if known else None)
    if known is None or not right or wait is not None:
        raise SignInError("Name or password is wrong.", wait_s=(wait - now).total_seconds() if wait else 0.0)
    with store.write() as session:
        people.clear_tries(session, _id(known))
        if passwords.is_outdated(known.password_hash):
            people.set_hash(session, _id(known), passwords.hash_password(password))
        cookie = _open(session, known, rules, now, key)
        people.audit(session, now, known.name, "sign in", known.name)
    return cookie


def sign_in_as(store: Store, rules: Security, name: str, now: datetime, key: bytes) -> str:
    """The cookie of a session without a password: for the demo's own person, on loopback, and nothing else."""
    with store.write() as session:
        known = _fresh_user(session, name)
        if known is None:
            raise SignInError(f"There is nobody named {name}.")
        return _open(session, known, rules, now, key)


def sign_out(session: Session, cookie: str, key: bytes) -> bool:
    """End the session of this cookie; False where it had none."""
    return people.end_session(session, tokens.hash_token(cookie, key))


def person_of(session: Session, cookie: str, now: datetime, key: bytes) -> Person | None:
    """Who holds this cookie, with the role of now; None when the session ran out or the person is disabled."""
    if not cookie:
        return None
    found = people.session_of(session, tokens.hash_token(cookie, key), now)
    return Person(found[1].name, found[1].role, found[0].csrf) if found is not None else None


def token_of(session: Session, bearer: str, now: datetime, key: bytes) -> Caller | None:
    """Which program holds this token (without the word Bearer); None when unknown, revoked or run out."""
    row = people.token_by_hash(session, tokens.hash_token(bearer, key), now) if bearer else None
    return Caller(row.id, row.name, row.scope) if row is not None and row.id is not None else None


def _fresh_user(session: Session, name: str) -> User | None:
    """The person of this name who may sign in; a name that a database refuses is nobody's."""
    found = people.user(session, name) if name.isprintable() and len(name) <= 64 else None
    return found if found is not None and found.disabled_at is None else None


def _open(session: Session, known: User, rules: Security, now: datetime, key: bytes) -> str:
    cookie = tokens.new_cookie()
    secret = csrf.new_csrf()
    people.add_session(session, _id(known), tokens.hash_token(cookie, key), secret, now, rules.session_s)
    return cookie


def _id(known: User) -> int:
    assert known.id is not None
    return known.id


# --- loopback -------------------------------------------------------------------------------------------------------


def is_loopback(peer: str | None, bind: str, headers: Mapping[str, str]) -> bool:
    """True when the request comes from this very machine: peer and bind are loopback and nothing forwarded it.

    A web page open in somebody's browser here must not pass for a local program: the Host and Origin it sends
    (names, never addresses of ours) have to be loopback too.
    """
    if not (_is_local(peer or "") and _is_local(bind)):
        return False
    sent = {name.lower(): value for name, value in headers.items()}
    if any(name in FORWARDING or name.startswith("x-forwarded-") for name in sent):
        return False
    host, origin = sent.get("host"), sent.get("origin")
    return (host is None or _is_local(_host_of(f"//{host}"))) and (origin is None or _is_local(_host_of(origin)))


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_local(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
