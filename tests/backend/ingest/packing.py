"""Protobuf messages by hand, field by field, as tests send them."""

from __future__ import annotations


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def chunk(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def whole(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def fixed(number: int, value: bytes) -> bytes:
    return varint(number << 3 | {8: 1, 4: 5}[len(value)]) + value


def pair(key: str, value: str | int) -> bytes:
    """One attribute of OTLP."""
    said = chunk(1, value.encode()) if isinstance(value, str) else whole(3, value)
    return chunk(1, key.encode()) + chunk(2, said)
