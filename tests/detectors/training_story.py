"""A story in which training goes wrong in every way that the training family knows; many steps in few ticks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from detectors.check_detector import Story
from detectors.model import Event, Tick
from detectors.training.told import COLLECTIVE, SAVES, STEP, rank_entity, run_entity
from tests.detectors.fleets import T0, fleet_of

RUN, STEPS_A_TICK, TICKS, ILL = "llm", 10, 16, 13
STEP_S = 2.0


def training_story() -> Story:
    fleets = (fleet_of(2, 2), fleet_of(2, 2, epoch=2))
    dice = np.random.default_rng(5)
    steps = [
        (fleets[place >= ILL], Tick(T0 + STEP_S * STEPS_A_TICK * (place + 1), events=tuple(_told(place, dice))))
        for place in range(TICKS)
    ]
    last = steps[-1][1].at
    return Story((*steps, *((fleets[1], Tick(last + later)) for later in (30.0, 60.0))))


def _told(place: int, dice: np.random.Generator) -> Iterator[Event]:
    for step in range(place * STEPS_A_TICK, (place + 1) * STEPS_A_TICK):
        yield from _step(step, T0 + STEP_S * (step + 1), place >= ILL, dice)


def _step(step: int, at: float, ill: bool, dice: np.random.Generator) -> Iterator[Event]:
    def near(usual: float) -> float:
        return float(usual * (1 + 0.02 * dice.standard_normal()))

    run: dict[str, float | str] = {
        "loss": near(9.0 if ill else 2.0),
        "grad_norm": near(1.0),
        "ess": near(0.1 if ill else 0.9),
    }
    run |= {"val_loss": near(2.1) + (3.0 if ill else 0.0)} if step % 5 == 0 else {}
    yield _row(at, step, run)
    for layer in range(3):
        own = ill and layer == 1
        yield _row(at, step, {"qk_norm": near(0.5 if own else 0.01), "router_similarity": near(0.1)}, layer=layer)
    for rank in range(4):
        slow = 1.6 if ill and rank == 2 else 1.0
        bits = "bad" if ill and rank == 1 else f"{step}"
        yield _row(at, step, {"compute_s": near(1.4) * slow, "param_hash": bits}, rank=rank)
        if not (ill and rank == 3):
            yield _call(at, step, rank, ended=not ill)
    if step % 20 == 19 and not ill:
        attrs = {"run": RUN, "job": "1", "step": str(step), "duration_s": "0.2"}
        yield Event(at + 0.3, run_entity("c", RUN), SAVES, "save", "", step, False, attrs)


def _row(at: float, step: int, values: dict[str, float | str], **whose: int) -> Event:
    attrs = {"run": RUN, "job": "1", "step": str(step)} | {name: str(value) for name, value in whose.items()}
    attrs |= {name: value if isinstance(value, str) else repr(value) for name, value in values.items()}
    rank = whose.get("rank")
    entity = run_entity("c", RUN) if rank is None else rank_entity("c", RUN, rank, "gpu-0001")
    return Event(at, entity, STEP, "", "", step, False, attrs)


def _call(at: float, step: int, rank: int, *, ended: bool) -> Event:
    attrs = {"run": RUN, "job": "1", "comm": "dp", "seq": str(step), "rank": str(rank), "ranks": "4"}
    attrs |= {"start": repr(at - 0.2)} | ({"end": repr(at)} if ended else {})
    return Event(at, rank_entity("c", RUN, rank), COLLECTIVE, "all_reduce", "", step, False, attrs)
