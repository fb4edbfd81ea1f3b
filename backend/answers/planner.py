"""What-if of a run: what is not given is taken from what was measured here, else assumed, and each says which."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from backend.reliability.expected import mttf_s
from backend.reliability.planner import Bid, Outlook, Plan, check, choose, outlook, what_if
from backend.reliability.tiers import Blow, Kind, Tier, tiers_outlook

#: Sizes of the curve, in nodes: to 1 M GPUs of 8 a node.
SIZES = tuple(2**k for k in range(18))
#: Save intervals of the curve, as multiples of the best one.
SPREAD = tuple(2 ** (k / 4) for k in range(-16, 17))
#: Where nothing was measured: failures a node and day (papers.md 3: 6.50 per 1,000 node-days), s of a blocking save
#: and s to the first step again (papers.md 1 and 4 span 30 to 300 s and 2 to 15 min).
ASSUMED = {"per_node_day": 0.0065, "write_s": 60.0, "restart_s": 300.0}
#: Nodes that a switch takes with it (papers.md 4).
SWITCH = 32
#: Jobs that one choice weighs, and sizes of one: the work is their product with the nodes.
MOST_JOBS, MOST_JOB_SIZES, MOST_CHOICE = 200, 64, 20_000_000


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
    """The outlook of one plan, of the same at other sizes and at other intervals; checked by Monte Carlo. JSON values.

    ``asked``: fields of Plan, None = not given. Raises ValueError for what cannot be.
    """
    inputs, plan = plan_of(document, asked)
    found = outlook(plan)
    best = found if plan.interval_s is None else outlook(replace(plan, interval_s=None))
    spread = [outlook(replace(plan, interval_s=best.interval_s * times)) for times in SPREAD]
    drawn = check(found)
    sizes = [size for size in SIZES if size >= plan.replicas]
    return {
        "inputs": inputs_json(inputs),
        "plan": _plan_json(plan),
        **outlook_json(found),
        "simulated_ettr": None if drawn is None else _number(drawn[0]),
        "simulated_error": None if drawn is None else _number(drawn[1]),
        "best_interval_s": _number(best.interval_s),
        "best_ettr": _number(best.ettr),
        "by_nodes": [{"nodes": one.plan.nodes, **outlook_json(one)} for one in what_if(plan, sizes)],
        "by_interval": [outlook_json(one) for one in spread],
    }


def plan_of(document: Mapping[str, Any] | None, asked: Mapping[str, Any]) -> tuple[dict[str, Given], Plan]:
    """(inputs with their sources, the plan that they make)."""
    inputs = {
        name: Given(float(asked[name]), "given") if asked.get(name) is not None else given
        for name, given in measured(document).items()
    }
    others: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    return inputs, Plan(**{**others, **{name: given.value for name, given in inputs.items()}})


def inputs_json(inputs: Mapping[str, Given]) -> dict[str, Any]:
    return {name: {"value": _number(g.value), "source": g.source, "n": g.n} for name, g in inputs.items()}


def bid_of(words: str, plan: Plan) -> Bid:
    """A job in words: ``name:nodes``, elastic ``name:32,64,128`` or ``name:32-128`` (doubled from the least on), then
    ``:worth`` of an effective GPU-hour and ``:nodes now``, both optional. Raises ValueError that says what is wrong."""
    name, *parts = (part.strip() for part in words.split(":"))
    if not name or not 1 <= len(parts) <= 3:
        raise ValueError(f"job {words[:80]!r} is not name:nodes, name:nodes:worth or name:nodes:worth:now")
    try:
        sizes = _sizes(parts[0])
        worth = float(parts[1]) if len(parts) > 1 and parts[1] else 1.0
        now = int(parts[2]) if len(parts) > 2 and parts[2] else 0
    except ValueError as error:
        raise ValueError(f"job {words[:80]!r}: {error}") from None
    if not 0 <= worth < 1e9 or now < 0:
        raise ValueError(f"job {words[:80]!r}: worth and nodes now must be 0 or more")
    return Bid(name, replace(plan, nodes=sizes[-1], replicas=1), worth, sizes, now)


def _sizes(text: str) -> tuple[int, ...]:
    low, dash, high = text.partition("-")
    if dash:
        least, most = int(low), int(high)
        found = [least * 2**k for k in range(20) if 0 < least * 2**k < most] + [most]
    else:
        found = [int(part) for part in text.split(",")]
    if not all(1 <= size <= 1_000_000 for size in found) or len(found) > MOST_JOB_SIZES:
        raise ValueError(f"its sizes must be {MOST_JOB_SIZES} at most, each from 1 to 1,000,000 nodes")
    return tuple(sorted(set(found)))


def chosen(
    document: Mapping[str, Any] | None, asked: Mapping[str, Any], nodes: int, jobs: Sequence[str]
) -> dict[str, Any]:
    """Which jobs to run where ``nodes`` do not suffice for all, as JSON values; ``asked`` as in ``planned``. Raises
    ValueError for what cannot be."""
    inputs, plan = plan_of(document, {**asked, "nodes": 1})
    bids = [bid_of(words, plan) for words in jobs]
    work = nodes * sum(len(bid.sizes) for bid in bids)
    if not bids or len(bids) > MOST_JOBS or work > MOST_CHOICE:
        raise ValueError(f"give 1 to {MOST_JOBS} jobs whose sizes times the nodes stay under {MOST_CHOICE:,}")
    taken = {id(one.bid): one for one in choose(bids, nodes, plan.days)}
    rows: list[dict[str, Any]] = []
    for bid in bids:
        one = taken.get(id(bid))
        rows.append(
            {
                "job": bid.name,
                "sizes": list(bid.sizes),
                "worth": bid.worth,
                "now": bid.now,
                "nodes": one.nodes if one is not None else 0,
                "ettr": _number(one.ettr) if one is not None else None,
                "value": _number(one.value) if one is not None else 0.0,
            }
        )
    return {
        "nodes": nodes,
        "used": sum(row["nodes"] for row in rows),
        "days": plan.days,
        "value": _number(math.fsum(row["value"] or 0.0 for row in rows)),
        "inputs": inputs_json(inputs),
        "jobs": rows,
    }


def tier_of(words: str) -> Tier:
    """A tier in words: ``kind:every_s:write_s:load_s``, then ``:group:parity`` of peers and erasure-coded groups.
    Raises ValueError that says what is wrong."""
    kind, *numbers = words.split(":")
    kinds = {name: name for name in get_args(Kind)}
    if kind not in kinds or not 3 <= len(numbers) <= 5:
        raise ValueError(f"tier {words[:80]!r} is not KIND:EVERY_S:WRITE_S:LOAD_S of {', '.join(kinds)}")
    try:
        every, write, load = (float(number) for number in numbers[:3])
        group, parity = (int(number) for number in [*numbers[3:], *("2", "1")[len(numbers) - 3 :]])
    except ValueError:
        raise ValueError(f"tier {words[:80]!r} holds something that is no number") from None
    return Tier(kinds[kind], every, write, load, group, parity)


def tiered(
    document: Mapping[str, Any] | None, asked: Mapping[str, Any], tiers: Sequence[str], switch_share: float
) -> dict[str, Any]:
    """What checkpoints in several tiers survive, and the ETTR of all together, as JSON values. ``switch_share``: of the
    failures those that take 32 nodes at once; the others take one. Raises ValueError for what cannot be."""
    inputs, plan = plan_of(document, asked)
    blows = [Blow(1, 1 - switch_share), *([Blow(min(SWITCH, plan.nodes), switch_share)] if switch_share else [])]
    mttf = mttf_s(plan.nodes, plan.per_node_day)
    found = tiers_outlook([tier_of(words) for words in tiers], plan.nodes, mttf, plan.restart_s, blows)
    rows = [
        {
            "kind": row.tier.kind,
            "every_s": row.tier.every_s,
            "survives": _number(row.survives),
            "used": _number(row.used),
        }
        for row in found.tiers
    ]
    return {
        "inputs": inputs_json(inputs),
        "mttf_s": _number(mttf),
        "ettr": _number(found.ettr),
        "write_share": _number(found.write_share),
        "lost_s": _number(found.lost_s),
        "lost_all": _number(found.lost_all),
        "tiers": rows,
    }


def outlook_json(found: Outlook) -> dict[str, Any]:
    return {
        "ettr": _number(found.ettr),
        "mttf_s": _number(found.mttf_s),
        "interval_s": _number(found.interval_s),
        "young_s": _number(found.young_s),
        "ettr_first_order": None if found.first_order is None else _number(found.first_order),
        "restart_expected_s": _number(found.restart_s),
        "standby_p99": found.standby_p99,
        "standby_covers": _number(found.covered),
        "failures_expected": _number(found.failures),
        "lost_gpu_hours_day": _number(found.lost_gpu_hours_day),
    }


def _plan_json(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__slots__}


def _number(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
