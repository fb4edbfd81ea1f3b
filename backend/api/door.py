"""How HTTP comes in: uvicorn's own protocol, past which a plain question of a scheduler goes straight to the front.

Of a request that is one piece, as programs send it, nothing is left to do but to look it up: no task, no message to
and fro. Whatever is not exactly of that form (more or less than one request, another method, any header that changes
how a message is read) goes to uvicorn untouched.
"""

from __future__ import annotations

import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from backend.answers.ready import Page, is_known
from backend.api.front import Front, Headers, value_of

#: One header of the usual form: its name is a token, and its value has no control characters (RFC 9110, 5.5).
FIELD = rb"[A-Za-z0-9-]{1,64}:[\t\x20-\x7e]*\r\n"
ONE = re.compile(
    rb"GET /api/v1/nodes/([A-Za-z0-9_.-]{1,255})(?:\?([\x21\x24-\x7e]*))? HTTP/1\.1\r\n((?:" + FIELD + rb"){0,40})\r\n"
)
MANY = re.compile(
    rb"POST /api/v1/exclusions/query(?:\?([\x21\x24-\x7e]*))? HTTP/1\.1\r\n((?:" + FIELD + rb"){1,40})\r\n"
)
GET, POST = b"GET /api/v1/nodes/", b"POST /api/v1/exclusions/query"
#: With one of these a message is read, or a connection used, in another way.
OTHERWISE = frozenset((b"transfer-encoding", b"upgrade", b"expect", b"te", b"trailer"))
OF_GET = OTHERWISE | {b"content-length"}
JSON = b"application/json"


class Door(HttpToolsProtocol):
    """One connection. ``_inside``: uvicorn is in the middle of a message, so what comes next belongs to it."""

    _inside = False
    _timer: Any = None
    _used_at = 0.0
    _block = b""
    _headers: Headers = ()
    _plain = False
    _front: Front | None = None
    _told: object = None
    _always = b""

    def connection_made(self, transport: Any) -> None:
        found = getattr(self.config.app, "front", None)
        self._front = found if isinstance(found, Front) else None
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if data.startswith((GET, POST)) and self._is_quiet():
            answer = self._get(data) if data.startswith(GET) else self._post(data)
            if answer is not None:
                self._answered(answer)
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._inside = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._inside = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _is_quiet(self) -> bool:
        """Nothing of this connection is under way, and its other end takes what it is sent."""
        cycle: Any = self.cycle  # None before the first message, whatever its type says
        under_way = self._inside or (cycle is not None and not cycle.response_complete) or self.pipeline
        return not under_way and not self.flow.write_paused and not self.transport.is_closing()

    def _get(self, data: bytes) -> bytes | None:
        asked, front = ONE.fullmatch(data), self._front
        if asked is None or front is None:
            return None
        node, query, block = asked.groups()
        if not self._read(block, OF_GET):
            return None
        page = front.node(node.decode("ascii"), query or b"", self._headers, self.client)
        return None if page is None else self._of_page(page)

    def _post(self, data: bytes) -> bytes | None:
        asked, front = MANY.match(data), self._front
        if asked is None or front is None:
            return None
        query, block = asked.groups()
        body = data[asked.end() :]
        if not self._read(block, OTHERWISE) or value_of(self._headers, b"content-length") != b"%d" % len(body):
            return None
        if value_of(self._headers, b"content-type") != JSON or value_of(self._headers, b"content-encoding"):
            return None
        said = front.query(body, query or b"", self._headers, self.client)
        return None if said is None else self._begun(b"200 OK", b"content-length: %d\r\n" % len(said)) + said

    def _read(self, block: bytes, otherwise: frozenset[bytes]) -> bool:
        """The headers, read once for all requests of this connection that send the same; False where one of them
        asks for another way. A message without Host, or with two, is uvicorn's to refuse."""
        if block != self._block:
            fields = [line.partition(b":") for line in block.split(b"\r\n")[:-1]]
            self._headers = [(name.lower(), value.strip(b" \t")) for name, _, value in fields]
            self._block = block
            kept = all(value.lower() == b"keep-alive" for name, value in self._headers if name == b"connection")
            self._plain = kept and sum(name == b"host" for name, _ in self._headers) == 1
        return self._plain and otherwise.isdisjoint(name for name, _ in self._headers)

    def _of_page(self, page: Page) -> bytes:
        known = value_of(self._headers, b"if-none-match")
        if known and is_known(page.mark, known):
            return self._begun(b"304 Not Modified", b"etag: " + page.mark + b"\r\ncache-control: no-cache\r\n")
        head = b"etag: %b\r\ncache-control: no-cache\r\ncontent-length: %d\r\n" % (page.mark, len(page.body))
        return self._begun(b"200 OK", head) + page.body

    def _begun(self, status: bytes, head: bytes) -> bytes:
        if self._told is not self.server_state.default_headers:  # another list each second, for the date
            self._told = self.server_state.default_headers
            self._always = b"".join(b"%b: %b\r\n" % header for header in self.server_state.default_headers)
        kind = b"" if status[:1] == b"3" else b"content-type: application/json\r\n"
        return b"HTTP/1.1 " + status + b"\r\n" + self._always + head + kind + b"\r\n"

    def _answered(self, answer: bytes) -> None:
        self.server_state.total_requests += 1
        self._unset_keepalive_if_required()
        self.transport.write(answer)
        self._used_at = self.loop.time()
        if self._timer is None:
            self._timer = self.loop.call_later(self.timeout_keep_alive, self._idle)

    def _idle(self) -> None:
        """A connection that nobody uses ends, as one of uvicorn's does; one timer a connection, not one a request."""
        self._timer = None
        if self.transport.is_closing() or not self._is_quiet() or self.timeout_keep_alive_task is not None:
            return
        left = self._used_at + self.timeout_keep_alive - self.loop.time()
        if left <= 0:
            self.transport.close()
        else:
            self._timer = self.loop.call_later(left, self._idle)
