"""Column types shared by the tables: aware UTC times, enumerations as text, JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC in, aware UTC out. SQLite drops the zone, so it is put back; a naive time is refused."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive time {value!r}: every time in Watchkeeper is aware UTC")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


#: The largest number that a row can have, in 64 bits with sign; a larger one cannot even be asked for.
LARGEST_ID = 2**63 - 1
#: 64-bit row id; SQLite only counts up by itself for INTEGER.
RowId = BigInteger().with_variant(Integer, "sqlite")
Json = JSON


def row_id() -> Any:
    """A primary key that the database counts up. Any: what sqlmodel's Field returns."""
    return Field(default=None, primary_key=True, sa_type=RowId)


def when(**more: Any) -> Any:
    """An aware UTC column; ``default=None`` makes it optional."""
    return Field(sa_type=UtcDateTime, **more)


def stored(kind: type, **more: Any) -> Any:
    """A JSON column that starts as an empty ``kind`` (dict or list)."""
    return Field(default_factory=kind, sa_type=Json, **more)
