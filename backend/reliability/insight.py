"""The sections of reliability.json that look behind the counts: risk, components, differences, crash loops; and of one
run Meta's split of its time and the ETTR of each role."""

from __future__ import annotations

from typing import Any

from backend.reliability.account import Accounts, RunAccount
from backend.reliability.components import by_component
from backend.reliability.differential import LEVEL, differences
from backend.reliability.ettr import close
from backend.reliability.loops import crash_loops
from backend.reliability.quru import quru
from backend.reliability.retries import Gaps
from backend.reliability.risk import Quality, failure_risk
from backend.reliability.roles import pools
from backend.reliability.totals import bounds_json, interval, number

#: Nodes of the risk, and rows of differences and loops, that are told: the first ones.
MOST_RISK, MOST_DIFFERENCES, MOST_LOOPS = 50, 40, 50


def insight_json(accounts: Accounts) -> dict[str, Any]:
    """Fields ``risk``, ``components``, ``differences`` and ``crash_loops``."""
    return {
        "risk": risk_json(accounts),
        "components": components_json(accounts),
        "differences": differences_json(accounts),
        "crash_loops": loops_json(accounts),
    }


def risk_json(accounts: Accounts) -> dict[str, Any]:
    """The chance of a fault within 24 h by node, the highest first; ``silent`` says why there is none."""
    found = failure_risk(accounts)
    rows = [
        {"node": row.node, "chance": number(row.chance), "why": [[name, number(odds)] for name, odds in row.why]}
        for row in found.nodes[:MOST_RISK]
    ]
    quality = None if found.quality is None else _quality_json(found.quality)
    return {"nodes": rows, "of_nodes": len(found.nodes), "quality": quality, "silent": found.silent}


def _quality_json(found: Quality) -> dict[str, Any]:
    return {
        "begin": number(found.begin),
        "end": number(found.end),
        "node_days": found.n,
        "with_fault": found.faults,
        "brier": number(found.brier),
        "brier_of_base_rate": number(found.brier_base),
        "skill": number(found.skill),
        "lift": number(found.lift),
        "lift_ci95": interval(found.lift_interval),
        "top": {"with_fault": found.top_k, "node_days": found.top_n},
        "calibration": [{"said": number(b.said), "with_fault": b.k, "node_days": b.n} for b in found.bins],
    }


def components_json(accounts: Accounts) -> list[dict[str, Any]]:
    """Failures, time between, to notice and to mend of each component."""
    rows = []
    for row in by_component(accounts):
        days, within = row.mttf_node_days
        rows.append(
            {
                "component": row.name,
                "failures": row.rate.count,
                "node_days": number(row.rate.exposure),
                "per_1000_node_days": number(row.rate.value, 1000),
                "ci95": interval(row.rate.interval, 1000),
                "ci95_by_run": interval(row.by_run, 1000),
                "mttf_node_days": number(days),
                "mttf_ci95": interval(within),
                "incidents": row.incidents,
                "mttd": _gaps_json(row.detect),
                "mttr": _gaps_json(row.repair),
            }
        )
    return rows


def _gaps_json(found: Gaps) -> dict[str, Any]:
    return {
        "n": found.n,
        "median_s": number(found.median_s),
        "q1_s": number(found.q1_s),
        "q3_s": number(found.q3_s),
    }


def differences_json(accounts: Accounts) -> dict[str, Any]:
    """What nodes that fail have and others have not; what stands out first. ``asked``: how many values were compared,
    which the correction is for."""
    found = differences(accounts)
    rows = [
        {
            "attribute": row.attribute,
            "value": row.value,
            "stands_out": row.stands_out,
            "faults": row.faults,
            "node_days": number(row.node_days),
            "other_faults": row.other_faults,
            "other_node_days": number(row.other_days),
            "rate_ratio": number(row.ratio),
            "ci95": interval(row.interval),
            "failed_nodes": row.failed,
            "nodes": row.nodes,
            "other_failed_nodes": row.other_failed,
            "other_nodes": row.other_nodes,
            "p": number(row.p),
            "p_corrected": number(row.p_holm),
        }
        for row in found[:MOST_DIFFERENCES]
    ]
    return {"asked": len(found), "level": LEVEL, "rows": rows}


def loops_json(accounts: Accounts) -> list[dict[str, Any]]:
    """Runs that failed again and again before they got anywhere, live ones first."""
    return [
        {
            "run": row.run,
            "job": row.job,
            "failures": row.failures,
            "seen_at": number(row.seen_at),
            "live": row.live,
            "infra": row.infra,
            "user": row.user,
            "not_known": row.not_known,
            "cause": row.cause,
            "same_node": row.same_node,
            "gpu_hours": number(row.gpu_hours),
            "preempted": row.preempted,
        }
        for row in crash_loops(accounts)[:MOST_LOOPS]
    ]


def quru_json(run: RunAccount) -> dict[str, Any]:
    """W = Q + R + U of one run, seconds; parts as [least, most]."""
    found = quru(run)
    return {
        "wall_s": number(found.wall_s),
        "queued_s": number(found.queued_s),
        "productive_s": bounds_json(found.productive),
        "catch_up_s": bounds_json(found.catch_up),
        "restart_s": bounds_json(found.restart),
        "stalls_s": bounds_json(found.stalls),
        "left_out_user_s": bounds_json(found.user_s),
        "ettr": bounds_json(found.ettr) if found.ettr is not None else None,
    }


def roles_json(run: RunAccount) -> list[dict[str, Any]]:
    """ETTR of each role; empty where no node of the run was given one."""
    if not any(account.attempt.roles for account in run.accounts):
        return []
    found = pools(run)
    return [
        {
            "role": pool.role,
            "ettr": bounds_json(pool.share) if pool.share is not None else None,
            "node_hours": number(pool.node_hours),
            "attempts": pool.sums.attempts,
            "attempt_ettr": number(close(pool.sums.ettr)),
        }
        for pool in found
    ]
