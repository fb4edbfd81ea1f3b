"""Request bodies, bounded: read no further than the limit, unpack no further than the limit."""

from __future__ import annotations

import zlib

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.api.problems import Problem, answer

GZIP = 16 + zlib.MAX_WBITS


class BodyLimit:
    """ASGI middleware: a body over the limit ends in 413 as soon as that is known, and is not read any further."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if declared.isdigit() and int(declared) > self._limit:
            refused = too_large(self._limit)
            await answer(413, refused.detail, headers=refused.headers)(scope, receive, send)
            return
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._limit:
                raise too_large(self._limit)
            return message

        await self._app(scope, bounded, send)


def too_large(limit: int) -> HTTPException:
    """An HTTPException, because the framework hands only that on while it reads a body."""
    text = f"The body is larger than {limit:,} bytes. Send less at once, or raise [server] max_body_bytes."
    return HTTPException(413, text, headers={"Connection": "close"})


def unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its Content-Encoding. Raises Problem: 415 for one we do not take, 413 where it unpacks to more
    than ``limit`` bytes, 400 where it is broken."""
    match encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip":
            return _gunzipped(body, limit)
    raise Problem(415, f"Content-Encoding {encoding!r} is not taken here; send identity or gzip.")


def _gunzipped(body: bytes, limit: int) -> bytes:
    unpacking = zlib.decompressobj(GZIP)
    try:
        text = unpacking.decompress(body, limit + 1)
    except zlib.error as error:
        raise Problem(400, f"The body says gzip and is not: {error}.") from error
    if len(text) > limit:
        raise too_large(limit)
    if not unpacking.eof:
        raise Problem(400, "The gzip body ends too early; send it whole.")
    return text
