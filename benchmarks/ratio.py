"""Two things measured in turns, and how they compare: absolute times move with the machine, ratios hardly."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Ratio:
    """Times in seconds of ``ours`` and of ``peer``, measured pair by pair in one run."""

    promise: str
    against: str
    ours: tuple[float, ...]
    peer: tuple[float, ...]

    def __str__(self) -> str:
        """Median of the pairs' ratios with its quartiles and n, and both medians to judge the machine by."""
        q1, median, q3 = np.percentile(np.divide(self.ours, self.peer), (25, 50, 75))
        times = f"{milliseconds(self.ours)} against {milliseconds(self.peer)}"
        spread = f"quartiles {q1:.3g} to {q3:.3g}, n = {len(self.ours)}"
        return f"{self.promise}: {median:.3g} x {self.against} ({spread}; medians {times})"


def milliseconds(times: Sequence[float]) -> str:
    return f"{1000 * float(np.median(times)):.3g} ms"


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(
    promise: str, against: str, ours: Callable[[], object], peer: Callable[[], object], n: int, warm: int = 5
) -> Ratio:
    """``n`` pairs after ``warm`` unmeasured ones, with the garbage collector at rest."""
    for _ in range(warm):
        ours()
        peer()
    gc.collect()
    gc.disable()
    try:
        pairs = [(timed(ours), timed(peer)) for _ in range(n)]
    finally:
        gc.enable()
    return Ratio(promise, against, tuple(a for a, _ in pairs), tuple(b for _, b in pairs))
