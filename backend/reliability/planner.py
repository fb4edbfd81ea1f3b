"""What-if: the ETTR that a run can expect, how often it should save, how many spares it needs. To 1 M GPUs on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from backend.reliability.expected import daly_s, expected_ettr, mttf_s, standbys, young_s

#: An interval shorter than this is a save all the time, s.
SHORTEST_S = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One run as planned. Times in s, ``per_node_day`` failures a node and day.

    interval_s None = Daly's. replicas: copies of the model that share the work (hybrid sharding); with
    ``per_step_recovery`` a failure costs only its replica, and the others go on. standby: spare nodes kept warm;
    standby_restart_s: a restart with one of them.
    """

    nodes: int
    per_node_day: float
    write_s: float
    restart_s: float
    interval_s: float | None = None
    gpus_per_node: int = 8
    replicas: int = 1
    per_step_recovery: bool = False
    standby: int = 0
    standby_restart_s: float | None = None
    days: float = 1.0


@dataclass(frozen=True, slots=True)
class Outlook:
    """What to expect of a Plan. lost_gpu_hours_day: GPUs times the share that is no training."""

    plan: Plan
    mttf_s: float
    interval_s: float
    young_s: float
    ettr: float
    standby_p99: int
    failures: float
    lost_gpu_hours_day: float


def outlook(plan: Plan) -> Outlook:
    """Raises ValueError for what cannot be: no node, a time or rate below 0, replicas that do not divide the work."""
    _check(plan)
    mttf = mttf_s(plan.nodes, plan.per_node_day)
    best = daly_s(plan.write_s, mttf)
    interval = max(SHORTEST_S, plan.interval_s if plan.interval_s is not None else min(best, 30 * 86_400.0))
    needed = standbys(plan.nodes, min(1.0, plan.per_node_day), plan.days)
    covered = plan.standby_restart_s is not None and plan.standby >= needed
    restart = plan.standby_restart_s if covered and plan.standby_restart_s is not None else plan.restart_s
    return Outlook(
        plan=plan,
        mttf_s=mttf,
        interval_s=interval,
        young_s=young_s(plan.write_s, mttf),
        ettr=_share(plan, mttf, interval, restart),
        standby_p99=needed,
        failures=plan.nodes * plan.per_node_day * plan.days,
        lost_gpu_hours_day=(1 - _share(plan, mttf, interval, restart)) * plan.nodes * plan.gpus_per_node * 24,
    )


def _share(plan: Plan, mttf: float, interval: float, restart: float) -> float:
    if not plan.per_step_recovery:
        return expected_ettr(mttf, restart, interval, plan.write_s)
    # a failure takes one replica of many out for a restart; the rest commit every step, nothing is stepped twice
    away = min(1.0, restart / mttf_s(plan.nodes / plan.replicas, plan.per_node_day))
    return max(0.0, 1 - away) / (1 + plan.write_s / interval)


def _check(plan: Plan) -> None:
    for name in ("per_node_day", "write_s", "restart_s", "standby", "days"):
        if not getattr(plan, name) >= 0:
            raise ValueError(f"{name} is {getattr(plan, name)}; it must be 0 or more")
    if plan.nodes < 1 or not 1 <= plan.replicas <= plan.nodes:
        raise ValueError(f"{plan.replicas} replicas on {plan.nodes} nodes: give at least one node to each replica")
    if plan.interval_s is not None and not plan.interval_s > 0:
        raise ValueError(f"interval_s is {plan.interval_s}; it must be above 0")


def what_if(plan: Plan, nodes: Sequence[int]) -> list[Outlook]:
    """The same plan at other sizes."""
    return [outlook(replace(plan, nodes=count)) for count in nodes]


@dataclass(frozen=True, slots=True)
class Bid:
    """A job that may run: the nodes it asks for, its plan's rate and cost, and what an effective GPU-hour is worth."""

    name: str
    plan: Plan
    worth: float = 1.0


def choose(bids: Sequence[Bid], nodes: int) -> list[Bid]:
    """Which jobs to run where ``nodes`` do not suffice for all: most worth of effective GPU-hours (exact, by dynamic
    programming over nodes; ties go to the first). Cost: jobs x nodes."""
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())] * (nodes + 1)
    for place, bid in enumerate(bids):
        size = bid.plan.nodes
        value = outlook(bid.plan).ettr * size * bid.plan.gpus_per_node * bid.worth
        for room in range(nodes, size - 1, -1):
            total, taken = best[room - size]
            if total + value > best[room][0] + 1e-9:
                best[room] = (total + value, (*taken, place))
    return [bids[place] for place in best[nodes][1]]
