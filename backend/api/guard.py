"""Who is asking, may they, and about which cluster: what every route depends on."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from backend import auth, rights
from backend.api.problems import Problem
from backend.api.token_book import TokenBook
from backend.auth import Caller, Person, Vouched
from backend.identity import proxy
from backend.registry import Parts
from backend.security import csrf, tokens
from backend.store import people
from backend.watch import Watch

#: Where the API stands.
API = "/api/v1"
SIGN_IN = "Sign in, or send a token: Authorization: Bearer wk_..."


# --- parts ----------------------------------------------------------------------------------------------------------


async def parts_of(request: Request) -> Parts:
    found = request.app.state.parts
    assert isinstance(found, Parts)
    return found


async def watch_of(
    parts: Annotated[Parts, Depends(parts_of)],
    cluster: Annotated[str, Query(description="Which cluster; may be left out where there is only one.")] = "",
) -> Watch:
    """The cluster a request is about. Raises Problem: 404 for an unknown one, 422 where several leave it open."""
    names = ", ".join(sorted(parts.watches))
    if cluster:
        if cluster not in parts.watches:
            raise Problem(404, f"No cluster {cluster!r} here; there is {names}.")
        return parts.watches[cluster]
    if len(parts.watches) != 1:
        raise Problem(
            422, f"Say which cluster: ?cluster= one of {names}.", errors=[{"where": "query.cluster", "what": "missing"}]
        )
    return next(iter(parts.watches.values()))


# --- who ------------------------------------------------------------------------------------------------------------


def peer_of(request: Request) -> str | None:
    return request.client.host if request.client else None


def is_local(request: Request, parts: Parts) -> bool:
    """From this very machine, and by no proxy of ours: what comes through one may come from anywhere."""
    peer = peer_of(request)
    if proxy.is_trusted(parts.settings.proxy, peer):
        return False
    return auth.is_loopback(peer, parts.settings.server.host, request.headers)


def book_of(request: Request) -> TokenBook:
    found = request.app.state.callers
    assert isinstance(found, TokenBook)
    return found


async def caller_of(request: Request, parts: Parts) -> Caller | None:
    """The program behind a bearer token; None where none was sent. Raises Problem 401 for a token nobody knows."""
    bearer = tokens.bearer_of(request.headers.get("authorization", ""))
    if not bearer:
        return None
    book = book_of(request)
    if not book.is_fresh():
        await run_in_threadpool(book.read, parts)
    caller = book.find(bearer, parts.clock.now(), parts.secret)
    if caller is None:
        await run_in_threadpool(book.read, parts, anew=True)
        caller = book.find(bearer, parts.clock.now(), parts.secret)
    if caller is None:
        raise unauthorized("This token is unknown, revoked or run out; an admin makes another: watchkeeper tokens add.")
    if book.due():
        await run_in_threadpool(book.write, parts)
    return caller


async def signed_in(request: Request, parts: Parts) -> Person | None:
    """The person behind the session cookie, or whom the proxy in front vouches for: then without a session, to read."""
    cookie = request.cookies.get(auth.COOKIE, "")
    given = proxy.vouched(parts.settings.proxy, peer_of(request), request.headers)
    if not cookie and given is None:
        return None
    return await run_in_threadpool(_person, parts, cookie, given)


def _person(parts: Parts, cookie: str, given: Vouched | None) -> Person | None:
    with parts.store.read() as session:
        person = auth.person_of(session, cookie, parts.clock.now(), parts.secret)
        if given is None:
            return person
        known = people.user_of(session, given.origin, given.subject)
    if known is None:
        taken = person is not None and person.name != given.name
        return None if taken or not given.role else Person(given.name, given.role)
    if known.disabled_at is not None or not given.role:
        return None
    return person if person is not None and person.name == known.name else Person(known.name, given.role)


def unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})


def within(request: Request, parts: Parts, person: Person) -> Person:
    """``person``, once it is clear that the route and the cluster asked for lie within what they are limited to. Raises
    Problem: 403 for a route that reaches further, 404 for a cluster that is, for them, not there."""
    request.state.person = person
    if not person.clusters and not person.projects:
        return person
    if far := rights.beyond(rule(request), person.clusters, person.projects):
        raise Problem(403, far)
    cluster = request.query_params.get("cluster", "") or (next(iter(parts.watches)) if len(parts.watches) == 1 else "")
    if cluster and not person.sees_cluster(cluster):
        raise Problem(404, f"No cluster {cluster!r} here; there is {', '.join(person.clusters)}.")
    return person


def rule(request: Request) -> rights.Rule:
    """What the route of this request needs, and how far it reaches."""
    route = request.scope.get("route")
    declared = str(getattr(route, "path", ""))
    return rights.rule_of(request.method, prefixed(request.url.path, declared))


def prefixed(asked: str, declared: str) -> str:
    """The whole path of a route that was declared without the prefix it was mounted under."""
    return API + declared if asked.startswith(API + "/") and not declared.startswith(API) else declared


def needs(person: Person, role: str, doing: str) -> Person:
    """Raises Problem 403 where they have not that role."""
    if not auth.allows(person, role):
        raise Problem(403, f"Your role is {person.role or 'none'}; {doing} needs {role}.")
    return person


async def anybody(request: Request, parts: Annotated[Parts, Depends(parts_of)]) -> Person:
    """Whoever has a role at all, a vendor's too: a token, a signed-in person, or anybody on loopback."""
    caller = await caller_of(request, parts)
    if caller is not None:
        if not caller.person.role:
            raise Problem(403, f"Token {caller.name} has scope {caller.scope}; reading needs read, operate or approve.")
        return within(request, parts, caller.person)
    person = await signed_in(request, parts)
    if person is not None:
        return within(request, parts, person)
    if is_local(request, parts):
        return within(request, parts, auth.LOCAL)
    raise unauthorized(SIGN_IN)


