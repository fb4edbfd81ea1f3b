"""Protobuf messages field by field, without a schema compiler: what senders of metrics and of logs push."""

from __future__ import annotations

from collections.abc import Iterator

from backend.ingest.base import SourceError

#: Wire types (protobuf encoding guide).
VARINT, FIXED64, CHUNK, FIXED32 = 0, 1, 2, 5
#: A varint of 64 bits has at most this many bytes.
VARINT_BYTES = 10
_SIZES = {FIXED64: 8, FIXED32: 4}
#: Number, wire type, start, end; of a varint ``end`` is its value.
Field = tuple[int, int, int, int]


class Malformed(ValueError):
    """At byte ``at`` stands ``what``; ``cut``: more bytes would have mended it."""

    def __init__(self, what: str, at: int, *, cut: bool = False) -> None:
        super().__init__(f"byte {at:,}: {what}")
        self.what, self.at, self.cut = what, at, cut


def spans(raw: memoryview, at: int, end: int) -> Iterator[Field]:
    """The fields of the message that stands in ``raw[at:end]``. Raises Malformed."""
    while at < end:
        begin = at
        tag, at = varint(raw, at, end, "a field's tag")
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise Malformed("field number 0", begin)
        if kind == VARINT:
            start = at
            value, at = varint(raw, at, end, f"field {number}")
            yield number, kind, start, value
            continue
        if kind == CHUNK:
            size, at = varint(raw, at, end, f"the length of field {number}")
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise Malformed(f"wire type {kind}", begin)
        if size > end - at:
            raise Malformed(f"field {number} needs {size} bytes and {end - at} are left", begin, cut=True)
        yield number, kind, at, at + size
        at += size


def varint(raw: memoryview, at: int, end: int, what: str) -> tuple[int, int]:
    """(value below 2^64, position after it). Raises Malformed that names ``what`` it should have been."""
    begin, value = at, 0
    for shift in range(0, 7 * VARINT_BYTES, 7):
        if at >= end:
            raise Malformed(f"{what} is cut off", begin, cut=True)
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise Malformed(f"{what} is no varint", begin)


def fields(raw: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of each field of one message: a varint as a whole number, anything else as its bytes.

    Raises SourceError(permanent=True) that says at which byte it is none.
    """
    try:
        for number, kind, start, end in spans(raw, 0, len(raw)):
            yield number, end if kind == VARINT else raw[start:end]
    except Malformed as error:
        raise SourceError(f"The body is no protobuf message: {error}.", permanent=True) from error


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
