"""The accounts as columns: what sums over many of them are taken from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.reliability.account import Account
from backend.reliability.history import Floats
from backend.reliability.parts import PARTS, Bounds, Part


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Of n accounts. low, high: float64[n, parts], seconds in the order of PARTS; the others float64[n], missing_s what
    missing replicas took of the productive seconds."""

    low: Floats
    high: Floats
    wall_s: Floats
    queue_s: Floats
    hold_s: Floats
    gpus: Floats
    missing_s: Floats

    @classmethod
    def of(cls, accounts: Sequence[Account]) -> Columns:
        bounds = [[account.parts[part] for part in PARTS] for account in accounts]
        shape = (len(accounts), len(PARTS))
        attempts = [account.attempt for account in accounts]
        return cls(
            low=np.array([b.low for row in bounds for b in row], np.float64).reshape(shape),
            high=np.array([b.high for row in bounds for b in row], np.float64).reshape(shape),
            wall_s=np.array([a.wall_s for a in accounts], np.float64),
            queue_s=np.array([a.queue_s for a in accounts], np.float64),
            hold_s=np.array([a.hold_s for a in accounts], np.float64),
            gpus=np.array([len(a.nodes) * a.gpus_per_node for a in attempts], np.float64),
            missing_s=np.array([missing(a) for a in accounts], np.float64),
        )

    def sums(self, weights: Floats | None = None) -> dict[Part, Bounds]:
        """Of each part, every account times its weight."""
        low, high = (self.low, self.high) if weights is None else (self.low.T * weights, self.high.T * weights)
        axis = 0 if weights is None else 1
        return {
            part: Bounds(float(a), float(b)) for part, a, b in zip(PARTS, low.sum(axis), high.sum(axis), strict=True)
        }


def missing(account: Account) -> float:
    """Productive seconds that missing replicas took from the whole."""
    if account.told is None:
        return 0.0
    return account.parts["productive"].high - account.told.weighted_s
