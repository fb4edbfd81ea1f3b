"""What changed before an incident: changes of its node, its job and the whole cluster, likeliest to matter first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func
from sqlmodel import Session, col, select

from backend.answers.odd_ones import Odd, odd_in
from backend.model.incidents import Incident
from backend.model.past import Change
from backend.store import ledger

#: How far back a change is offered. Three days: hand-made roll-outs surface over a weekend; what is older is on the
#: node's own page.
WINDOW = timedelta(hours=72)
#: A change counts half as much after this long before the incident.
HALF_S = 12 * 3600.0
#: Changes of one item to one value within this long of each other are one roll-out.
ROLLOUT = timedelta(hours=6)
#: Weights of whose change it is: the broken device's or node's own, its job's, the whole cluster's, another node's of
#: its job; and what is added where the value is rare among its kind, or where it reached half of the cluster.
OWN, JOB, WHOLE, BESIDE, IS_ODD, WIDE = 1.0, 0.8, 0.6, 0.4, 0.6, 0.2
MOST = 8
#: Nodes of the job that are looked at: the first of a large one.
MOST_BESIDE = 400
#: Changes that are weighed of a node, of a job and of its nodes.
MOST_READ = 200


@dataclass(frozen=True, slots=True)
class Suspect:
    """One change, ``before_s`` before the incident, its weight (for the order only), how many nodes got the same in one
    roll-out, and the odd one that it made of its holder."""

    change: Change
    before_s: float
    weight: float
    alike: int
    odd: Odd | None


def what_changed(session: Session, row: Incident, beside: Sequence[str], nodes: int) -> tuple[Suspect, ...]:
    """Best first. ``beside``: nodes that its job had when it opened; ``nodes``: how many the cluster has."""
    since, until = row.opened_at - WINDOW, row.opened_at
    found: dict[int, Change] = {}
    for some in ([row.node] if row.node else [], beside[:MOST_BESIDE]):
        told = ledger.changes(session, row.cluster, nodes=some, since=since, until=until, limit=MOST_READ)
        found |= {one.id or 0: one for one in told}
    if row.job:
        told = ledger.changes(session, row.cluster, job=row.job, since=since, until=until, limit=MOST_READ)
        found |= {one.id or 0: one for one in told}
    if not found:
        return ()
    odd = odd_in(session, row.cluster)[0]
    ranked = [_weighed(session, row, one, nodes, odd) for one in _one_each(found.values(), row.node)]
    return tuple(sorted(ranked, key=lambda one: (-one.weight, -one.change.at.timestamp())))[:MOST]


def _one_each(found: Iterable[Change], node: str) -> Iterable[Change]:
    """Of a change that many nodes of the job had, the own node's, else the latest."""
    best: dict[tuple[str, str, bool], Change] = {}
    for one in sorted(found, key=lambda one: (one.node == node, one.at)):
        best[(one.item, one.value if one.item != "boot" else "", one.node in (node, ""))] = one
    own = {(item, value) for item, value, mine in best if mine}
    return [one for (item, value, mine), one in best.items() if mine or (item, value) not in own]


def _weighed(session: Session, row: Incident, one: Change, nodes: int, odd: Sequence[Odd]) -> Suspect:
    alike = _alike(session, one) if one.node and one.item != "boot" else 1
    strange = next((o for o in odd if (o.item, o.value) == (one.item, one.value) and _holds(o, one)), None)
    whose = OWN if one.node == row.node and one.node else JOB if one.job else WHOLE if not one.node else BESIDE
    whose *= 0.5 if one.device and row.entity_kind == "gpu" and one.device != row.entity_id else 1.0
    age_s = max(0.0, (row.opened_at - one.at).total_seconds())
    more = (IS_ODD if strange is not None else 0.0) + (WIDE if nodes and alike * 2 >= nodes > 1 else 0.0)
    return Suspect(one, age_s, (whose + more) * math.exp2(-age_s / HALF_S), alike, strange)


def _holds(odd: Odd, one: Change) -> bool:
    return f"{one.node} {one.device}".strip() in odd.holders


def _alike(session: Session, one: Change) -> int:
    """How many nodes got the same value in the same roll-out, this one included."""
    query = select(func.count(func.distinct(col(Change.node)))).where(
        col(Change.cluster) == one.cluster,
        col(Change.at) >= one.at - ROLLOUT,
        col(Change.at) <= one.at + ROLLOUT,
        col(Change.item) == one.item,
        col(Change.value) == one.value,
    )
    return int(session.exec(query).one())
