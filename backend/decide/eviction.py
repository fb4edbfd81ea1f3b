"""Whom to take out when the stalled ranks share a parallel group: all of it at once, or fewer after pair tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.facts import AttemptFacts


@dataclass(frozen=True, slots=True)
class Eviction:
    """Two ways out of a stall of ``suspects`` in one parallel group.

    group: the smallest one that holds them all, "" = none does. whole: its nodes; healthy: how many of them nothing
    speaks against, the price of taking all at once. rounds: pair tests until one bad node is named; tested: nodes
    that stand still meanwhile, their partners included.
    """

    group: str
    suspects: tuple[str, ...]
    whole: tuple[str, ...]
    healthy: int
    rounds: int
    tested: int

    @property
    def text(self) -> str:
        if not self.group:
            return f"{_few(self.suspects)} share no parallel group: the cause is likely outside of them."
        costs = f"{self.healthy} healthy node{'' if self.healthy == 1 else 's'} with them"
        pairs = f"{self.rounds} round{'' if self.rounds == 1 else 's'} of pair tests on {self.tested} nodes"
        return (
            f"{_few(self.suspects)} share {self.group} ({len(self.whole)} nodes): taking all out at once costs "
            f"{costs}; {pairs} would name the one."
        )


def groups_of(job: AttemptFacts) -> dict[str, tuple[str, ...]]:
    """Parallel groups of a job by name: nodes with the same part in it (``stage-3``, ``trainer``)."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for node, role in job.roles:
        found[role].append(node)
    return {name: tuple(dict.fromkeys(nodes)) for name, nodes in found.items()}


def eviction(suspects: Sequence[str], groups: Mapping[str, Sequence[str]]) -> Eviction | None:
    """The ways out; None without suspects or groups. The whole group goes by the practice of ByteRobust (6 to 7
    healthy machines an eviction), pair tests by DLRover's two rounds: halving, each half against known good nodes."""
    wanted = tuple(sorted(set(suspects)))
    if not wanted or not groups:
        return None
    holding = [(len(set(nodes)), name) for name, nodes in groups.items() if set(wanted) <= set(nodes)]
    if not holding:
        return Eviction("", wanted, (), 0, _rounds(len(wanted)), 2 * len(wanted))
    _, name = min(holding)
    whole = tuple(sorted(set(groups[name])))
    return Eviction(name, wanted, whole, len(whole) - len(wanted), _rounds(len(whole)), len(whole))


def _rounds(nodes: int) -> int:
    """One round finds the bad pair, a second one which of the two it is; more only where all pairs fail."""
    return 1 if nodes < 2 else 2


def pairs(nodes: Sequence[str], turn: int = 0) -> tuple[tuple[str, ...], ...]:
    """Disjoint pairs of all nodes, other ones each turn (a round robin); an odd one stands alone in a triple."""
    ring = sorted(set(nodes))
    if len(ring) < 2:
        return (tuple(ring),) if ring else ()
    odd = ring.pop() if len(ring) % 2 else None
    fixed, rest = ring[0], ring[1:]
    at = turn % len(rest)
    turned = [fixed, *rest[at:], *rest[:at]]
    half = len(turned) // 2
    made = [(turned[i], turned[-1 - i]) for i in range(half)]
    if odd is None:
        return tuple(made)
    return (*made[:-1], (*made[-1], odd))


def next_round(
    results: Mapping[tuple[str, ...], bool], good: Sequence[str] = ()
) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """(pairs to test now, nodes named bad) after one round.

    results: pair -> whether it passed; good: nodes that passed before. Who passed with anybody is good; who failed
    beside good nodes only is bad; each of the others is paired with a good one. Without any good node nothing can be
    named: then what is common to all is looked at.
    """
    passed = {node for pair, fine in results.items() if fine for node in pair} | set(good)
    named = sorted(
        {next(iter(left)) for pair, fine in results.items() if not fine and len(left := set(pair) - passed) == 1}
    )
    left_open = sorted({node for pair in results for node in pair} - passed - set(named))
    if not passed:
        return (), ()
    partners = sorted(passed)
    return tuple((node, partners[i % len(partners)]) for i, node in enumerate(left_open)), tuple(named)


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
