"""The parts of an attempt (contracts.md, accounting): names, bounds, sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Part = Literal["startup", "load", "productive", "save_stall", "lost_since_checkpoint", "hang", "teardown"]

#: Exclusive, and together the attempt.
PARTS: tuple[Part, ...] = (
    "startup",
    "load",
    "productive",
    "save_stall",
    "lost_since_checkpoint",
    "hang",
    "teardown",
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds that are known to lie from ``low`` to ``high``; equal where they were measured."""

    low: float
    high: float

    def __add__(self, other: Bounds) -> Bounds:
        return Bounds(self.low + other.low, self.high + other.high)

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


def exactly(seconds: float) -> Bounds:
    return Bounds(seconds, seconds)


def at_most(seconds: float) -> Bounds:
    return Bounds(0.0, max(0.0, seconds))


Parts = Mapping[Part, Bounds]

#: Of an attempt that did not run.
NOTHING: Parts = {part: exactly(0.0) for part in PARTS}


def added(many: Iterable[Parts]) -> dict[Part, Bounds]:
    """The sums, part by part."""
    sums = dict(NOTHING)
    for parts in many:
        for part in PARTS:
            sums[part] = sums[part] + parts[part]
    return sums
