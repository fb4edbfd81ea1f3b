"""Protobuf messages field by field, without a schema compiler: what senders of logs push."""

from __future__ import annotations

from collections.abc import Iterator

from backend.ingest.base import SourceError

#: Wire types (protobuf encoding guide).
VARINT, FIXED64, CHUNK, FIXED32 = 0, 1, 2, 5
#: A varint of 64 bits has at most this many bytes.
VARINT_BYTES = 10


def fields(raw: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of each field of one message: a varint as a whole number, anything else as its bytes.

    Raises SourceError(permanent=True) that says at which byte it is none.
    """
    at = 0
    while at < len(raw):
        begin = at
        tag, at = _varint(raw, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = _varint(raw, at)
            yield number, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(kind, -1)
        if kind == CHUNK:
            size, at = _varint(raw, at)
        if size < 0 or not number or size > len(raw) - at:
            raise _bad(begin)
        yield number, raw[at : at + size]
        at += size


def text(value: int | memoryview) -> str:
    """A field that is a string; bytes that are no UTF-8 are replaced."""
    if isinstance(value, int):
        raise SourceError("The body is no protobuf of the kind that was announced.", permanent=True)
    return bytes(value).decode(errors="replace")


def message(value: int | memoryview) -> memoryview:
    """A field that is a message."""
    return value if isinstance(value, memoryview) else memoryview(b"")


def whole(value: int | memoryview) -> int:
    """A field that is a whole number, with its sign."""
    if not isinstance(value, int):
        raise SourceError("The body is no protobuf of the kind that was announced.", permanent=True)
    return value - (1 << 64) if value >> 63 else value


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(VARINT_BYTES):
        if at + shift >= len(raw):
            break
        byte = raw[at + shift]
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value & ((1 << 64) - 1), at + shift + 1
    raise _bad(at)


def _bad(at: int) -> SourceError:
    return SourceError(f"The body is no protobuf message: byte {at:,} begins no field of it.", permanent=True)
