"""What is scored: healthy runs of many schedules, and runs in which attention or a router goes wrong.

A fault's lead is (loss - inject) / (ours - inject): steps until the rules on the loss raise it, over steps until the
bands do, both at their defaults, which hold the same rate of false alarms. A loss that never tells counts as the end of
the run, and how many did is told with the figure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from detectors.catalogue import load
from detectors.detector import Detector
from detectors.training.bands import Bands
from detectors.training.family import family
from detectors.training.loss import Loss
from detectors.training.signals import load as signals
from tests.detectors.training.model import Broken, Shape
from tests.detectors.training.telling import raised, ticks_of
from tests.detectors.training.trainer import Fault, Plan, train

DENSE = Shape(width=16, hidden=32, layers=2, length=12, ranks=2, batch=4, heads=2, vocab=16)
MIXTURE = replace(DENSE, experts=4)
INJECT, END = 600, 2400
ATTENTION = {"attention weights cut to 1 bit": Fault(INJECT, broken=Broken(round_bits=1, layer=0))}
ROUTER = {
    "router drawn together by half": Fault(INJECT, router=0.5),
    "router learns 8 times too fast": Fault(INJECT, rate=8.0, names=("0.router",)),
}
#: What is seen in the loss itself.
LOUD = {
    "batches of noise for 20 steps": Fault(INJECT, garble=0.7, span=20),
    "learning rate 60 times too high": Fault(INJECT, rate=60.0),
}


@dataclass(frozen=True, slots=True)
class Lead:
    """Steps from the fault until it was raised; None = never. spoilt: something was raised before the fault."""

    ours: int | None
    loss: int | None
    spoilt: bool

    @property
    def factor(self) -> float:
        ours = self.ours if self.ours is not None else END - INJECT
        return (self.loss if self.loss is not None else END - INJECT) / max(ours, 1)


def healthy(seed: int, steps: int = 3000, experts: bool = False) -> Plan:
    """Warm-up of another length, decay or none, batches that double, restarts: drawn from the seed."""
    dice = np.random.default_rng([seed, experts])
    return Plan(
        MIXTURE if experts else DENSE,
        steps=steps,
        rate=float(dice.choice([2e-3, 3e-3, 5e-3, 8e-3])),
        warm=int(dice.choice([20, 50, 100, 300])),
        constant=bool(dice.random() < 0.4),
        probe_every=25,
        ramp_at=int(dice.integers(steps // 4, steps)) if dice.random() < 0.5 else 0,
        restarts=tuple(sorted(int(at) for at in dice.integers(steps // 10, steps, int(dice.integers(0, 4))))),
    )


def false_alarms(seed: int, steps: int = 3000, *, experts: bool = False) -> tuple[int, dict[str, list[str]]]:
    """(healthy steps, findings by detector) of one run under every detector of the family."""
    seen = list(train(healthy(seed, steps, experts), seed))
    found: dict[str, list[str]] = {}
    for place, finding in raised(family(load()), ticks_of(seen)):
        found.setdefault(finding.detector, []).append(f"seed {seed}, step {place}: {finding.reason}")
    return len(seen), found


def lead(seed: int, fault: Fault, shape: Shape, steps: int = END) -> Lead:
    plan = Plan(shape, steps=steps, rate=3e-3, constant=True)
    rules: tuple[Detector[Any], ...] = (Bands(load(), signals()), Loss(load()))
    found = raised(rules, ticks_of(train(plan, seed, fault)))
    early = any(place < fault.at for place, _ in found)
    return Lead(_first(found, "training/bands", fault.at), _first(found, "training/loss", fault.at), early)


def _first(found: Iterable[tuple[int, Any]], detector: str, at: int) -> int | None:
    return next((place - at + 1 for place, finding in found if finding.detector == detector and place >= at), None)
