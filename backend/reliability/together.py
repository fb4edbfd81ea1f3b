"""Which faults come together: how often a kind on a node is seen with another within minutes, against chance."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from backend.reliability.account import Accounts
from backend.reliability.intervals import Interval, wilson

#: Two kinds on one node within this of each other are together, s (the attribution window of papers.md 3).
TOGETHER_S = 600.0


@dataclass(frozen=True, slots=True)
class Pair:
    """Of ``n`` incidents of ``kind``, ``k`` had ``other`` on their node at that time; ``expected``: by chance."""

    kind: str
    other: str
    k: int
    n: int
    expected: float

    @property
    def interval(self) -> Interval | None:
        return wilson(self.k, self.n)


def together(accounts: Accounts) -> list[Pair]:
    """Pairs that met at least once, the most frequent first."""
    by_node: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    counts: defaultdict[str, int] = defaultdict(int)
    for cause in accounts.causes:
        counts[cause.kind] += 1
        for node in cause.nodes[:1]:
            by_node[node].append((cause.begin, cause.kind))
    met: defaultdict[tuple[str, str], int] = defaultdict(int)
    for signs in by_node.values():
        for at, kind in signs:
            near = {other for when, other in signs if other != kind and abs(when - at) <= TOGETHER_S}
            for other in near:
                met[(kind, other)] += 1
    span = accounts.span_s * max(1, len(accounts.history.nodes) or len(by_node))
    found = [
        Pair(kind, other, k, counts[kind], counts[kind] * min(1.0, counts[other] * 2 * TOGETHER_S / max(span, 1.0)))
        for (kind, other), k in met.items()
    ]
    return sorted(found, key=lambda pair: (-pair.k / pair.n, -pair.k, pair.kind, pair.other))
