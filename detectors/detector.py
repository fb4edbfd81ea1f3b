"""The protocols a detector fulfils; check_detector.py holds every one of them to the same suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from detectors.model import Fleet, Judged, Need, Tick

#: A saved state or a fitted model: arrays by field name; no objects, no pickles.
Arrays = Mapping[str, NDArray[np.generic]]

State = TypeVar("State")


class Detector(Protocol[State]):
    """A pure judge. Same state and tick, same answer; no clock, socket, database, logging or unseeded randomness."""

    @property
    def name(self) -> str:
        """``family/short``, for example ``kernel/xid``."""
        ...

    @property
    def needs(self) -> frozenset[Need]:
        """Metrics and event namespaces; ingest asks for exactly these."""
        ...

    def start(self, fleet: Fleet) -> State:
        """The state before anything was seen: a dataclass whose fields are numpy arrays."""
        ...

    def step(self, state: State, tick: Tick, fleet: Fleet) -> Judged:
        """Fold one tick into ``state`` (in place) and say every level that holds. O(1) a sample; never raises on
        NaN, on reordering or on a fleet that shrank."""
        ...

    def move(self, state: State, old: Fleet, new: Fleet) -> State:
        """The same state for another fleet: rows follow their ids; a job start permutes nothing."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What a trainable detector learns from: ticks with the fleet each was seen on."""

    ticks: Sequence[tuple[Tick, Fleet]]


class Trainable(Protocol):
    """A detector that can learn from quiet history. The artefact is arrays, versioned, never a pickle."""

    def fit(self, history: History) -> Arrays:
        """Pure: the same history and seed give the same arrays."""
        ...
