"""What recall would be by chance: the same incidents against the truth turned around in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from backend.reliability.intervals import TAIL, Interval

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
    """Incidents that touch faults, whenever they opened: indices int64[k]; whether at the fault's entity or node, and
    whether of its family, bool[k]. ``begins`` and ``lasts`` float64[faults]: the faults' windows within the span, NaN
    for faults that nothing shows; ``opened`` float64[incidents]; all in s after the begin of the span."""

    fault: NDArray[np.int64]
    incident: NDArray[np.int64]
    located: NDArray[np.bool_]
    fits: NDArray[np.bool_]
    begins: NDArray[np.float64]
    lasts: NDArray[np.float64]
    opened: NDArray[np.float64]
    span_s: float

    def only(self, which: NDArray[np.bool_]) -> Pairs:
        """The pairs where ``which`` bool[k] is true."""
        fault, incident = self.fault[which], self.incident[which]
        return replace(self, fault=fault, incident=incident, located=self.located[which], fits=self.fits[which])

    def found(self, turn_s: float) -> int:
        """How many faults a largest one-to-one matching finds when the windows start ``turn_s`` later, around the
        span's end to its begin."""
        late = (self.opened[self.incident] - self.begins[self.fault] - turn_s) % self.span_s
        meets = late <= self.lasts[self.fault]
        if not meets.any():
            return 0
        _, rows = np.unique(self.fault[meets], return_inverse=True)
        _, columns = np.unique(self.incident[meets], return_inverse=True)
        graph = csr_array((np.ones(rows.size, dtype=np.int8), (rows, columns)))
        return int((maximum_bipartite_matching(graph, perm_type="column") >= 0).sum())


def chance(pairs: Pairs, faults: Sequence[int], turns: Sequence[float]) -> Chance:
    """Chance recall of some faults (indices), when only ``pairs`` count. ``turns``: by how many seconds the truth is
    turned, once for each draw. Entities and jobs stay: where a job was short, its share of chance comes out low."""
    n = len(faults)
    if not n or not turns:
        return Chance(None, n, len(turns), None)
    some = pairs.only(np.isin(pairs.fault, faults))
    shares = np.array([some.found(turn) for turn in turns]) / n
    low, high = np.quantile(shares, [TAIL, 1 - TAIL])
    return Chance(float(shares.mean()), n, len(turns), Interval(float(low), float(high)))


def turns(span_s: float, draws: int, seed: int) -> tuple[float, ...]:
    """Seeded turns, even over the span but for the two ends; none for an empty span."""
    if span_s <= 0:
        return ()
    drawn = np.random.default_rng(seed).uniform(LEAST_TURN, 1 - LEAST_TURN, draws)
    return tuple(float(turn) for turn in drawn * span_s)
