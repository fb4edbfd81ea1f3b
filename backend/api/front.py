"""The front door of what schedulers ask all the time: one verdict, or which of these nodes; past FastAPI and threads.

It answers only what needs no second look: a token or loopback of whom all is known in memory, one cluster, a snapshot
at hand. All else goes on to the routes, which give the very same bytes (a test compares them).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend import auth
from backend.answers.ready import Page, Ready, is_known
from backend.api.token_book import TokenBook
from backend.auth import FORWARDING, SCOPE_ROLE, is_loopback_address
from backend.clients import hostlist
from backend.registry import Parts
from backend.snapshots import Snapshots

NODE = "/api/v1/nodes/"
QUERY = "/api/v1/exclusions/query"
#: A body beyond this goes to the route, in bytes; so does a hostlist beyond this, in characters.
MOST_BYTES, MOST_TEXT = 4_000_000, 64_000
#: A body that is not whole after this is left to the route, in seconds.
PROMPT_S = 5.0
#: Hosts by which this machine was asked that are remembered, so that each is looked at once.
MOST_HOSTS = 64
#: Names of one question that are answered at once; of more, the route makes a thread.
MOST_NAMES = 20_000
#: A question that also says for which job.
JOB = re.compile(rb"job=[A-Za-z0-9_.+-]{1,64}")
#: Who sent one of these is looked at by the route.
SECOND_LOOK = frozenset((b"cookie", b"origin", *(name.encode() for name in FORWARDING)))
READING = frozenset(scope for scope, role in SCOPE_ROLE.items() if role in auth.ROLES and role != "vendor")

Headers = Iterable[tuple[bytes, bytes]]
TYPE = (b"content-type", b"application/json")
CACHE = (b"cache-control", b"no-cache")


class Front:
    """An ASGI application before ``app``. Used by the event loop alone."""

    def __init__(self, app: ASGIApp, parts: Parts, snapshots: Snapshots, book: TokenBook) -> None:
        self._app = app
        self._parts = parts
        self._snapshots = snapshots
        self._book = book
        self._only = next(iter(parts.watches.values())) if len(parts.watches) == 1 else None
        self._loopback = is_loopback_address(parts.settings.server.host) and parts.settings.proxy is None
        self._most = min(MOST_BYTES, parts.settings.server.max_body_bytes)
        self._hosts: dict[bytes, bool] = {}
        self._busy: set[str] = set()
        self._tasks: set[asyncio.Future[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if method == "GET" and path.startswith(NODE):
            page = self.node(path[len(NODE) :], scope["query_string"], scope["headers"], scope["client"])
            if page is not None:
                await _sent(send, page, value_of(scope["headers"], b"if-none-match"))
                return
        elif method == "POST" and path == QUERY:
            body, receive = await _whole(scope, receive, self._most)
            said = self.query(body, scope["query_string"], scope["headers"], scope["client"])
            if said is not None:
                await _begun(send, 200, [(b"content-length", b"%d" % len(said)), TYPE])
                await send({"type": "http.response.body", "body": said})
                return
        await self._app(scope, receive, send)

    # --- what is asked: the answer, or None where a route has to look -----------------------------------------------

    def node(self, node: str, query: bytes, headers: Headers, peer: tuple[str, int] | None) -> Page | None:
        """The verdict of one node."""
        ready = self._ready()
        if ready is None or not node or "/" in node or not self.may_read(headers, peer):
            return None
        if query and (ready.seen.scoped or JOB.fullmatch(query) is None):
            return None
        return ready.page(node)

    def query(self, body: bytes, query: bytes, headers: Headers, peer: tuple[str, int] | None) -> bytes | None:
        """Which of these nodes to leave out."""
        ready = self._ready()
        if ready is None or not body or query not in (b"", b"advisory=1") or not self.may_read(headers, peer):
            return None
        names, fine = _names(body), ready.seen.fine
        if names is None:
            return None
        try:
            few = [name for name in names if name not in fine]
        except TypeError:
            return None  # what is no text cannot be a name
        known = ready.seen.nodes
        if not all(name in known or (isinstance(name, str) and hostlist.is_host(name)) for name in few):
            return None
        return ready.reply(few, advisory=bool(query)).body

    def _ready(self) -> Ready | None:
        watch = self._only
        if watch is None:
            return None
        ready, due = self._snapshots.newest(watch)
        if due and ready is not None:
            self._beside("snapshot", lambda: self._snapshots.renew(watch))
        return ready

    # --- who asks ---------------------------------------------------------------------------------------------------

    def may_read(self, headers: Headers, peer: tuple[str, int] | None) -> bool:
        """Whether they surely may; False also where somebody has to look twice."""
        bearer, host, looked = b"", b"", True
        for name, value in headers:
            if name == b"authorization":
                if bearer:
                    return False
                bearer = value
            elif name == b"host":
                host = value
            elif name in SECOND_LOOK or name.startswith(b"x-forwarded-"):
                looked = False
        if bearer:
            return bearer[:7] == b"Bearer " and self._holds(bearer[7:])
        return looked and self._loopback and self._is_local(peer, host)

    def _holds(self, bearer: bytes) -> bool:
        """A token that reads everything of this cluster, and is known to hold."""
        book, parts = self._book, self._parts
        if book.due() or not book.is_fresh():
            return False
        if book.is_ageing():
            self._beside("tokens", lambda: book.read(parts, anew=True))
        caller = book.find(bearer.decode("latin-1"), parts.clock.now(), parts.secret)
        return caller is not None and caller.scope in READING and not caller.clusters and not caller.projects

    def _is_local(self, peer: tuple[str, int] | None, host: bytes) -> bool:
        if peer is None or peer[0] not in ("127.0.0.1", "::1"):
            return False
        known = self._hosts.get(host)
        if known is None:
            sent = {"host": host.decode("latin-1")} if host else {}
            known = auth.is_loopback(peer[0], self._parts.settings.server.host, sent)
            if len(self._hosts) < MOST_HOSTS:
                self._hosts[host] = known
        return known

    def _beside(self, name: str, work: Callable[[], object]) -> None:
        """Do it in a thread, once at a time; what it raises is met again, and told, by the next who waits for it."""
        if name in self._busy:
            return
        self._busy.add(name)
        task = asyncio.get_running_loop().run_in_executor(None, work)
        self._tasks.add(task)

        def done(ended: asyncio.Future[Any]) -> None:
            self._busy.discard(name)
            self._tasks.discard(ended)
            if not ended.cancelled():
                ended.exception()

        task.add_done_callback(done)


def _names(body: bytes) -> list[Any] | None:
    """The names a question is about, where it is as plain as most are; None: the route reads it."""
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(asked, dict) or len(asked) != 1:
        return None
    given = asked.get("nodes")
    if isinstance(given, list):
        return given if len(given) <= MOST_NAMES else None
    given = asked.get("hostlist", given)
    if not isinstance(given, str) or len(given) > MOST_TEXT:
        return None
    try:
        found = hostlist.expand(given)
    except hostlist.HostlistError:
        return None
    return found if len(found) <= MOST_NAMES else None


async def _whole(scope: Scope, receive: Receive, most: int) -> tuple[bytes, Receive]:
    """The body, and a ``receive`` that brings it again for the route; empty where it is too large, slow or not JSON."""
    held: list[Message] = []
    size, whole = 0, False
    if value_of(scope["headers"], b"content-type").partition(b";")[0].strip() == b"application/json":
        try:
            async with asyncio.timeout(PROMPT_S):
                while not whole and size <= most:
                    held.append(await receive())
                    size += len(held[-1].get("body", b""))
                    whole = not held[-1].get("more_body", False)
        except TimeoutError:
            whole = False
    passed = iter(held)

    async def again() -> Message:
        return next(passed, None) or await receive()

    return (b"".join(one.get("body", b"") for one in held) if whole and size <= most else b""), again


def value_of(headers: Headers, wanted: bytes) -> bytes:
    """Every value of this name, by commas."""
    found = b""
    for name, value in headers:
        if name == wanted:
            found = found + b"," + value if found else bytes(value)
    return found


async def _sent(send: Send, page: Page, known: bytes) -> None:
    if known and is_known(page.mark, known):
        await _begun(send, 304, [(b"etag", page.mark), CACHE])
        await send({"type": "http.response.body", "body": b""})
        return
    length = (b"content-length", b"%d" % len(page.body))
    await _begun(send, 200, [(b"etag", page.mark), CACHE, length, TYPE])
    await send({"type": "http.response.body", "body": page.body})


async def _begun(send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
