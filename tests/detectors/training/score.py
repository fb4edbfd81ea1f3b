"""The figures of the training family on runs that nobody tuned on: ``make score-training``."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np

from tests.detectors.training import scenes
from tests.detectors.training.model import Shape
from tests.detectors.training.scenes import Lead
from tests.detectors.training.trainer import Fault

#: Seeds that no threshold was chosen on (those below 1000 were).
FIRST = 2000


def healthy(runs: int) -> None:
    steps, found = 0, dict[str, list[str]]()
    for seed in range(FIRST, FIRST + runs):
        for experts in (False, True):
            n, some = scenes.false_alarms(seed, experts=experts)
            steps += n
            for name, reasons in some.items():
                found.setdefault(name, []).extend(reasons)
    total = sum(len(reasons) for reasons in found.values())
    print(f"healthy: {steps:,} steps, {total} false alarms, {1e5 * total / steps:.2f} per 100,000", flush=True)
    for name, reasons in sorted(found.items()):
        print(f"  {name}: {len(reasons)}")
        for reason in reasons[:12]:
            print(f"    {reason[:150]}")


def leads(seeds: int) -> None:
    for faults, shape in ((scenes.ATTENTION, scenes.DENSE), (scenes.ROUTER, scenes.MIXTURE)):
        for what, fault in faults.items():
            told(what, [scenes.lead(seed, fault, shape) for seed in range(FIRST, FIRST + seeds)])


def told(what: str, all_: list[Lead]) -> None:
    ours = [lead.ours for lead in all_ if lead.ours is not None]
    loss = [lead.loss for lead in all_ if lead.loss is not None]
    factors = [lead.factor for lead in all_]
    both = [lead.factor for lead in all_ if lead.ours is not None and lead.loss is not None]
    print(
        f"{what}: raised {len(ours)} of {len(all_)} (median after {np.median(ours) if ours else np.nan:.0f} steps), "
        f"loss {len(loss)} of {len(all_)} (median after {np.median(loss) if loss else np.nan:.0f}); lead median "
        f"{np.median(factors):.1f}, where both told {np.median(both) if both else np.nan:.1f} (n {len(both)}); "
        f"{sum(lead.ours is None and lead.loss is None for lead in all_)} told by neither; "
        f"{sum(lead.spoilt for lead in all_)} raised something before",
        flush=True,
    )


def loud(seeds: int) -> None:
    faults: Mapping[str, Fault] = scenes.LOUD
    shape: Shape = scenes.DENSE
    for what, fault in faults.items():
        told(what, [scenes.lead(seed, fault, shape, 900) for seed in range(FIRST, FIRST + seeds)])


def main(parts: list[str]) -> None:
    """``healthy=50`` and so on: how many; all parts by default."""
    wanted = dict(part.partition("=")[::2] for part in parts) or {"leads": "20", "loud": "10", "healthy": "52"}
    for part, n in wanted.items():
        {"healthy": healthy, "leads": leads, "loud": loud}[part](int(n or 20))


if __name__ == "__main__":
    main(sys.argv[1:])
