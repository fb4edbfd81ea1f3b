"""The sections of reliability.json as JSON values."""

from __future__ import annotations

import math
from typing import Any, Literal

from backend.facts import NodeFacts
from backend.reliability.account import Accounts
from backend.reliability.checkpoints import Advice, Cost, advice, cost
from backend.reliability.cost import ettr_by_gpus, goodput, waterfall
from backend.reliability.exclusions import Concentration, coverage, drains, exclusions
from backend.reliability.expected import mttf_s
from backend.reliability.faults import node_faults
from backend.reliability.intervals import Interval, rate
from backend.reliability.lemons import lemons
from backend.reliability.lost import lost
from backend.reliability.mttf import Failures, by_size, failures
from backend.reliability.parts import Bounds
from backend.reliability.repair import detection_s, outage_s, repair_s
from backend.reliability.retries import Hand, chains_of, counted, gaps, quartiles
from backend.reliability.together import together


def retry_json(accounts: Accounts) -> dict[str, Any]:
    """Chains by hand, those still open, and the time to start again."""
    chains = chains_of(accounts)
    found: dict[str, Any] = {}
    hands: dict[str, Hand | None] = {"auto": "auto", "manual": "manual", "mixed": "mixed", "all": None}
    for name, hand in hands.items():
        sums = counted(chains, hand)
        found[name] = {
            "chains": sums.chains,
            "success": sums.success,
            "rate": number(sums.rate),
            "ci95": interval(sums.interval),
            "attempts": sums.attempts,
        }
    still = [chain for chain in chains if chain.success is None]
    found["open_chains"] = len(still)
    found["recovered"] = sum(chain.recovered is True for chain in still)
    found["recovery_not_known"] = sum(chain.recovered is None for chain in still)
    links: dict[str, Literal["requeue", "resubmit"]] = {"interval_auto": "requeue", "interval_manual": "resubmit"}
    for name, link in links.items():
        spread = quartiles(gaps(accounts, link))
        found[name] = {
            "n": spread.n,
            "median_s": number(spread.median_s),
            "q1_s": number(spread.q1_s),
            "q3_s": number(spread.q3_s),
        }
    return found


def exclusions_json(accounts: Accounts) -> dict[str, Any]:
    """Exclusions by attempt, and drains, which are counted apart."""
    attempts = [account.attempt for account in accounts.attempts]
    fleet = fleet_size(accounts)
    return {
        "exclusions": {
            "by_attempt": concentration_json(exclusions(attempts, fleet)),
            "source_coverage": coverage(attempts),
        },
        "drains": concentration_json(drains(accounts.history.outages, fleet)),
    }


def concentration_json(found: Concentration) -> dict[str, Any]:
    return {
        "total": found.total,
        "nodes": len(found.counts),
        "top3": [node for node, _ in found.top3],
        "top3_share": number(found.top3_share),
        "gini": number(found.gini),
        "by_node": dict(sorted(found.counts.items(), key=lambda item: (-item[1], item[0]))),
    }


def failures_json(accounts: Accounts) -> dict[str, Any]:
    """Counts, exposure, and times between failures with their intervals."""
    per_day = failures(accounts, accounts.attempts, by_nodes=True)
    per_hour = failures(accounts, accounts.attempts, by_nodes=False)
    job_hours, job_within = per_hour.mean_time()
    faults = node_faults(accounts)
    fleet = rate(len(faults), span_s(accounts) / 3600)
    fleet_hours = 1 / fleet.value if fleet.value else None
    fleet_within = None
    if fleet.interval is not None and fleet.interval.high > 0:
        fleet_within = Interval(1 / fleet.interval.high, 1 / fleet.interval.low if fleet.interval.low else math.inf)
    return {
        "node_faults": len(faults),
        "infra_job_failures": per_day.rate.count,
        "failed_attempts": sum(a.failed for a in accounts.attempts),
        "cause_not_known": sum(a.failed and a.verdict.infra is None for a in accounts.attempts),
        "allocated_node_days": number(per_day.rate.exposure),
        "rf_per_1000_node_days": number(per_day.rate.value, 1000),
        "rf_ci95": interval(per_day.rate.interval, 1000),
        "rf_ci95_by_run": interval(per_day.by_run, 1000),
        "job_hours": number(per_hour.rate.exposure),
        "job_mttf_hours": number(job_hours),
        "job_mttf_ci95": interval(job_within),
        "fleet_hours": number(fleet.exposure),
        "fleet_mttf_hours": number(fleet_hours),
        "fleet_mttf_ci95": interval(fleet_within),
        "by_size": [_size_json(per_day.rate.value, *size) for size in by_size(accounts)],
    }


def repair_json(accounts: Accounts) -> dict[str, Any]:
    """Times to notice and to mend, as measured."""
    return {
        "incident_repair": _spread_json(repair_s(accounts)),
        "node_outage": _spread_json(outage_s(accounts)),
        "detection": _spread_json(detection_s(accounts)),
    }


