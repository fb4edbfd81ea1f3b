"""Made-up fleets in which jobs come, go and move between nodes: who is a lemon shows by the company it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from backend.facts import AttemptFacts, IncidentFacts, OutageFacts
from backend.reliability.history import History
from detectors.model import Severity

DAY = 86_400.0
DAYS = 28.0
SIZES = (1, 1, 1, 2, 4, 8, 8, 16, 32)


@dataclass
class Town:
    """What happens, while it is made. ``bad``: names of the lemons."""

    rng: np.random.Generator
    names: list[str]
    rates: np.ndarray
    bad: frozenset[str]
    named: float
    attempts: list[AttemptFacts] = field(default_factory=list)
    incidents: list[IncidentFacts] = field(default_factory=list)
    outages: list[OutageFacts] = field(default_factory=list)
    xids: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    tickets: dict[str, list[float]] = field(default_factory=dict)

    def history(self) -> History:
        return History(
            0.0,
            DAYS * DAY,
            self.attempts,
            incidents=self.incidents,
            outages=self.outages,
            xids={node: sorted(rows) for node, rows in self.xids.items()},
            tickets=self.tickets,
        )


def make(
    seed: int,
    nodes: int = 80,
    lemons: int = 4,
    rate: float = 0.005,
    times: tuple[float, float] = (15.0, 50.0),
    named: float = 0.0,
    signs: float = 0.3,
) -> Town:
    """rate: faults a node-day of a healthy node, of gamma width 0.5; a lemon has ``times`` that. named: the chance that
    an incident names the culprit. signs: the chance of a ticket, a drain or an XID of the hardware a fault; lemons also
    show XIDs between faults. Users' jobs fail of themselves, and users exclude nodes, mostly the wrong ones."""
    rng = np.random.default_rng([seed, 77])
    names = [f"m{i:03d}" for i in range(nodes)]
    rates = rate * rng.gamma(4.0, 0.25, nodes)
    bad = rng.choice(nodes, lemons, replace=False)
    rates[bad] = rate * rng.uniform(*times, lemons)
    town = Town(rng, names, rates, frozenset(names[i] for i in bad), named)
    free, job = np.zeros(nodes), 100
    while free.min() < DAYS * DAY:
        now = float(np.sort(free)[min(nodes - 1, int(rng.integers(1, 12)))])
        idle = np.flatnonzero(free <= now)
        size = int(rng.choice([s for s in SIZES if s <= max(1, len(idle))]))
        group = rng.choice(idle, size, replace=False) if len(idle) else np.array([int(free.argmin())])
        job += 1
        free[group] = _live(town, job, np.sort(group), max(now, float(free[group].max())) + 60.0)
    for i in bad:
        for at in rng.uniform(0, DAYS * DAY, rng.poisson(signs * rates[i] * DAYS)):
            town.xids.setdefault(names[i], []).append((float(at), 63))
    for at in rng.uniform(0, DAYS * DAY, rng.poisson(nodes / 8)):
        town.xids.setdefault(str(rng.choice(names)), []).append((float(at), 31))
    for at in rng.uniform(0, DAYS * DAY, rng.poisson(nodes / 20)):
        town.outages.append(OutageFacts(str(rng.choice(names)), float(at), float(at) + 3600, "DRAIN", "kernel"))
    _signs(town, signs)
    return town


def _live(town: Town, job: int, group: np.ndarray, start: float) -> float:
    """One attempt on ``group``; when its nodes are free again."""
    rng = town.rng
    length = float(rng.lognormal(10.3, 0.9))
    fault = float(rng.exponential(DAY / town.rates[group].sum()))
    bug = float(rng.exponential(DAY / 0.15)) if rng.random() < 0.5 else np.inf
    end = start + min(length, fault, bug)
    state = "COMPLETED" if length <= min(fault, bug) else "NODE_FAIL" if fault < bug else "FAILED"
    over = end < DAYS * DAY
    if over and state == "NODE_FAIL":
        share = town.rates[group] / town.rates[group].sum()
        town.tickets.setdefault("", []).append(end)
        _fault(town, int(rng.choice(group, p=share)), end)
    town.attempts.append(
        AttemptFacts(
            job=str(job),
            user=f"u{int(rng.integers(12))}",
            name=f"t{job}",
            state=state if over else "RUNNING",
            submit=start - 60,
            eligible=start - 60,
            start=start,
            end=end if over else None,
            nodes=tuple(town.names[i] for i in group),
            gpus_per_node=8,
            excluded=(str(rng.choice(town.names)),) if rng.random() < 0.2 else (),
        )
    )
    return end


def _fault(town: Town, node: int, at: float) -> None:
    name = town.names[node]
    if town.rng.random() < town.named:
        number = len(town.incidents) + 1
        town.incidents.append(
            IncidentFacts(
                id=number,
                cluster="c",
                kind="gpu_bus_loss",
                severity=Severity.CRITICAL,
                state="resolved",
                entity=f"{name}/gpu0",
                entity_kind="gpu",
                entity_id=f"GPU-{name}",
                node=name,
                job="",
                opened_at=at - 20,
                closed_at=at + 3600,
            )
        )
    town.tickets.setdefault(name, []).append(at)


def _signs(town: Town, chance: float) -> None:
    """Faults leave a ticket, a drain or an XID, each with ``chance``; what is left of ``tickets`` are those."""
    faults, town.tickets = town.tickets, {}
    faults.pop("", None)
    for node, times in sorted(faults.items()):
        for at in times:
            if town.rng.random() < chance:
                town.tickets.setdefault(node, []).append(at + 12 * 3600)
            if town.rng.random() < chance:
                town.outages.append(OutageFacts(node, at + 7200, at + 20_000, "DRAIN", "looks bad"))
            if town.rng.random() < chance:
                town.xids.setdefault(node, []).append((at - 5, 48))
