"""ETTR a role: the trainer and sampler pools (or pipeline stages) of a run, each as a run of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from backend.reliability.account import Account, RunAccount
from backend.reliability.ettr import Ettr, ettr
from backend.reliability.parts import Bounds, exactly

#: The role of nodes whose job gives them none.
NO_ROLE = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """The attempts in which nodes had a role. share: its ETTR, node by node: of the nodes' seconds, those that were
    productive. node_hours: held. sums: of its attempts, each counted once."""

    role: str
    share: Bounds | None
    node_hours: float
    sums: Ettr


def roles_of(account: Account) -> Mapping[str, int]:
    """How many of its nodes have which role."""
    said = dict(account.attempt.roles)
    found: defaultdict[str, int] = defaultdict(int)
    for node in account.attempt.nodes:
        found[said.get(node, NO_ROLE)] += 1
    return dict(found)


def pools(run: RunAccount) -> list[Pool]:
    """By role, those without one last. A job of several pools counts in each with the nodes it gives to it; pools
    that are jobs of their own (lanes) keep their own failures."""
    members: defaultdict[str, list[tuple[Account, int]]] = defaultdict(list)
    for account in run.accounts:
        for role, count in roles_of(account).items():
            members[role].append((account, count))
    found = [_pool(role, rows) for role, rows in members.items()]
    return sorted(found, key=lambda pool: (pool.role == NO_ROLE, pool.role))


def _pool(role: str, rows: list[tuple[Account, int]]) -> Pool:
    above = exactly(0.0)
    below = 0.0
    for account, count in rows:
        productive = account.parts["productive"]
        above = above + Bounds(productive.low * count, productive.high * count)
        below += (account.wall_s + account.queue_s) * count
    share = Bounds(above.low / below, min(1.0, above.high / below)) if below > 0 else None
    held = sum(account.wall_s * count for account, count in rows) / 3600
    return Pool(role, share, held, ettr(account for account, _ in rows))
