"""Checkpoints in tiers: memory, peers or erasure-coded groups, disk; what each survives, and the ETTR of all together.

A failure takes ``down`` nodes at once (1 = a node, 32 = a switch). A copy in the node's own memory survives only what
loses no node; copies on peers and erasure-coded groups survive while not too many nodes of one group are gone; disk
survives all. After a failure the run goes back to the newest copy that survived.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

Kind = Literal["memory", "peer", "erasure", "disk"]


@dataclass(frozen=True, slots=True)
class Tier:
    """Where copies are kept. every_s: time between two; write_s: what one stops training for; load_s: to read it.

    group: nodes that hold one another's copies (peer: copies of a shard, 2 = one twin; erasure: data + parity nodes);
    parity: nodes of an erasure-coded group that may go. Both are of no meaning to memory and disk.
    """

    kind: Kind
    every_s: float
    write_s: float
    load_s: float
    group: int = 2
    parity: int = 1


@dataclass(frozen=True, slots=True)
class Blow:
    """A sort of failure: how many nodes it takes (0 = the process only) and its share of all failures."""

    down: int
    share: float


@dataclass(frozen=True, slots=True)
class TierOutlook:
    """survives: the chance that a copy there is left after a failure; used: that it is the one gone back to."""

    tier: Tier
    survives: float
    used: float


@dataclass(frozen=True, slots=True)
class TiersOutlook:
    """ettr: expected; write_share: of the time that goes into writing; lost_s: expected a failure: half an interval,
    load and restart; lost_all: the chance that no copy is left (then the run begins anew)."""

    tiers: tuple[TierOutlook, ...]
    ettr: float
    write_share: float
    lost_s: float
    lost_all: float


def survives(tier: Tier, nodes: int, down: int) -> float:
    """The chance that every shard of a run on ``nodes`` can still be read after ``down`` of them, at random, went.

    Groups are disjoint; each tolerates group - 1 (peer) or parity (erasure) lost nodes. Exact for one and two nodes;
    beyond, groups are taken as independent (hypergeometric), which is close while groups are small beside the run.
    """
    if down <= 0:
        return 1.0
    if tier.kind == "disk":
        return 1.0
    if tier.kind == "memory":
        return 0.0
    tolerates = tier.group - 1 if tier.kind == "peer" else tier.parity
    if down <= tolerates:
        return 1.0
    size = min(tier.group, nodes)
    groups = nodes / size
    one = float(stats.hypergeom.cdf(tolerates, nodes, size, min(down, nodes)))
    if down == tolerates + 1:  # all of them in one group: exact, for no two groups can both be hit
        return max(0.0, 1 - groups * (1 - one))
    return float(one**groups)


def tiers_outlook(
    tiers: Sequence[Tier],
    nodes: int,
    mttf_s: float,
    restart_s: float,
    blows: Sequence[Blow] = (Blow(1, 1.0),),
    begun_s: float = 15 * 86_400.0,
) -> TiersOutlook:
    """Expected ETTR, first order like Kokolis et al. (papers.md 3): (1 - lost / MTTF) / (1 + sum of w/dt).
    ``begun_s``: what a failure that leaves no copy takes: the time since the run began.

    Raises ValueError for tiers or blows that cannot be.
    """
    _check(tiers, nodes, blows)
    ordered = sorted(tiers, key=lambda tier: tier.every_s)
    used = [0.0] * len(ordered)
    lasting = [0.0] * len(ordered)
    gone = 0.0
    for blow in blows:
        left = 1.0
        for place, tier in enumerate(ordered):
            chance = survives(tier, nodes, blow.down)
            lasting[place] += blow.share * chance
            used[place] += blow.share * left * chance
            left *= 1 - chance
        gone += blow.share * left
    lost = math.fsum(u * (t.every_s / 2 + t.load_s) for u, t in zip(used, ordered, strict=True))
    lost += gone * begun_s + restart_s
    writing = math.fsum(t.write_s / t.every_s for t in ordered)
    ettr = max(0.0, 1 - lost / mttf_s) / (1 + writing) if mttf_s > 0 else 0.0
    rows = tuple(TierOutlook(*row) for row in zip(ordered, lasting, used, strict=True))
    return TiersOutlook(rows, ettr, writing / (1 + writing), lost, gone)


def _check(tiers: Sequence[Tier], nodes: int, blows: Sequence[Blow]) -> None:
    if not tiers or nodes < 1:
        raise ValueError("give at least one tier and one node")
    for tier in tiers:
        if not tier.every_s > 0 or tier.write_s < 0 or tier.load_s < 0 or tier.group < 1 or tier.parity < 0:
            raise ValueError(f"tier {tier.kind}: every_s must be above 0, times and parity 0 or more, group 1 or more")
    if any(blow.down < 0 or blow.share < 0 for blow in blows) or not math.isclose(sum(b.share for b in blows), 1.0):
        raise ValueError("the shares of failures must be 0 or more and add up to 1")