def cost_json(accounts: Accounts) -> dict[str, Any]:
    """GPU-hours by part and by cause as [least, most], and the goodput lost by Meta's rule."""
    less, share = goodput(accounts), ettr_by_gpus(accounts.attempts)
    return {
        "ettr_by_gpus": bounds_json(share) if share is not None else None,
        "gpu_hours": {part: bounds_json(sums) for part, sums in waterfall(accounts.attempts).items()},
        "by_cause": {
            row.name: {"failures": row.failures, "gpu_hours": bounds_json(row.gpu_hours)}
            for row in lost(accounts, "cause")
        },
        "goodput": {
            "direct_gpu_hours": number(less.direct_h),
            "direct_jobs": less.direct,
            "second_order_gpu_hours": number(less.second_h),
            "second_order_jobs": less.second,
        },
    }


def together_json(accounts: Accounts) -> list[dict[str, Any]]:
    """Kinds of incidents that were seen together on a node."""
    return [
        {
            "kind": pair.kind,
            "with": pair.other,
            "together": pair.k,
            "n": pair.n,
            "share": number(pair.k / pair.n),
            "ci95": interval(pair.interval),
            "expected_by_chance": number(pair.expected),
        }
        for pair in together(accounts)
    ]


def _spread_json(values: list[float]) -> dict[str, Any]:
    spread = quartiles(values)
    return {
        "n": spread.n,
        "mean_s": number(math.fsum(values) / len(values) if values else None),
        "median_s": number(spread.median_s),
        "q1_s": number(spread.q1_s),
        "q3_s": number(spread.q3_s),
    }


def bounds_json(found: Bounds) -> list[float | None]:
    return [number(found.low), number(found.high)]


def _size_json(overall: float | None, low: int, high: int, found: Failures) -> dict[str, Any]:
    hours, within = found.mean_time()
    model = mttf_s(found.mean_nodes, overall) / 3600 if overall else None
    return {
        "nodes": [low, high],
        "mean_nodes": number(found.mean_nodes),
        "jobs_hours": number(found.rate.exposure),
        "failures": found.rate.count,
        "runs": found.runs,
        "mttf_hours": number(hours),
        "mttf_ci95": interval(within),
        "model_mttf_hours": number(model),
    }


def lemons_json(accounts: Accounts) -> list[dict[str, Any]]:
    """Nodes that show a signal, those named first. score: the rate as a multiple of the fleet's usual one."""
    return [
        {
            "node": row.node,
            "lemon": row.lemon,
            "score": number(row.score),
            "p_false": number(row.p_false),
            "failures": row.failures,
            "shared_failures": number(row.shared),
            "node_days": number(row.node_days),
            "signals": {name: number(value) for name, value in row.signals.items()},
        }
        for row in lemons(accounts)
    ]


def checkpoints_json(accounts: Accounts) -> dict[str, Any]:
    """What saves and loads took, and the interval that each run should save at."""
    told = [c for run in accounts.runs for c in run.checkpoints]
    saves = [c for c in told if c.kind == "save"]
    return {
        "saves": _cost_json(cost(saves)),
        "loads": _cost_json(cost(c for c in told if c.kind == "load")),
        "blocking_saves": sum(c.blocking for c in saves),
        "advice": [_advice_json(found) for found in advice(accounts)],
    }


def _cost_json(found: Cost) -> dict[str, Any]:
    return {
        "n": found.n,
        "mean_s": number(found.mean_s),
        "ci95": interval(found.interval),
        "median_s": number(found.median_s),
        "bytes_per_s": number(found.rate_bytes_s),
    }


def _advice_json(found: Advice) -> dict[str, Any]:
    return {
        "run": found.run,
        "write": _cost_json(found.write),
        "interval_s": number(found.interval_s),
        "restart_s": number(found.restart_s),
        "failures": found.failures,
        "mttf_s": number(found.mttf_s),
        "mttf_ci95": interval(found.mttf),
        "young_s": number(found.young_s),
        "daly_s": number(found.daly_s),
        "daly_bounds_s": interval(found.bounds),
        "best_s": number(found.best_s),
        "best_ci95": interval(found.best),
        "expected_ettr_now": number(found.ettr_now),
        "expected_ettr_advised": number(found.ettr_then),
        "gain_ci95": interval(found.gain),
        "pays": number(found.pays),
    }


def fleet_size(accounts: Accounts) -> int:
    """Nodes of the inventory, else those that anything names."""
    known: list[NodeFacts] = list(accounts.history.nodes)
    if known:
        return len({node.name for node in known})
    return len({node for account in accounts.attempts for node in account.attempt.nodes})


def span_s(accounts: Accounts) -> float:
    """From the begin of the data, or of the earliest attempt, to their end."""
    starts = [a.attempt.start for a in accounts.attempts if a.attempt.start is not None]
    return max(0.0, accounts.history.end - min([accounts.history.start, *starts]))


def number(value: float | None, times: float = 1.0) -> float | None:
    """Six digits after the point; null for what is no number of JSON."""
    return round(value * times, 6) if value is not None and math.isfinite(value) else None


def interval(found: Interval | None, times: float = 1.0) -> list[float | None] | None:
    """[low, high]; null for a side without a bound, or where there is none."""
    return None if found is None else [number(found.low, times), number(found.high, times)]
