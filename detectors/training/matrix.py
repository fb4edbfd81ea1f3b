"""C4's matrix of source by destination: a slow cell is a link, a slow row a sender, a slow column a receiver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Syndrome:
    """times: against the median of all pairs."""

    what: Literal["link", "sender", "receiver"]
    source: int
    target: int
    times: float


def syndromes(
    source: NDArray[np.int64], target: NDArray[np.int64], seconds: Floats, bucket: NDArray[np.uint64], times: float
) -> tuple[Syndrome, ...]:
    """All arrays [pairs]; calls of about one size (``bucket``) are compared with each other. A row or column of which
    at least two, and more than half, are slow is told as a whole; else each cell. Fewer than four pairs tell nothing.
    """
    ratio = np.full(len(seconds), np.nan)
    for one in np.unique(bucket):
        some = bucket == one
        middle = float(np.median(seconds[some]))
        if int(some.sum()) >= 4 and middle > 0:
            ratio[some] = seconds[some] / middle
    slow = np.nan_to_num(ratio, nan=0.0) > times
    if not slow.any():
        return ()
    found: list[Syndrome] = []
    told = np.zeros(len(slow), np.bool_)
    lines: list[tuple[float, int, Literal["sender", "receiver"], int]] = []
    for what, of in (("sender", source), ("receiver", target)):
        for rank in np.unique(of[slow]):
            line = of == rank
            n = int((slow & line).sum())
            if n >= 2 and 2 * n > int(line.sum()):
                lines.append((-float(np.median(ratio[slow & line])) * n, int(rank), what, n))  # type: ignore[arg-type]
    for _, rank, what, _ in sorted(lines):
        line = (source if what == "sender" else target) == rank
        left = slow & line & ~told
        if 2 * int(left.sum()) > int(line.sum()):  # what another line explains does not count again
            told |= line
            middle = float(np.median(ratio[left]))
            found.append(Syndrome(what, rank if what == "sender" else -1, rank if what == "receiver" else -1, middle))
    for at in np.flatnonzero(slow & ~told):
        found.append(Syndrome("link", int(source[at]), int(target[at]), float(ratio[at])))
    return tuple(found[:16])
