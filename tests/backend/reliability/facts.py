"""Short ways to write facts down for the tests of the accounting."""

from __future__ import annotations

from typing import Any

import numpy as np

from backend.facts import AttemptFacts, CheckpointFacts, StepFacts
from backend.reliability.account import Account, Accounts, account
from backend.reliability.history import History


def attempt(job: str = "1", restart: int = 0, state: str = "COMPLETED", **more: Any) -> AttemptFacts:
    fields = {"run": "r", "user": "u", "nodes": ("n1",), "gpus_per_node": 8, "submit": 0.0, "eligible": 0.0}
    return AttemptFacts(job=job, restart=restart, state=state, **{**fields, "start": 10.0, **more})


def steps(first: float, last: float, every: float, job: str = "1", run: str = "r", **more: Any) -> list[StepFacts]:
    """A row each ``every`` s, the first at ``first``."""
    at = np.arange(first, last + 1e-6, every)
    fields = {"step_time_s": every, **more}
    begin = fields.pop("from_step", 0)
    return [StepFacts(at=float(t), run=run, job=job, step=begin + i + 1, **fields) for i, t in enumerate(at)]


def save(at: float, duration_s: float, step: int = 0, run: str = "r", **more: Any) -> CheckpointFacts:
    return CheckpointFacts(at=at, run=run, step=step, kind="save", duration_s=duration_s, **more)


def load(at: float, duration_s: float, step: int = 0, run: str = "r", **more: Any) -> CheckpointFacts:
    return CheckpointFacts(at=at, run=run, step=step, kind="load", duration_s=duration_s, **more)


def accounted(attempts: list[AttemptFacts], end: float, start: float = 0.0, **more: Any) -> Accounts:
    return account(History(start=start, end=end, attempts=attempts, **more))


def parts(told: Account) -> dict[str, float]:
    """The parts of an attempt that was measured."""
    assert all(b.low == b.high for b in told.parts.values()), told.parts
    return {name: round(b.low, 6) for name, b in told.parts.items()}
