"""Which idle nodes are checked now, what a round of pair tests says, and whose result differs from the others'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from backend.decide.eviction import next_round, pairs
from backend.facts import NodeFacts

#: Nodes of one round of pair tests: more take too long to stay idle.
MOST_NODES = 16
#: A result is compared with those of at least so many others.
LEAST_OTHERS = 3


def sweepable(node: NodeFacts, excluded: Collection[str], suspects: Collection[str]) -> bool:
    """Nothing runs there, it answers, and nobody else holds it. What we took out is checked again only where a check
    did that (``suspects``)."""
    if node.jobs or node.state not in ("idle", "down") or "COMPLETING" in node.flags:
        return False
    if node.out and (node.reason_owner != "watchkeeper" or node.name not in suspects):
        return False
    return node.state == "idle" and (node.name not in excluded or node.name in suspects)


def due(
    nodes: Sequence[NodeFacts], checked_at: Mapping[str, float], now: float, every_s: float, again_s: float,
    failed: Collection[str] = (),
) -> list[str]:  # fmt: skip
    """Nodes to check, who never was first, then who waits longest. ``failed`` ones come again after ``again_s``."""

    def wait(name: str) -> float:
        return again_s if name in failed else every_s

    names = [node.name for node in nodes]
    late = [name for name in names if name not in checked_at or now - checked_at[name] >= wait(name)]
    return sorted(late, key=lambda name: (checked_at.get(name, float("-inf")), name))


def suspects_of(
    nodes: Sequence[str], passes: Callable[[str, str], bool | None], turn: int = 0
) -> tuple[dict[str, bool], tuple[str, ...]]:
    """Group testing: (node -> whether it passed with somebody, nodes named bad). Disjoint pairs first, then each node
    of a pair that failed beside one that passed. ``passes``: None = it could not be told, or may not go on."""
    results: dict[tuple[str, ...], bool] = {}
    for group in pairs(nodes[:MOST_NODES], turn):
        said = [passes(one, two) for one, two in zip(group, group[1:], strict=False)]
        if said and None not in said:
            results[group] = all(said)
    again, named = next_round(results)
    good = [node for group, fine in results.items() if fine for node in group]
    second: dict[tuple[str, ...], bool] = {}
    for one, two in again:
        word = passes(one, two)
        if word is not None:
            second[(one, two)] = word
    _, more = next_round(second, good) if second else ((), ())
    bad = tuple(sorted({*named, *more}))
    fine = set(good) | {node for group, word in second.items() if word for node in group}
    return {node: node not in bad for node in sorted(fine | set(bad))}, bad


def differs(mine: str, others: Mapping[str, str]) -> str:
    """Recompute and compare: why a node's result is wrong, a clause; "" where it agrees, or where too few tell.
    ``others``: node -> what the same computation gave there."""
    if not mine or len(others) < LEAST_OTHERS:
        return ""
    (common, times), *_ = Counter(others.values()).most_common(1)
    if mine == common or times <= len(others) / 2:
        return ""
    return f"its result is not that of {times} of {len(others)} other nodes"
