"""What-if of a run: what is not given is taken from what was measured here, else assumed, and each says which."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backend.reliability.planner import Outlook, Plan, outlook, what_if

#: Sizes of the curve, in nodes: to 1 M GPUs of 8 a node.
SIZES = tuple(2**k for k in range(18))
#: Save intervals of the curve, as multiples of the best one.
SPREAD = tuple(2 ** (k / 4) for k in range(-16, 17))
#: Where nothing was measured: failures a node and day (papers.md 3: 6.50 per 1,000 node-days), s of a blocking save
#: and s to the first step again (papers.md 1 and 4 span 30 to 300 s and 2 to 15 min).
ASSUMED = {"per_node_day": 0.0065, "write_s": 60.0, "restart_s": 300.0}


@dataclass(frozen=True, slots=True)
class Given:
    """One input: where it comes from (given, measured, assumed), and its n where it was measured."""

    value: float
    source: str
    n: int | None = None


def measured(document: Mapping[str, Any] | None) -> dict[str, Given]:
    """Rate, save and restart as the whole over a window tells them; what it does not is assumed."""
    found = {name: Given(value, "assumed") for name, value in ASSUMED.items()}
    if document is None:
        return found
    failures, checkpoints = document["failures"], document["checkpoints"]
    days, failed = failures["allocated_node_days"] or 0.0, failures["failed_attempts"]
    if days > 0 and failed:
        found["per_node_day"] = Given(failed / days, "measured", failed)
    if checkpoints["saves"]["mean_s"]:
        found["write_s"] = Given(checkpoints["saves"]["mean_s"], "measured", checkpoints["saves"]["n"])
    restarts = [row["restart_s"] for row in checkpoints["advice"] if row["restart_s"]]
    if restarts:
        found["restart_s"] = Given(math.fsum(restarts) / len(restarts), "measured", len(restarts))
    return found


def planned(document: Mapping[str, Any] | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The outlook of one plan, of the same at other sizes and at other intervals, as JSON values.

    ``asked``: fields of Plan, None = not given. Raises ValueError for what cannot be.
    """
    base = measured(document)
    inputs = {
        name: Given(float(asked[name]), "given") if asked.get(name) is not None else given
        for name, given in base.items()
    }
    others: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    plan = Plan(**{**others, **{name: given.value for name, given in inputs.items()}})
    found = outlook(plan)
    best = found if plan.interval_s is None else outlook(_with(plan, interval_s=None))
    spread = [outlook(_with(plan, interval_s=best.interval_s * times)) for times in SPREAD]
    sizes = [size for size in SIZES if size >= plan.replicas]
    return {
        "inputs": {n: {"value": _number(g.value), "source": g.source, "n": g.n} for n, g in inputs.items()},
        "plan": _plan_json(plan),
        **outlook_json(found),
        "best_interval_s": _number(best.interval_s),
        "best_ettr": _number(best.ettr),
        "by_nodes": [{"nodes": one.plan.nodes, **outlook_json(one)} for one in what_if(plan, sizes)],
        "by_interval": [outlook_json(one) for one in spread],
    }


def outlook_json(found: Outlook) -> dict[str, Any]:
    return {
        "ettr": _number(found.ettr),
        "mttf_s": _number(found.mttf_s),
        "interval_s": _number(found.interval_s),
        "young_s": _number(found.young_s),
        "standby_p99": found.standby_p99,
        "failures_expected": _number(found.failures),
        "lost_gpu_hours_day": _number(found.lost_gpu_hours_day),
    }


def _plan_json(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__slots__}


def _with(plan: Plan, **changed: Any) -> Plan:
    return Plan(**{**_plan_json(plan), **changed})


def _number(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
