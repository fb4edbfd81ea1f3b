"""Rows of the small runs as the events that detectors are handed, and detectors run over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from detectors.catalogue import Catalogue, load
from detectors.detector import Detector
from detectors.model import Event, Finding, Fleet, Tick
from detectors.training.told import SAVES, STEP, rank_entity, run_entity
from tests.detectors.training.trainer import Seen

T0 = 1_790_000_000.0
STEP_S = 2.0
NOWHERE = Fleet("c", 0, {}, (), (), (), (), (), {})


def row(run: str, at: float, step: int, values: Mapping[str, float | str], **whose: object) -> Event:
    """One row of ``ingest/steps`` as an event."""
    attrs = {"run": run, "job": "7", "step": str(step)} | {name: str(value) for name, value in whose.items()}
    rank = whose.get("rank")
    entity = run_entity("c", run) if rank is None else rank_entity("c", run, int(str(rank)))
    return Event(at, entity, STEP, "", "", 0, False, attrs | {k: _text(v) for k, v in values.items()})


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else repr(float(value))


def save(run: str, at: float, step: int, code: str = "save", duration_s: float = 1.0) -> Event:
    attrs = {"run": run, "job": "7", "step": str(step), "duration_s": repr(duration_s)}
    return Event(at, run_entity("c", run), SAVES, code, "", 0, False, attrs)


def events_of(seen: Seen, at: float, run: str = "r", *, ranks: bool = False) -> tuple[Event, ...]:
    found = [row(run, at, seen.step, seen.values)]
    found += [row(run, at, seen.step, values, layer=layer) for layer, values in seen.layers.items()]
    if ranks:
        found += [row(run, at, seen.step, values, rank=rank) for rank, values in seen.ranks.items()]
    return (*found, save(run, at + 0.5, seen.step)) if seen.saved else tuple(found)


def ticks_of(steps: Iterable[Seen], run: str = "r", *, ranks: bool = False) -> Iterator[tuple[Seen, Tick]]:
    for place, seen in enumerate(steps):
        at = T0 + STEP_S * place
        yield seen, Tick(at, events=events_of(seen, at, run, ranks=ranks))


def raised(
    detectors: Iterable[Detector[Any]], ticks: Iterable[tuple[Seen, Tick]], fleet: Fleet = NOWHERE
) -> list[tuple[int, Finding]]:
    """Every finding at the step that raised it (place in the story, from 1)."""
    states = [(detector, detector.start(fleet)) for detector in detectors]
    found: list[tuple[int, Finding]] = []
    held: set[str] = set()
    for place, (_, tick) in enumerate(ticks, 1):
        now = {f.key: f for detector, state in states for f in detector.step(state, tick, fleet).findings}
        found += [(place, f) for key, f in now.items() if key not in held]
        held = set(now)
    return found


def catalogue(**limits: float) -> Catalogue:
    return load(thresholds=limits)
