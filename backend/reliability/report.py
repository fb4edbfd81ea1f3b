"""runs.json and reliability.json: the documents of the accounting, of one History.

``accounts = account(History(...))`` once (backend.reliability.account), then ``runs_json(accounts)`` (a list, one
object a run) and ``reliability_json(accounts)`` (one object); both are plain JSON values without NaN, rounded, the
same for the same facts in any order. A number that is not known is null. Beside the fields of contracts.md they carry
the n and the 95 % interval of each rate, and bounds where the sources leave a part open.
"""

from __future__ import annotations

import math
from typing import Any

from backend.facts import AttemptFacts
from backend.reliability.account import Account, Accounts, RunAccount
from backend.reliability.ettr import Ettr, close, ettr, ettrs, sliding
from backend.reliability.insight import insight_json, quru_json, roles_json
from backend.reliability.parts import PARTS, Bounds
from backend.reliability.totals import (
    bounds_json,
    checkpoints_json,
    cost_json,
    exclusions_json,
    failures_json,
    lemons_json,
    number,
    repair_json,
    retry_json,
    together_json,
)

#: A part is told as one number where its bounds leave less open than this share of the wall, or this long an attempt.
PART_SHARE, PART_S = 0.005, 1.0


def runs_json(accounts: Accounts) -> list[dict[str, Any]]:
    """One object a run, in the order they began; fields of contracts.md first.

    ``decomposition_s`` holds the seven parts and queue_eligible and hold, null where they are only bounded; then
    ``decomposition_bounds_s`` holds [low, high] of each. ``ettr_bounds`` likewise.
    """
    sums = ettrs([run.accounts for run in accounts.runs])
    return [_run_json(accounts, run, found) for run, found in zip(accounts.runs, sums, strict=True)]


def reliability_json(accounts: Accounts) -> dict[str, Any]:
    """The fields of DESIGN section 6; ``left_out`` lists attempts whose times cannot be."""
    return {
        "span": {"start": accounts.history.start, "end": accounts.history.end},
        "ettr": _ettr_json(ettr(accounts.attempts)),
        "retry": retry_json(accounts),
        **exclusions_json(accounts),
        "failures": failures_json(accounts),
        "repair": repair_json(accounts),
        "cost": cost_json(accounts),
        "together": together_json(accounts),
        "lemons": lemons_json(accounts),
        **insight_json(accounts),
        "checkpoints": checkpoints_json(accounts),
        "left_out": [{"job": p.job, "restart": p.restart, "what": p.what} for p in accounts.problems],
        "rows_outside_attempts": accounts.rows_outside,
    }


def _run_json(accounts: Accounts, run: RunAccount, sums: Ettr) -> dict[str, Any]:
    told = run.accounts
    shape = _shape(told)
    infra = sum(a.failed and a.verdict.infra is True for a in told)
    hours = math.fsum(a.recorded_s for a in told) / 3600
    return {
        "run": run.run.name,
        "nodes": len(shape.nodes) if shape else 0,
        "gpus": len(shape.nodes) * shape.gpus_per_node if shape else 0,
        "attempts": [_attempt_json(a) for a in told],
        **_ettr_json(sums),
        "ettr_sliding_1h": [[round(at, 3), round(share, 6)] for at, share in sliding(run, accounts.history.end)],
        "of_productive_s": _quality(told),
        "quru": quru_json(run),
        "roles": roles_json(run),
        "scheduled_wall_s": round(sums.wall_s, 3),
        "denominator_s": round(sums.denominator_s, 3),
        "failures": sum(a.failed for a in told),
        "infra_failures": infra,
        "mttf_hours": number(hours / infra if infra else None),
        "joined_by": run.run.by,
        "sources": sorted({a.source for a in told}),
    }


def _shape(told: tuple[Account, ...]) -> AttemptFacts | None:
    """The last attempt that ran says how large the run is."""
    return next((a.attempt for a in reversed(told) if a.attempt.nodes), None)


def _attempt_json(account: Account) -> dict[str, Any]:
    attempt = account.attempt
    return {
        "job": attempt.job,
        "restart": attempt.restart,
        "state": attempt.state,
        "failed": account.failed,
        "infra": account.verdict.infra,
        "submit": attempt.submit,
        "eligible": attempt.eligible,
        "start": attempt.start,
        "end": attempt.end,
        "nodes": list(attempt.nodes),
        "excluded": list(attempt.excluded),
        "class": account.verdict.log_class,
        "verdict": account.verdict.text,
        "source": account.source,
        "parts_s": {part: part_number(account.parts[part], account.wall_s, 1) for part in PARTS},
    }


def _ettr_json(sums: Ettr) -> dict[str, Any]:
    attempts = max(1, sums.attempts)
    waits = {"queue_eligible": sums.queue_s, "hold": sums.hold_s}
    parts = {part: part_number(sums.parts[part], sums.wall_s, attempts) for part in PARTS}
    bounded = any(sums.parts[part].width > 0 for part in PARTS)
    more = {"decomposition_bounds_s": {part: bounds_json(sums.parts[part]) for part in PARTS}} if bounded else {}
    return {
        "ettr": number(close(sums.ettr)),
        "ettr_incl_hold": number(close(sums.incl_hold)),
        "ettr_saves_productive": number(close(sums.saves_productive)),
        "ettr_replica_weighted": number(close(sums.weighted)),
        "ettr_bounds": bounds_json(sums.ettr) if sums.ettr is not None else None,
        "decomposition_s": {**parts, **{name: round(s, 3) for name, s in waits.items()}},
        **more,
    }


def _quality(told: tuple[Account, ...]) -> dict[str, float | None]:
    ran = [a for a in told if a.window is not None]
    if not ran or any(a.told is None for a in ran):
        return {"slow": None, "degraded": None}
    return {
        "slow": round(math.fsum(a.told.slow_s for a in ran if a.told), 3),
        "degraded": round(math.fsum(a.told.degraded_s for a in ran if a.told), 3),
    }


def part_number(bounds: Bounds, wall_s: float, attempts: int) -> float | None:
    """A part as one number, null where its bounds leave more open than PART_SHARE or PART_S an attempt."""
    return round(bounds.middle, 3) if bounds.width <= 2 * max(PART_SHARE * wall_s, PART_S * attempts) else None
