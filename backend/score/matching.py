"""Which incident counts for which fault: as many faults as can be, then the nearest, fitting, earliest incidents."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from backend.score.places import Touch


@dataclass(frozen=True, slots=True)
class Edge:
    """An incident that may count for a fault; both are indices, in order of time. ``wait_ms``: from the begin of the
    fault's window to the incident's opening, >= 0."""

    fault: int
    incident: int
    touch: Touch
    fits: bool
    wait_ms: int

    @property
    def price(self) -> tuple[int, ...]:
        """What is least in sum, the first before the next: faults without their exact entity, distance, another
        family, waiting."""
        return int(self.touch > Touch.AMONG), int(self.touch), int(not self.fits), self.wait_ms


def assign(edges: Iterable[Edge]) -> dict[int, Edge]:
    """The edge of each fault that is found: a largest one-to-one matching, and among those the cheapest.

    Exact, by shortest augmenting paths, one fault after the other; a fault may also end with the lot of its own that
    stands for "not found" and costs more than everything else. Prices are whole numbers of any size, so nothing is
    rounded, and ties go to the incident that comes first. Time is O(faults x edges of a connected part).
    """
    known = sorted(edges, key=lambda e: (e.fault, e.price, e.incident))
    faults = sorted({edge.fault for edge in known})
    scale, missing = _scales(known, len(faults))
    offers: dict[int, dict[int, int]] = {fault: {-1 - fault: missing} for fault in faults}
    for edge in known:
        offer = offers[edge.fault]
        if len(offer) <= len(faults):  # a fault never needs more choices than there are faults
            offer[edge.incident] = sum(p * s for p, s in zip(edge.price, scale, strict=True))
    holds: dict[int, int] = {}
    chosen: dict[int, int] = {}
    for fault in faults:
        _place(fault, offers, holds, chosen)
    return {edge.fault: edge for edge in known if chosen[edge.fault] == edge.incident}


def _scales(edges: Sequence[Edge], faults: int) -> tuple[list[int], int]:
    """Weight of each level of a price, above all that the levels after it can add up to; and what beats them all."""
    scales: list[int] = []
    weight = 1
    for level in reversed(list(zip(*(edge.price for edge in edges), strict=True))):
        scales.insert(0, weight)
        weight *= 1 + faults * max(level)
    return scales, weight


def _place(fault: int, offers: Mapping[int, Mapping[int, int]], holds: dict[int, int], chosen: dict[int, int]) -> None:
    """Give ``fault`` an incident and move others along the cheapest path. ``holds``: incident -> fault, ``chosen``:
    the same from the other side."""
    reached: dict[int, tuple[int, int]] = {}  # incident -> (price of the way, the fault it is reached from)
    price = {fault: 0}
    waiting = deque([fault])
    while waiting:
        here = waiting.popleft()
        for incident, step in offers[here].items():
            way, holder = price[here] + step, holds.get(incident)
            if holder == here or (incident in reached and reached[incident][0] <= way):
                continue
            reached[incident] = way, here
            if holder is not None and way - offers[holder][incident] < price.get(holder, way + 1):
                price[holder] = way - offers[holder][incident]
                waiting.append(holder)
    end = min((i for i in reached if i not in holds), key=lambda i: (reached[i][0], i))
    while True:
        taker = reached[end][1]
        before = chosen.get(taker)
        holds[end], chosen[taker] = taker, end
        if before is None or taker == fault:
            return
        end = before
