"""Offline logs of W&B (``run-*.wandb``): records of a LevelDB log, each a protobuf Record, read without wandb.

Format: a head of 7 bytes (``:W&B``, 0xBEE1, version 0), then blocks of 32 KiB with records of CRC-32 (over type and
content), length (uint16), type (whole, first, middle, last). Record: history 2 of items 1 (key 1 or nested 2,
value_json 16) and step 2; run 17 with id 1 and display name 8.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from backend.ingest.base import SourceError
from backend.ingest.protobuf import fields, message, text, whole

HEAD, BLOCK = struct.pack("<4sHB", b":W&B", 0xBEE1, 0), 32_768
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
#: A record that is longer holds no history.
LONGEST = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a run's history, as it was logged."""

    run: str
    values: dict[str, Any]


def history(file: BinaryIO) -> Iterator[Row]:
    """The rows of one file, up to a last record that is still being written. Raises SourceError(permanent=True)."""
    if file.read(len(HEAD)) != HEAD:
        raise SourceError("No offline log of W&B: its first bytes are not those of one.", permanent=True)
    run = ""
    for record in _records(file):
        for number, value in fields(memoryview(record)):
            if number == 17:
                run = _name(message(value)) or run
            elif number == 2 and (values := _history(message(value))):
                yield Row(run, values)


def _records(file: BinaryIO) -> Iterator[bytes]:
    at = len(HEAD)
    parts: list[bytes] = []
    while True:
        if BLOCK - at % BLOCK < 7:
            at += len(file.read(BLOCK - at % BLOCK))
        head = file.read(7)
        if len(head) < 7:
            return
        crc, length, kind = struct.unpack("<IHB", head)
        body = file.read(length)
        if len(body) < length:
            return
        if kind == 0 and length == 0 and crc == 0:
            return  # room that was set aside and not written
        if zlib.crc32(body, zlib.crc32(bytes([kind]))) != crc:
            raise SourceError(f"byte {at:,}: the CRC of a record is wrong.", permanent=True)
        at += 7 + length
        parts = [body] if kind in (WHOLE, FIRST) else [*parts, body]
        if kind in (WHOLE, LAST) and sum(map(len, parts)) <= LONGEST:
            yield b"".join(parts)


def _name(raw: memoryview) -> str:
    told = {number: text(value) for number, value in fields(raw) if number in (1, 8)}
    return told.get(8) or told.get(1, "")


def _history(raw: memoryview) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in fields(raw):
        if number == 2:
            for n, one in fields(message(value)):
                if n == 1:
                    found["_step"] = whole(one)
        elif number == 1:
            found |= _item(message(value))
    return found


def _item(raw: memoryview) -> dict[str, Any]:
    """One number of a row by its key; nothing where it is no JSON."""
    told: dict[int, list[str]] = {1: [], 2: [], 16: []}
    for number, value in fields(raw):
        if number in told:
            told[number].append(text(value))
    key, said = (told[1] or ["/".join(told[2])])[-1], (told[16] or [""])[-1]
    try:
        return {key: orjson.loads(said)}
    except orjson.JSONDecodeError:
        return {key: float(said)} if said in ("NaN", "Infinity", "-Infinity") else {}
