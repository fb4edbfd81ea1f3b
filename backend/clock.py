"""Where time comes from: the system's clock when live, the bundle's when replayed, a hand-turned one in tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Aware UTC."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class ManualClock:
    """A clock that only moves when told; replay and tests turn it."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    def set(self, at: datetime) -> None:
        self._at = at


def unix(at: datetime) -> float:
    """Unix seconds of an aware time."""
    return at.timestamp()


def utc(seconds: float) -> datetime:
    """Aware UTC of unix seconds; raises ValueError or OverflowError outside the years 1 to 9999."""
    return datetime.fromtimestamp(seconds, UTC)
