"""TensorBoard event files: records of TFRecord, each a protobuf Event, read without TensorFlow.

Format: length (uint64), its masked CRC-32C, the record, its masked CRC-32C, all little endian. Event: wall_time 1, step
2, summary 5 of values 1 with tag 1 and a number as simple_value 2 or as a tensor 8.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from backend.ingest.base import SourceError
from backend.ingest.protobuf import fields, message, text, whole

#: Longer records hold images or graphs, and no number.
LONGEST = 1_048_576
_POLYNOMIAL, _MASK = 0x82F63B78, 0xA282EAD8


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number: ``at`` unix s."""

    at: float
    step: int
    tag: str
    value: float


def scalars(file: BinaryIO) -> Iterator[Scalar]:
    """The numbers of one file, up to a last record that is still being written. Raises SourceError(permanent=True) that
    says at which byte a record is broken."""
    table = _table()
    for record in _records(file, table):
        yield from _event(record)


def _records(file: BinaryIO, table: list[int]) -> Iterator[bytes]:
    at = 0
    while len(head := file.read(12)) == 12:
        length, told = struct.unpack("<QI", head)
        if masked(head[:8], table) != told:
            raise SourceError(
                f"byte {at:,}: no event file, or a broken one: the CRC of a length is wrong.", permanent=True
            )
        body = file.read(length + 4) if length <= LONGEST else b""
        if length > LONGEST:
            file.seek(length + 4, 1)
        elif len(body) < length + 4:
            return  # it is still being written
        elif masked(body[:-4], table) != struct.unpack("<I", body[-4:])[0]:
            raise SourceError(f"byte {at:,}: the CRC of a record is wrong.", permanent=True)
        else:
            yield body[:-4]
        at += length + 16


def _table() -> list[int]:
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        found.append(byte)
    return found


def masked(body: bytes, table: list[int] | None = None) -> int:
    """The masked CRC-32C (Castagnoli) of TFRecord."""
    table = table or _table()
    crc = 0xFFFFFFFF
    for byte in body:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def _event(record: bytes) -> Iterator[Scalar]:
    at, step = math.nan, 0
    values = []
    for number, value in fields(memoryview(record)):
        if number == 1 and isinstance(value, memoryview) and len(value) == 8:
            at = struct.unpack("<d", value)[0]
        elif number == 2:
            step = whole(value)
        elif number == 5:
            values += [message(one) for n, one in fields(message(value)) if n == 1]
    for one in values:
        tag, found = _value(one)
        if tag and found is not None:
            yield Scalar(at, step, tag, found)


def _value(raw: memoryview) -> tuple[str, float | None]:
    tag, found = "", None
    for number, value in fields(raw):
        if number == 1:
            tag = text(value)
        elif number == 2 and isinstance(value, memoryview) and len(value) == 4:
            found = struct.unpack("<f", value)[0]
        elif number == 8:
            found = _tensor(message(value))
    return tag, found


def _tensor(raw: memoryview) -> float | None:
    """A tensor of one number, float (dtype 1) or double (2); None for any other."""
    kind, content = 0, b""
    for number, value in fields(raw):
        if number == 1:
            kind = whole(value)
        elif number in (4, 5, 6) and isinstance(value, memoryview):
            content = bytes(value)
    form = {1: "<f", 2: "<d"}.get(kind, "")
    return float(struct.unpack(form, content)[0]) if form and len(content) == struct.calcsize(form) else None
