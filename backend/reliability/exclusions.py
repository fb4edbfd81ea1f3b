"""Which nodes jobs keep away from, and which were drained: counts, and how much they gather on a few."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from backend.facts import AttemptFacts, OutageFacts

#: Words of an outage's state that say somebody took the node out, beside those that say it was gone.
DRAIN_WORDS = ("DRAIN", "CORDON")


@dataclass(frozen=True, slots=True)
class Concentration:
    """How often each node was named. gini: 0 = all alike, of ``fleet`` nodes; None without a count or fleet."""

    counts: Mapping[str, int]
    fleet: int

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def top3(self) -> list[tuple[str, int]]:
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:3]

    @property
    def top3_share(self) -> float | None:
        return sum(count for _, count in self.top3) / self.total if self.total else None

    @property
    def gini(self) -> float | None:
        return gini(list(self.counts.values()), max(self.fleet, len(self.counts)))


def gini(counts: Sequence[int], n: int) -> float | None:
    """Gini's coefficient of ``counts`` and as many zeros as make ``n`` values."""
    total = sum(counts)
    if not total or n < len(counts):
        return None
    ranked = sorted([0] * (n - len(counts)) + list(counts))
    return sum((2 * rank - n - 1) * count for rank, count in enumerate(ranked, 1)) / (n * total)


def exclusions(attempts: Iterable[AttemptFacts], fleet: int) -> Concentration:
    """One per (job id, restart) whose excluded-nodes list names the node; whether it ran does not matter."""
    seen = {(a.job, a.restart, a.submit, node) for a in attempts for node in a.excluded}
    return Concentration(Counter(node for *_, node in sorted(seen, key=repr)), fleet)


def coverage(attempts: Sequence[AttemptFacts]) -> dict[str, object]:
    """Attempts by where their record came from, and how many name any excluded node. An attempt of a source that
    does not keep the list looks like one that excluded nothing."""
    by_source = Counter(a.source or "not said" for a in attempts)
    return {
        "attempts": len(attempts),
        "with_exclusions": sum(bool(a.excluded) for a in attempts),
        "by_source": dict(sorted(by_source.items())),
    }


def is_drain(outage: OutageFacts) -> bool:
    return any(word in outage.state.upper() for word in DRAIN_WORDS)


def drains(outages: Iterable[OutageFacts], fleet: int) -> Concentration:
    """Drains a node: spans that touch (a record every poll, the drain that turns into down) are one."""
    return Concentration(Counter({node: len(spans) for node, spans in outage_spans(outages, drains_only=True)}), fleet)


def outage_spans(
    outages: Iterable[OutageFacts], *, drains_only: bool = False
) -> list[tuple[str, list[tuple[float, float]]]]:
    """(node, disjoint spans in order) of outages; an open end is infinity."""
    by_node: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for outage in sorted(outages, key=lambda o: (o.node, o.start)):
        if drains_only and not is_drain(outage):
            continue
        end = float("inf") if outage.end is None else outage.end
        spans = by_node[outage.node]
        if spans and outage.start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((outage.start, end))
    return sorted(by_node.items())
