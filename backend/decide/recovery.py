"""How a job goes on: from which step, past which batches, on which nodes, and what each choice is expected to cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Kinds whose cause may lie in the data of the step itself, so that the same batches would break it again.
BAD_BATCH = ("loss_spike", "loss_divergence", "nan_loss")
#: Kinds that may have spoilt what was saved since they began.
SPOILS = (*BAD_BATCH, "silent_data_corruption")
#: Steps back before a spike, and batches passed over: PaLM (arXiv 2204.02311) restarted about 100 steps before and
#: skipped 200 to 500 batches.
BACK_STEPS, SKIP_BATCHES = 100, 200


@dataclass(frozen=True, slots=True)
class Costs:
    """What the choices of one job rest on. Times in seconds.

    nodes: its size; gpus_per_node; lost: nodes that it loses; spares: free nodes that fit. unsaved_s: work since the
    last checkpoint; restart_s: until it steps again once it has its nodes; queue_s: expected wait in the queue;
    repair_s: until the lost nodes are back; again: chance that it fails again soon where the nodes are kept (0 to 1);
    elastic: it can go on with fewer nodes. price: of one GPU-hour, 0 = not known.
    """

    nodes: int
    gpus_per_node: int
    lost: int
    spares: int
    unsaved_s: float = 0.0
    restart_s: float = 300.0
    queue_s: float = 0.0
    repair_s: float = 14_400.0
    again: float = 1.0
    elastic: bool = False
    price: float = 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to go on. gpu_h: GPU-hours that are expected to be lost by it, all in; price: of those, 0 = not known."""

    name: str
    wait_s: float
    gpu_h: float
    price: float
    text: str


def choices(costs: Costs) -> tuple[Choice, ...]:
    """Every way that is open, the cheapest first. Lost work counts in each, since all begin at the checkpoint."""
    found = [_requeue(costs), _wait(costs)]
    if costs.again < 1:
        found.append(_in_place(costs))
    if costs.elastic and 0 < costs.lost < costs.nodes:
        found.append(_shrink(costs))
    return tuple(sorted(found, key=lambda choice: (choice.gpu_h, choice.name)))


def _requeue(costs: Costs) -> Choice:
    """Queued again without the bad nodes; it waits for as many others. With spares the queue holds it up no more."""
    if costs.spares >= costs.lost:
        return _made(costs, "requeue", costs.restart_s, "Queue it again, on spare nodes")
    return _made(costs, "requeue", max(costs.queue_s, 0.0) + costs.restart_s, "Queue it again without the bad nodes")


def _wait(costs: Costs) -> Choice:
    return _made(costs, "wait", costs.repair_s + costs.restart_s, "Wait until the nodes are mended")


def _in_place(costs: Costs) -> Choice:
    """Tried again as it is: what it costs when it works, and what every further try costs when it does not. The
    expected number of tries is 1 / (1 - again)."""
    tries = 1.0 / max(1.0 - costs.again, 1e-6)
    return _made(costs, "in place", tries * costs.restart_s, "Restart on the same nodes", more=(tries - 1.0))


def _shrink(costs: Costs) -> Choice:
    """Goes on with fewer nodes until the others are mended; what those would have done is lost."""
    whole = costs.nodes * costs.gpus_per_node
    idle = costs.lost * costs.gpus_per_node * costs.repair_s / 3600
    stopped = whole * (costs.restart_s + costs.unsaved_s) / 3600
    return _choice(costs, "shrink", costs.restart_s, idle + stopped, "Go on with fewer nodes")


def _made(costs: Costs, name: str, wait_s: float, text: str, more: float = 0.0) -> Choice:
    gpus = costs.nodes * costs.gpus_per_node
    return _choice(costs, name, wait_s, gpus * (wait_s + costs.unsaved_s * (1.0 + more)) / 3600, text)


def _choice(costs: Costs, name: str, wait_s: float, gpu_h: float, text: str) -> Choice:
    price = gpu_h * costs.price
    said = f"{text}: about {gpu_h:,.0f} GPU-hours" + (f", {price:,.0f} in money" if price else "")
    return Choice(name, wait_s, gpu_h, price, f"{said}, {_span(wait_s)} until it steps again.")


@dataclass(frozen=True, slots=True)
class Restart:
    """From which saved step, and which batches are passed over: [first, last], None = none."""

    step: int | None
    skip: tuple[int, int] | None
    text: str


def restart(kind: str, saved: Sequence[int], onset_step: int | None, last_step: int | None = None) -> Restart:
    """Where a job goes on. ``saved``: steps of finished checkpoints; ``onset_step``: where the trouble began, None =
    not known. Hardware faults: the newest. What spoils weights: the newest that is older than its onset, and for a bad
    batch at least BACK_STEPS before, past the batches up to ``last_step`` or SKIP_BATCHES."""
    steps = sorted(set(saved))
    if kind not in SPOILS or onset_step is None:
        newest = steps[-1] if steps else None
        doubt = " When it began is not known: look at the losses first." if kind in SPOILS and steps else ""
        return Restart(newest, None, (_from(newest) + doubt).strip())
    back = BACK_STEPS if kind in BAD_BATCH else 0
    safe = [step for step in steps if step < onset_step]
    far = [step for step in safe if step <= onset_step - back]
    step = far[-1] if far else safe[-1] if safe else None
    if kind not in BAD_BATCH:
        return Restart(step, None, f"{_from(step)} What was saved since step {onset_step} may be spoilt.")
    end = max(onset_step + SKIP_BATCHES - 1, last_step or 0)
    return Restart(step, (onset_step, end), f"{_from(step)} Pass over batches {onset_step} to {end}.")


def _from(step: int | None) -> str:
    return "No checkpoint is known: it starts from the beginning." if step is None else f"Restart from step {step:,}."


def spares_wanted(nodes: int, daily_failure: float, share: float = 0.99) -> int:
    """Standby nodes that cover a day's failures with probability ``share``: the quantile of Binomial(nodes, p).
    Source: ByteRobust, arXiv 2509.16293, table 5 (p = 0.0012: 128 -> 2, 256 -> 2, 512 -> 3, 1,024 -> 4)."""
    if nodes <= 0 or not 0 < daily_failure < 1:
        return 0
    term = (1.0 - daily_failure) ** nodes
    total, k = term, 0
    while total < share and k < nodes:
        term *= (nodes - k) / (k + 1) * daily_failure / (1.0 - daily_failure)
        k += 1
        total += term
    return k


def _span(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "an unknown time"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
