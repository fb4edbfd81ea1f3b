"""Which incidents touch which faults, and which of them open in time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from backend.score.chance import Pairs
from backend.score.families import Families
from backend.score.matching import Edge
from backend.score.places import Site, Token, Touch, around, prefix_of, tokens, touch_of
from backend.score.rows import Assertion, Fault, Incident

#: A fault is found by what opens in [first_visible - BEFORE_S, end + AFTER_S] (contracts.md, truth.jsonl).
BEFORE_S = 60.0
AFTER_S = 300.0


@dataclass(frozen=True)
class Scene:
    """All that is scored. Faults are sorted by first sign, incidents by opening; ``span`` in unix s."""

    faults: tuple[Fault, ...]
    incidents: tuple[Incident, ...]
    by_key: Mapping[str, Sequence[Assertion]]
    site: Site
    span: tuple[float, float]
    akin: Families

    @cached_property
    def windows(self) -> tuple[tuple[float, float] | None, ...]:
        """When an incident must open to find each fault, unix s; None for a fault that nothing shows."""
        return tuple(window(fault, self.span[1]) for fault in self.faults)

    @cached_property
    def opened_in(self) -> tuple[range, ...]:
        """For each fault the incidents (indices) that open in its window."""
        opened = [incident.opened_at for incident in self.incidents]
        return tuple(
            range(bisect_left(opened, w[0]), bisect_right(opened, w[1])) if w else range(0) for w in self.windows
        )

    @cached_property
    def victims(self) -> tuple[frozenset[str], ...]:
        return tuple(self.site.victims(fault) for fault in self.faults)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every incident that touches a fault, whenever it opened."""
        return tuple(edge for at in range(len(self.faults)) for edge in self._edges_of(at))

    @cached_property
    def met(self) -> tuple[Edge, ...]:
        """The edges whose incident opens in the fault's window."""
        return tuple(edge for edge in self.edges if edge.incident in self.opened_in[edge.fault])

    def pairs(self) -> Pairs:
        """The edges as arrays, for turning the truth in time."""
        start, end = self.span
        clipped = [(max(w[0], start), min(w[1], end)) if w else (np.nan, np.nan) for w in self.windows]
        bounds = np.array(clipped, dtype=np.float64).reshape(-1, 2)
        return Pairs(
            fault=np.array([e.fault for e in self.edges], dtype=np.int64),
            incident=np.array([e.incident for e in self.edges], dtype=np.int64),
            located=np.array([e.touch <= Touch.NEAR for e in self.edges], dtype=np.bool_),
            fits=np.array([e.fits for e in self.edges], dtype=np.bool_),
            begins=bounds[:, 0] - start,
            lasts=bounds[:, 1] - bounds[:, 0],
            opened=np.array([i.opened_at - start for i in self.incidents], dtype=np.float64),
            span_s=end - start,
        )

    @cached_property
    def _hearing(self) -> Mapping[Token, Sequence[int]]:
        """Which incidents say a token."""
        found: dict[Token, list[int]] = {}
        for at, incident in enumerate(self.incidents):
            said = {token for entity in incident.named for token in tokens(entity, self.site)}
            if incident.job:
                said.add(("job", prefix_of(incident.entity) + incident.job))
            for token in said:
                found.setdefault(token, []).append(at)
        return found

    def _edges_of(self, at: int) -> Iterator[Edge]:
        fault = self.faults[at]
        near = around(fault, self.site)
        begin = self.windows[at]
        touched: dict[int, Touch] = {}
        for token, touch in near.items():
            for number in self._hearing.get(token, ()):
                touched[number] = min(touch, touched.get(number, touch))
        for number, touch in sorted(touched.items()):
            incident = self.incidents[number]
            named = Touch.NAMED if incident.entity == fault.entity else touch
            wait_s = max(0.0, incident.opened_at - (begin[0] if begin else fault.start))
            yield Edge(at, number, named, self._fits(fault, near, incident), round(1000 * wait_s))

    def _fits(self, fault: Fault, near: Mapping[Token, Touch], incident: Incident) -> bool:
        """Whether the incident's kind is of the fault's family, or a finding it links is and stands on the fault's
        own place: elsewhere in its job is not enough."""
        if self.akin.akin(fault.kind, incident.kind):
            return True
        signs = {(row.entity, row.kind) for key in incident.keys for row in self.by_key.get(key, ())}
        return any(
            self.akin.akin(fault.kind, kind) and touch_of(tokens(entity, self.site), near) < Touch.JOB
            for entity, kind in signs
        )


def window(fault: Fault, span_end: float) -> tuple[float, float] | None:
    """[first_visible - 60 s, end + 300 s], unix s; a fault without end lasts to the end of the span."""
    if fault.first_visible is None:
        return None
    end = fault.end if fault.end < float("inf") else max(span_end, fault.first_visible)
    return fault.first_visible - BEFORE_S, end + AFTER_S


def scene(
    faults: Iterable[Fault],
    incidents: Iterable[Incident],
    findings: Iterable[Assertion],
    site: Site,
    span: tuple[float, float],
    akin: Families,
) -> Scene:
    """A scene in its one order, whatever the order of the rows."""
    by_key: dict[str, list[Assertion]] = {}
    for row in sorted(findings, key=lambda f: (f.ts, f.emitted_at)):
        by_key.setdefault(row.key, []).append(row)
    return Scene(
        tuple(sorted(faults, key=lambda f: (f.start if f.first_visible is None else f.first_visible, f.id))),
        tuple(sorted(incidents, key=lambda i: (i.opened_at, i.id))),
        by_key,
        site,
        span,
        akin,
    )
