"""Sign-in and rights: who is asking, and may they."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from sqlmodel import Session

from backend.model.people import Session as SessionRow
from backend.model.people import Token, User
from backend.security import csrf, passwords, tokens
from backend.settings_identity import Security, Vouching
from backend.store import people, tries
from backend.store.engine import Store

#: Each role may do all that the ones before it may.
ROLES = people.ROLES
#: What each right needs at least ("Rights" in the contracts).
RIGHTS: Mapping[str, str] = {
    "hardware": "vendor",
    "read": "viewer",
    "acknowledge": "operator",
    "note": "operator",
    "label": "operator",
    "silence": "operator",
    "exclude": "operator",
    "backtest": "operator",
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
SCOPE_ROLE: Mapping[str, str] = {
    "ingest": "",
    "vendor": "vendor",
    "read": "viewer",
    "operate": "operator",
    "approve": "approver",
}
#: A request that carries one of these came through a proxy, so its peer says nothing about who asks.
FORWARDING = ("forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip", "x-original-host")


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks. role "" may do nothing that a person may. ``csrf`` is the secret that this session's forms carry.

    ``clusters`` and ``projects`` are what the role holds for, ``nodes`` what a vendor sees; empty = all of them.
    """

    name: str
    role: str
    csrf: str = ""
    clusters: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    def sees_cluster(self, cluster: str) -> bool:
        return not self.clusters or cluster in self.clusters

    def sees_project(self, project: str) -> bool:
        """``project``: the account or team of a job; one that is not known is nobody's but theirs who see all."""
        return not self.projects or project in self.projects


@dataclass(frozen=True, slots=True)
class Caller:
    """A program with a token: its name, and the scope ingest, vendor, read, operate or approve.

    ``nodes``: the only ones that an ingest token may speak of; empty = any.
    """

    token_id: int
    name: str
    scope: str
    clusters: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    nodes: frozenset[str] = frozenset()
    expires_at: datetime | None = None

    @property
    def person(self) -> Person:
        """The token as a person: audit rows name it ``token:<name>``."""
        role = SCOPE_ROLE.get(self.scope, "")
        return Person(f"token:{self.name}", role, "", self.clusters, self.projects, tuple(sorted(self.nodes)))


@dataclass(frozen=True, slots=True)
class Whence:
    """Where a sign-in comes from: the address of the client, and what its browser calls itself."""

    address: str = ""
    agent: str = ""


NOWHERE = Whence()
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


def sign_in(
    store: Store, rules: Security, name: str, password: str, now: datetime, key: bytes, whence: Whence = NOWHERE
) -> str:
    """The cookie of a new session. Raises SignInError, in the same words and as slowly whether the name is unknown, the
    password wrong, or the account or the address waits: who is told which would learn who has an account.

    Takes the store, not a session: a failed try must be committed although this raises, and the slow hash must not
    hold the one writer of SQLite.
    """
    keys = _counted_under(rules, name, whence)
    with store.write() as session:
        known = _fresh_user(session, name)
        counts = [tries.count(session, one, now, after, rules.lockout_s) for one, after in keys.items()]
        if any(locks for _, locks in counts):
            shown = name if name.isprintable() and len(name) <= 64 else "a name that nobody can have"
            people.audit(session, now, "", "sign-in waits", shown, {"address": whence.address})
    right = passwords.verify_password(password, known.password_hash if known else None)
    wait = max((until for until, _ in counts if until is not None), default=None)
    if known is None or not right or wait is not None:
        raise SignInError("Name or password is wrong.", wait_s=(wait - now).total_seconds() if wait else 0.0)
    with store.write() as session:
        tries.forget(session, tries.name_key(name))
        if whence.address:
            tries.forgive(session, tries.address_key(whence.address))
        if passwords.is_outdated(known.password_hash):
            people.set_hash(session, _id(known), passwords.hash_password(password))
        return _open(session, known, rules, now, key, whence, "password")


def _counted_under(rules: Security, name: str, whence: Whence) -> dict[str, int]:
    """What a try counts for, and how many are too many."""
    address = {tries.address_key(whence.address): rules.lockout_address_after} if whence.address else {}
    return {tries.name_key(name): rules.lockout_after} | address


def sign_in_as(
    store: Store,
    rules: Security,
    name: str,
    now: datetime,
    key: bytes,
    whence: Whence = NOWHERE,
    by: str = "demo",
) -> str:
    """The cookie of a session without a password: for the demo's own person, on loopback; and for somebody whose
    password was just asked for."""
    with store.write() as session:
        known = _fresh_user(session, name)
        if known is None:
            raise SignInError(f"There is nobody named {name}.")
        return _open(session, known, rules, now, key, whence, by)


def sign_in_vouched(
    store: Store, rules: Security, given: Vouched, now: datetime, key: bytes, whence: Whence = NOWHERE
) -> str:
    """The cookie of a session of somebody for whom an issuer or a proxy vouches. Raises SignInError: no role, a name
    that another person has, or a person whom an admin disabled here."""
    with store.write() as session:
        known = people.user_of(session, given.origin, given.subject)
        if not given.role:
            if known is not None and known.id is not None:
                people.end_sessions(session, known.id)
            refused = f"{given.name} is in no group that may sign in here. Ask an admin which groups may."
        elif known is not None and known.disabled_at is not None:
            refused = "This account is disabled here."
        else:
            try:
                row = people.vouched_user(
                    session, given.origin, given.subject, given.name, given.role, given.scope, now
                )
            except ValueError as error:
                refused = f"Nobody was signed in: {error}."
            else:
                return _open(session, row, rules, now, key, whence, given.origin)
    raise SignInError(refused)


