"""What recall would be by chance: the same incidents against the truth turned around in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from backend.score.intervals import TAIL, Interval

#: The truth is turned by this share of the span at least, either way, so that no fault meets its own signs.
LEAST_TURN = 0.1


@dataclass(frozen=True, slots=True)
class Chance:
    """Recall over ``n`` faults in ``draws`` turns of the truth: its mean and where 95 % of the turns lie."""

    mean: float | None
    n: int
    draws: int
    band: Interval | None


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Incidents that touch faults, whenever they opened: indices int64[k], fit bool[k]. ``begins`` and ``lasts``
    float64[faults]: the faults' windows within the span, NaN for faults that nothing shows; ``opened``
    float64[incidents]; all in s after the begin of the span."""

    fault: NDArray[np.int64]
    incident: NDArray[np.int64]
    fits: NDArray[np.bool_]
    begins: NDArray[np.float64]
    lasts: NDArray[np.float64]
    opened: NDArray[np.float64]
    span_s: float

    def found(self, turn_s: float, of: NDArray[np.bool_]) -> int:
        """How many faults a largest one-to-one matching finds when the windows start ``turn_s`` later, around the
        span's end to its begin; ``of`` bool[k] picks the pairs that count."""
        late = (self.opened[self.incident] - self.begins[self.fault] - turn_s) % self.span_s
        meets = of & (late <= self.lasts[self.fault])
        if not meets.any():
            return 0
        _, rows = np.unique(self.fault[meets], return_inverse=True)
        _, columns = np.unique(self.incident[meets], return_inverse=True)
        graph = csr_array((np.ones(rows.size, dtype=np.int8), (rows, columns)))
        return int((maximum_bipartite_matching(graph, perm_type="column") >= 0).sum())


def chance(pairs: Pairs, faults: Sequence[int], fitting: bool, turns: Sequence[float]) -> Chance:
    """Chance recall of some faults (indices); ``fitting``: only incidents of the fault's family count. ``turns``: by
    how many seconds the truth is turned, once for each draw."""
    n = len(faults)
    if not n or not turns:
        return Chance(None, n, len(turns), None)
    of = np.isin(pairs.fault, faults) & (pairs.fits if fitting else True)
    shares = np.array([pairs.found(turn, of) for turn in turns]) / n if of.any() else np.zeros(len(turns))
    low, high = np.quantile(shares, [TAIL, 1 - TAIL])
    return Chance(float(shares.mean()), n, len(turns), Interval(float(low), float(high)))


def turns(span_s: float, draws: int, seed: int) -> tuple[float, ...]:
    """Seeded turns, even over the span but for the two ends; none for an empty span."""
    if span_s <= 0:
        return ()
    drawn = np.random.default_rng(seed).uniform(LEAST_TURN, 1 - LEAST_TURN, draws)
    return tuple(float(turn) for turn in drawn * span_s)
