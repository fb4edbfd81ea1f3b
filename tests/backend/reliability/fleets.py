"""Made-up fleets for the lemons: nodes with rates of faults, jobs on them, failures that are pinned down or not."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from backend.facts import AttemptFacts, IncidentFacts, OutageFacts
from backend.reliability.history import History
from detectors.model import Severity

DAY = 86_400.0
DAYS = 28


@dataclass
class Fleet:
    """What the accounting sees, and which nodes are lemons in truth."""

    history: History
    lemons: frozenset[str]
    names: list[str] = field(default_factory=list)


def make(
    seed: int,
    nodes: int = 63,
    lemons: int = 4,
    rate: float = 0.0065,
    times: tuple[float, float] = (25.0, 60.0),
    pinned: float = 0.7,
    huge: int = 40,
    spread: float = 0.5,
) -> Fleet:
    """One job on ``huge`` nodes and small ones on the rest, for 28 days.

    rate: faults a node-day of a healthy node, times a gamma of relative width ``spread``; a lemon has ``times`` that.
    pinned: the chance that an incident names the node; else its job only shows NODE_FAIL. Small jobs also fail of
    their users' faults, and users exclude nodes at random.
    """
    rng = np.random.default_rng(seed)
    names = [f"n{i:03d}" for i in range(nodes)]
    rates = rate * rng.gamma(1 / spread**2, spread**2, nodes)
    bad = rng.choice(nodes, lemons, replace=False)
    rates[bad] = rate * rng.uniform(*times, lemons)
    faults = sorted(
        (float(at), int(node))
        for node in range(nodes)
        for at in rng.uniform(0, DAYS * DAY, rng.poisson(rates[node] * DAYS))
    )
    attempts: list[AttemptFacts] = []
    incidents: list[IncidentFacts] = []
    outages: list[OutageFacts] = []
    order = rng.permutation(nodes)
    groups, at = [], 0
    for size in [huge, 8, 4, 4, *[1] * nodes]:
        if len(group := tuple(order[at : at + size])):
            groups.append(group)
        at += size
    for number, group in enumerate(groups):
        _live(rng, f"{1000 + number}", group, names, faults, attempts)
    for number, (when, node) in enumerate(faults):
        if rng.random() < pinned:
            incidents.append(_incident(number + 1, names[node], when))
        if rng.random() < 0.2:
            outages.append(OutageFacts(names[node], when + 30, when + 7200, "DOWN", "Not responding"))
    return Fleet(History(0.0, DAYS * DAY, attempts, incidents=incidents, outages=outages), _named(names, bad), names)


def _named(names: list[str], places: np.ndarray) -> frozenset[str]:
    return frozenset(names[i] for i in places)


def _live(
    rng: np.random.Generator,
    job: str,
    group: tuple[int, ...],
    names: list[str],
    faults: list[tuple[float, int]],
    attempts: list[AttemptFacts],
) -> None:
    ends = [(at, True) for at, node in faults if node in group]
    ends += [(float(at), False) for at in rng.uniform(0, DAYS * DAY, rng.poisson(3 if len(group) == 1 else 1))]
    start, nodes = 0.0, tuple(sorted(names[i] for i in group))
    for restart, (end, hardware) in enumerate([*sorted(ends), (DAYS * DAY, False)]):
        if end <= start:
            continue
        last = end >= DAYS * DAY
        attempts.append(
            AttemptFacts(
                job=job,
                restart=restart,
                user="u",
                run=f"r{job}",
                state="RUNNING" if last else "NODE_FAIL" if hardware else "FAILED",
                submit=start,
                eligible=start,
                start=start,
                end=None if last else end,
                nodes=nodes,
                gpus_per_node=8,
                excluded=(names[int(rng.integers(len(names)))],) if rng.random() < 0.3 else (),
            )
        )
        start = end + 300.0


def _incident(number: int, node: str, at: float) -> IncidentFacts:
    return IncidentFacts(
        id=number,
        cluster="c",
        kind="gpu_bus_loss",
        severity=Severity.CRITICAL,
        state="resolved",
        entity=f"{node}/gpu1",
        entity_kind="gpu",
        entity_id=f"GPU-{node}",
        node=node,
        job="",
        opened_at=at - 20,
        closed_at=at + 3600,
    )