def sign_out(session: Session, cookie: str, key: bytes) -> bool:
    """End the session of this cookie; False where it had none."""
    return people.end_session(session, tokens.hash_token(cookie, key))


def signed_out(session: Session, name: str, cookie: str, now: datetime, key: bytes) -> None:
    """As sign_out, by the person themselves, with its audit row."""
    if sign_out(session, cookie, key):
        people.audit(session, now, name, "sign out", name)


def sign_out_of(store: Store, cookie: str, key: bytes) -> None:
    """As sign_out, in a transaction of its own."""
    with store.write() as session:
        sign_out(session, cookie, key)


def person_of(session: Session, cookie: str, now: datetime, key: bytes) -> Person | None:
    """Who holds this cookie, with the role of now; None when the session ran out or the person is disabled."""
    found = session_of(session, cookie, now, key)
    return as_person(found[1], found[0].csrf) if found is not None else None


def session_of(session: Session, cookie: str, now: datetime, key: bytes) -> tuple[SessionRow, User] | None:
    return people.session_of(session, tokens.hash_token(cookie, key), now) if cookie else None


def as_person(known: User, secret: str = "") -> Person:
    return Person(known.name, known.role, secret, tuple(known.clusters), tuple(known.projects), tuple(known.nodes))


def kept_alive(store: Store, rules: Security, cookie: str, now: datetime, key: bytes) -> str:
    """Note that the session is in use, at most once in SEEN_EVERY; the new cookie where it is time for one, else ""."""
    with store.read() as session:
        found = session_of(session, cookie, now, key)
        if found is None or now - found[0].last_used_at < people.SEEN_EVERY:
            return ""
    with store.write() as session:
        found = session_of(session, cookie, now, key)
        if found is None:
            return ""
        people.use_session(session, found[0], now, rules.idle_s)
        if (now - found[0].created_at).total_seconds() < rules.renew_s:
            return ""
        fresh = tokens.new_cookie()
        people.renew_session(session, found[0], tokens.hash_token(fresh, key), now)
        return fresh


def token_of(session: Session, bearer: str, now: datetime, key: bytes) -> Caller | None:
    """Which program holds this token (without the word Bearer); None when unknown, revoked or run out."""
    row = people.token_by_hash(session, tokens.hash_token(bearer, key), now) if bearer else None
    return as_caller(row) if row is not None else None


def as_caller(row: Token) -> Caller:
    assert row.id is not None
    return Caller(
        row.id, row.name, row.scope, tuple(row.clusters), tuple(row.projects), frozenset(row.nodes), row.expires_at
    )


def _fresh_user(session: Session, name: str) -> User | None:
    """The person of this name who may sign in; a name that a database refuses is nobody's."""
    found = people.user(session, name) if name.isprintable() and len(name) <= 64 else None
    return found if found is not None and found.disabled_at is None else None


def _open(session: Session, known: User, rules: Security, now: datetime, key: bytes, whence: Whence, by: str) -> str:
    """A new session under a new cookie; what was signed in before stays as it is."""
    cookie, secret = tokens.new_cookie(), csrf.new_csrf()
    hashed = tokens.hash_token(cookie, key)
    lasts = (rules.session_s, rules.idle_s)
    people.add_session(session, _id(known), hashed, secret, now, *lasts, whence.address, whence.agent)
    people.audit(session, now, known.name, "sign in", known.name, {"by": by, "address": whence.address})
    return cookie


def _id(known: User) -> int:
    assert known.id is not None
    return known.id


@dataclass(frozen=True, slots=True)
class Vouched:
    """What an issuer (oidc) or a proxy says of somebody; role "" = none of their groups gives one."""

    origin: str
    subject: str
    name: str
    role: str
    scope: people.Scope = people.EVERYTHING


def role_of(rules: Vouching, groups: Collection[str]) -> str:
    """The highest role that one of the groups gives; else ``otherwise``."""
    for role in ("admin", "approver", "operator", "viewer"):
        if set(getattr(rules, role)) & set(groups):
            return role
    return rules.otherwise


# --- loopback -------------------------------------------------------------------------------------------------------


def is_loopback(peer: str | None, bind: str, headers: Mapping[str, str]) -> bool:
    """True when the request comes from this very machine: peer and bind are loopback and nothing forwarded it.

    A web page open in somebody's browser here must not pass for a local program: the Host and Origin it sends
    (names, never addresses of ours) have to be loopback too.
    """
    if not (is_loopback_address(peer or "") and is_loopback_address(bind)):
        return False
    sent = {name.lower(): value for name, value in headers.items()}
    if any(name in FORWARDING or name.startswith("x-forwarded-") for name in sent):
        return False
    host, origin = sent.get("host"), sent.get("origin")
    return (host is None or is_loopback_address(_host_of(f"//{host}"))) and (
        origin is None or is_loopback_address(_host_of(origin))
    )


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_loopback_address(host: str) -> bool:
    """True for localhost and every address of loopback."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
