"""What-if: the ETTR that a run can expect, how often it should save, how many spares it needs. To 1 M GPUs on paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from backend.reliability.expected import (
    best_interval_s,
    exact_ettr,
    expected_ettr,
    mttf_s,
    simulated_ettr,
    standbys,
    young_s,
)

#: An interval shorter than this is a save all the time, and one longer than the second none that anybody chooses, s.
SHORTEST_S, LONGEST_S = 1.0, 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One run as planned. Times in s, ``per_node_day`` failures a node and day.

    interval_s None = the best. replicas: copies of the model that share the work (hybrid sharding); with
    ``per_step_recovery`` a failure takes only its replica away for a restart, nothing is stepped twice, and all stand
    still for ``stall_s`` while they regroup. standby: spare nodes kept warm; standby_restart_s: a restart with one of
    them, which a failure gets as long as one is left. days: that spares must last for, and what failures are told of.
    """

    nodes: int
    per_node_day: float
    write_s: float
    restart_s: float
    interval_s: float | None = None
    gpus_per_node: int = 8
    replicas: int = 1
    per_step_recovery: bool = False
    stall_s: float = 0.0
    standby: int = 0
    standby_restart_s: float | None = None
    days: float = 1.0


@dataclass(frozen=True, slots=True)
class Outlook:
    """What to expect of a Plan. lost_gpu_hours_day: GPUs times the share that is no training.

    ettr: exact for failures at random (backend.reliability.expected.exact_ettr), or of replicas that come and go.
    first_order: Kokolis' formula, None with per-step recovery. restart_s: as expected with the spares.
    covered: the chance that the spares suffice.
    """

    plan: Plan
    mttf_s: float
    interval_s: float
    young_s: float
    ettr: float
    first_order: float | None
    restart_s: float
    covered: float
    standby_p99: int
    failures: float
    lost_gpu_hours_day: float


def outlook(plan: Plan) -> Outlook:
    """Raises ValueError for what cannot be: no node, a time or rate below 0, replicas that do not divide the work."""
    _check(plan)
    mttf = mttf_s(plan.nodes, plan.per_node_day)
    interval = plan.interval_s if plan.interval_s is not None else min(best_interval_s(mttf, plan.write_s), LONGEST_S)
    interval = max(SHORTEST_S, interval)
    covered = _covered(plan)
    fast = plan.restart_s if plan.standby_restart_s is None else min(plan.standby_restart_s, plan.restart_s)
    restart = covered * fast + (1 - covered) * plan.restart_s
    share = _share(plan, mttf, interval, restart)
    return Outlook(
        plan=plan,
        mttf_s=mttf,
        interval_s=interval,
        young_s=young_s(plan.write_s, mttf),
        ettr=share,
        first_order=None if plan.per_step_recovery else expected_ettr(mttf, restart, interval, plan.write_s),
        restart_s=restart,
        covered=covered,
        standby_p99=standbys(plan.nodes, min(1.0, plan.per_node_day), plan.days),
        failures=plan.nodes * plan.per_node_day * plan.days,
        lost_gpu_hours_day=(1 - share) * plan.nodes * plan.gpus_per_node * 24,
    )


def check(found: Outlook, lives: int = 20_000) -> tuple[float, float] | None:
    """(share, its standard error) by Monte Carlo of the same plan; None where nothing ever fails, or where replicas
    come and go."""
    plan = found.plan
    if plan.per_step_recovery or not math.isfinite(found.mttf_s):
        return None
    return simulated_ettr(found.mttf_s, found.restart_s, found.interval_s, plan.write_s, lives=lives)


def _covered(plan: Plan) -> float:
    """The chance that no more nodes fail in ``days`` than there are spares; 0 without any."""
    if plan.standby <= 0 or plan.standby_restart_s is None:
        return 0.0
    rate = min(1.0, plan.per_node_day)
    chance = -math.expm1(plan.days * math.log1p(-rate)) if rate < 1 else 1.0
    return float(stats.binom.cdf(plan.standby, plan.nodes, chance))


def _share(plan: Plan, mttf: float, interval: float, restart: float) -> float:
    if not plan.per_step_recovery:
        return exact_ettr(mttf, restart, interval, plan.write_s)
    # each replica is there for its own time between failures, and away for a restart; the rest commits every step
    own = mttf_s(plan.nodes / plan.replicas, plan.per_node_day)
    there = own / (own + restart) if math.isfinite(own) else 1.0
    going = max(0.0, 1 - plan.stall_s / mttf) if math.isfinite(mttf) else 1.0
    return there * going / (1 + plan.write_s / interval)


def _check(plan: Plan) -> None:
    for name in ("per_node_day", "write_s", "restart_s", "standby", "days", "stall_s"):
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
    """A job that may run: its plan, what an effective GPU-hour of it is worth, and at which sizes it may run (elastic;
    () = only the plan's own). now: the nodes that it runs on, 0 = it waits; another size costs it a restart."""

    name: str
    plan: Plan
    worth: float = 1.0
    sizes: tuple[int, ...] = ()
    now: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """nodes: given to the bid. value: worth of its effective GPU-hours over the time that was asked for."""

    bid: Bid
    nodes: int
    ettr: float
    value: float


def choose(bids: Sequence[Bid], nodes: int, days: float = 1.0) -> list[Choice]:
    """Which jobs to run, at which size, where ``nodes`` do not suffice for all: most worth of effective GPU-hours over
    ``days``, what a change of size takes left out of it (exact, by dynamic programming; ties go to the first; the idea
    is Unicron's, papers.md 6). Cost: sizes of all jobs x nodes. Raises ValueError for a size below 1."""
    total, seen = np.zeros(nodes + 1), cache(outlook)
    turns: list[tuple[list[Choice], NDArray[np.int16]]] = []
    for bid in bids:
        sizes = sorted(set(bid.sizes or (bid.plan.nodes,)))
        options = [_choice(bid, size, days, seen) for size in sizes if size <= nodes]
        before, taken = total, np.full(nodes + 1, -1, np.int16)
        total = before.copy()
        for place, option in enumerate(options):
            with_it = before[: nodes + 1 - option.nodes] + option.value
            better = with_it > total[option.nodes :] + 1e-9
            np.copyto(total[option.nodes :], with_it, where=better)
            np.copyto(taken[option.nodes :], place, where=better, casting="unsafe")
        turns.append((options, taken))
    found, room = [], nodes
    for options, taken in reversed(turns):
        if (place := int(taken[room])) >= 0:
            found.append(options[place])
            room -= options[place].nodes
    return found[::-1]


def _choice(bid: Bid, size: int, days: float, look: Callable[[Plan], Outlook]) -> Choice:
    found = look(replace(bid.plan, nodes=size, replicas=min(bid.plan.replicas, max(1, size))))
    hours = days * 24 - (0.0 if size == bid.now or not bid.now else bid.plan.restart_s / 3600)
    value = found.ettr * size * bid.plan.gpus_per_node * max(0.0, hours) * bid.worth
    return Choice(bid, size, found.ettr, value)