async def reader(person: Annotated[Person, Depends(anybody)]) -> Person:
    """Whoever may read: a token of scope read or above, a signed-in person, or anybody on loopback."""
    return needs(person, "viewer", "reading this")


async def writer(request: Request, parts: Annotated[Parts, Depends(parts_of)]) -> Person:
    """Whoever writes in their own name: a token, or a signed-in person whose request is not forged. Loopback alone is
    nobody's name. Which role a write needs is checked with the write."""
    caller = await caller_of(request, parts)
    if caller is not None:
        if not auth.allows(caller.person, "viewer"):
            raise Problem(403, f"Token {caller.name} has scope {caller.scope}; writes need operate or approve.")
        return within(request, parts, caller.person)
    person = await signed_in(request, parts)
    if person is None or not person.csrf:
        raise unauthorized(f"A write needs a name, also on loopback. {SIGN_IN}")
    ours = csrf.is_ours(request.headers.get(csrf.HEADER), person.csrf)
    if not ours or not csrf.same_origin(request.headers.get("origin"), request.headers.get("host")):
        raise Problem(
            403, f"With a session cookie a write also needs the session's {csrf.HEADER} header, from this site."
        )
    return within(request, parts, person)


async def admin(person: Annotated[Person, Depends(writer)]) -> Person:
    """An admin who changes people or tokens."""
    return needs(person, "admin", "people and tokens")


async def admin_reader(request: Request, parts: Annotated[Parts, Depends(parts_of)]) -> Person:
    """An admin who looks at people, tokens or the audit chain; loopback alone is none."""
    return needs(await anybody(request, parts), "admin", "people, tokens and audit")


async def sender(request: Request, parts: Annotated[Parts, Depends(parts_of)]) -> str:
    """Whoever may bring telemetry: a token of scope ingest, or anything on loopback. The name, for the log. To which
    nodes a token is bound stands in ``bound_to``."""
    caller = await caller_of(request, parts)
    if caller is not None:
        if caller.scope != "ingest":
            raise Problem(403, f"Token {caller.name} has scope {caller.scope}; ingest needs a token of scope ingest.")
        within(request, parts, Person(caller.name, "", "", caller.clusters))
        request.state.bound = caller.nodes
        day = parts.clock.now().date()
        if book_of(request).first_today(caller.token_id, request.url.path, day):
            await run_in_threadpool(noted, parts, caller, request.url.path, day)
        return caller.name
    if is_local(request, parts):
        return auth.LOCAL.name
    raise unauthorized("Off loopback ingest needs a token of scope ingest: Authorization: Bearer wk_...")


def bound_to(request: Request) -> frozenset[str]:
    """The only nodes that what this request brings may speak of; empty = any."""
    found: object = getattr(request.state, "bound", frozenset())
    assert isinstance(found, frozenset)
    return found


def noted(parts: Parts, caller: Caller, route: str, day: date) -> None:
    """Telemetry is far too much for a row each: who pushed what is in the audit once a day, by token and route."""
    with parts.store.write() as session:
        people.audit(session, parts.clock.now(), caller.person.name, "push", route, {"first of": day.isoformat()})


Reader = Annotated[Person, Depends(reader)]
Anybody = Annotated[Person, Depends(anybody)]
Writer = Annotated[Person, Depends(writer)]
Admin = Annotated[Person, Depends(admin)]
AdminReader = Annotated[Person, Depends(admin_reader)]
Sender = Annotated[str, Depends(sender)]
