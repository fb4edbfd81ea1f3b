"""Request bodies, bounded: read no further than the limit, unpack no further than the limit."""

from __future__ import annotations

import asyncio
import gzip
import io
import zlib

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.api.problems import Problem, answer

#: A body is whole after this, in seconds, or is not read any further: 16 MB at 280 kB/s.
WITHIN_S = 60.0


class BodyLimit:
    """ASGI middleware: a body over the limit ends in 413 as soon as that is known, and is not read any further; one
    that is not whole after ``within_s`` ends in 408, for who drips must not hold a place for ever."""

    def __init__(self, app: ASGIApp, limit: int, within_s: float = WITHIN_S) -> None:
        self._app = app
        self._limit = limit
        self._within_s = within_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if declared.isdigit() and int(declared) > self._limit:
            refused = too_large(self._limit)
            await answer(413, refused.detail, headers=refused.headers)(scope, receive, send)
            return
        read, whole = 0, False
        until = asyncio.get_running_loop().time() + self._within_s

        async def bounded() -> Message:
            nonlocal read, whole
            if whole:
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise too_slow(self._within_s) from None
            read += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if read > self._limit:
                raise too_large(self._limit)
            return message

        await self._app(scope, bounded, send)


def too_large(limit: int) -> HTTPException:
    """An HTTPException, because the framework hands only that on while it reads a body."""
    text = f"The body is larger than {limit:,} bytes. Send less at once, or raise [server] max_body_bytes."
    return HTTPException(413, text, headers={"Connection": "close"})


def too_slow(within_s: float) -> HTTPException:
    """As above."""
    text = f"The body was not whole within {within_s:g} s. Send it faster, or in smaller parts."
    return HTTPException(408, text, headers={"Connection": "close"})


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
    """Every member of the file: shippers that append write one after the other (RFC 1952, 2.2)."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as members:
            text = members.read(limit + 1)
    except EOFError as error:
        raise Problem(400, "The gzip body ends too early; send it whole.") from error
    except (OSError, zlib.error) as error:
        raise Problem(400, f"The body says gzip and is not: {error}.") from error
    if len(text) > limit:
        raise too_large(limit)
    return text
