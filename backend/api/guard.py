"""Who is asking, may they, and about which cluster: what every route depends on."""

from __future__ import annotations

import threading
import time
from typing import Annotated

from fastapi import Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from backend import auth
from backend.api.problems import Problem
from backend.auth import Caller, Person
from backend.registry import Parts
from backend.security import csrf, tokens
from backend.store import people
from backend.watch import Watch

#: A token's last use is written no more often than this by one process.
TOUCH_S = 3600.0
SIGN_IN = "Sign in, or send a token: Authorization: Bearer wk_..."


class Callers:
    """Which tokens this process has seen lately, so that reading with one does not become writing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._touched: dict[int, float] = {}

    def due(self, token_id: int) -> bool:
        """True once in TOUCH_S: then the caller writes down that the token is in use."""
        now = time.monotonic()
        with self._lock:
            if now - self._touched.get(token_id, -TOUCH_S) < TOUCH_S:
                return False
            self._touched[token_id] = now
            return True


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


def is_local(request: Request, parts: Parts) -> bool:
    peer = request.client.host if request.client else None
    return auth.is_loopback(peer, parts.settings.server.host, request.headers)


async def caller_of(request: Request, parts: Parts) -> Caller | None:
    """The program behind a bearer token; None where none was sent. Raises Problem 401 for a token nobody knows."""
    bearer = tokens.bearer_of(request.headers.get("authorization", ""))
    if not bearer:
        return None
    caller = await run_in_threadpool(_look_up, request, parts, bearer)
    if caller is None:
        raise unauthorized("This token is unknown, revoked or run out; an admin makes another: watchkeeper tokens add.")
    return caller


def _look_up(request: Request, parts: Parts, bearer: str) -> Caller | None:
    now = parts.clock.now()
    with parts.store.read() as session:
        caller = auth.token_of(session, bearer, now, parts.secret)
    callers = request.app.state.callers
    assert isinstance(callers, Callers)
    if caller is not None and callers.due(caller.token_id):
        with parts.store.write() as session:
            people.touch_token(session, caller.token_id, now)
    return caller


async def signed_in(request: Request, parts: Parts) -> Person | None:
    """The person behind the session cookie."""
    cookie = request.cookies.get(auth.COOKIE, "")
    return await run_in_threadpool(_person, parts, cookie) if cookie else None


def _person(parts: Parts, cookie: str) -> Person | None:
    with parts.store.read() as session:
        return auth.person_of(session, cookie, parts.clock.now(), parts.secret)


def unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})


async def reader(request: Request, parts: Annotated[Parts, Depends(parts_of)]) -> Person:
    """Whoever may read: a token of scope read or above, a signed-in person, or anybody on loopback."""
    caller = await caller_of(request, parts)
    if caller is not None:
        if not auth.allows(caller.person, "viewer"):
            raise Problem(403, f"Token {caller.name} has scope {caller.scope}; reading needs read, operate or approve.")
        return caller.person
    person = await signed_in(request, parts)
    if person is not None:
        return person
    if is_local(request, parts):
        return auth.LOCAL
    raise unauthorized(SIGN_IN)


async def writer(request: Request, parts: Annotated[Parts, Depends(parts_of)]) -> Person:
    """Whoever writes in their own name: a token, or a signed-in person whose request is not forged. Loopback alone is
    nobody's name. Which role a write needs is checked with the write."""
    caller = await caller_of(request, parts)
    if caller is not None:
        if not caller.person.role:
            raise Problem(403, f"Token {caller.name} has scope {caller.scope}; writes need operate or approve.")
        return caller.person
    person = await signed_in(request, parts)
    if person is None:
        raise unauthorized(f"A write needs a name, also on loopback. {SIGN_IN}")
    ours = csrf.is_ours(request.headers.get(csrf.HEADER), person.csrf)
    if not ours or not csrf.same_origin(request.headers.get("origin"), request.headers.get("host")):
        raise Problem(
            403, f"With a session cookie a write also needs the session's {csrf.HEADER} header, from this site."
        )
    return person


async def sender(request: Request, parts: Annotated[Parts, Depends(parts_of)]) -> str:
    """Whoever may bring telemetry: a token of scope ingest, or anything on loopback. The name, for the log."""
    caller = await caller_of(request, parts)
    if caller is not None:
        if caller.scope != "ingest":
            raise Problem(403, f"Token {caller.name} has scope {caller.scope}; ingest needs a token of scope ingest.")
        return caller.name
    if is_local(request, parts):
        return auth.LOCAL.name
    raise unauthorized("Off loopback ingest needs a token of scope ingest: Authorization: Bearer wk_...")


Reader = Annotated[Person, Depends(reader)]
Writer = Annotated[Person, Depends(writer)]
Sender = Annotated[str, Depends(sender)]
