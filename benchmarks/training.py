"""What all rules on training rows cost, against numpy reading the same numbers: 64 ranks, 32 layers, by step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.ratio import Ratio, measure
from detectors.catalogue import load
from detectors.model import Event, Fleet, Tick
from detectors.training.family import family
from detectors.training.told import COLLECTIVE, STEP, rank_entity, run_entity

RANKS, LAYERS, STEPS = 64, 32, 40
LAYER_SIGNALS = ("qk_entropy", "qk_norm", "qk_stable_rank", "grad_norm", "update_ratio", "router_similarity")
NOWHERE = Fleet("c", 0, {}, (), (), (), (), (), {})


def run() -> Iterator[Ratio]:
    """Reading: every number of every step converted to an array from its text, as the rules must, and summed."""
    ticks = [_tick(step) for step in range(STEPS)]
    numbers = [[text for event in tick.events for text in event.attrs.values()] for tick in ticks]
    arrays = [np.array([_number(text) for text in texts]) for texts in numbers]
    size = sum(len(array) for array in arrays)
    words = f"all rules on {STEPS} steps of {RANKS} ranks and {LAYERS} layers, {size / STEPS:,.0f} numbers a step"
    yield measure(words, "numpy summing the same arrays", lambda: _judged(ticks), lambda: _summed(arrays), n=5, warm=1)
    yield measure(words, "reading the same texts as numbers", lambda: _judged(ticks), lambda: _read(numbers), n=5)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _judged(ticks: list[Tick]) -> None:
    for detector in family(load()):
        state = detector.start(NOWHERE)
        for tick in ticks:
            detector.step(state, tick, NOWHERE)


def _summed(arrays: list[np.ndarray]) -> float:
    return sum(float(array.sum()) for array in arrays)


def _read(numbers: list[list[str]]) -> float:
    return sum(float(np.array([_number(text) for text in texts]).sum()) for texts in numbers)


def _tick(step: int) -> Tick:
    dice, at = np.random.default_rng(step), 1_790_000_000.0 + 2.0 * step
    who = {"run": "r", "job": "7", "step": str(step)}

    def said(**values: float) -> dict[str, str]:
        return who | {name: repr(value * (1 + 0.01 * float(dice.standard_normal()))) for name, value in values.items()}

    events = [Event(at, run_entity("c", "r"), STEP, "", "", 0, False, said(loss=2.0, grad_norm=1.0, lr=1e-3, ess=0.9))]
    for layer in range(LAYERS):
        attrs = said(**dict.fromkeys(LAYER_SIGNALS, 1.0)) | {"layer": str(layer)}
        events.append(Event(at, run_entity("c", "r"), STEP, "", "", 0, False, attrs))
    for rank in range(RANKS):
        own = {"rank": str(rank), "param_hash": f"{step}"}
        entity = rank_entity("c", "r", rank)
        events.append(Event(at, entity, STEP, "", "", 0, False, said(loss=2.0, compute_s=1.5) | own))
        call = {"comm": "dp", "seq": str(step), "ranks": str(RANKS), "start": repr(at - 0.5), "end": repr(at)}
        events.append(Event(at, entity, COLLECTIVE, "all_reduce", "", 0, False, who | own | call))
    return Tick(at, events=tuple(events))
