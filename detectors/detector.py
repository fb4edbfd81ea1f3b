"""The protocols a detector fulfils; check_detector.py holds every one of them to the same suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from detectors.model import Axis, Fleet, Judged, Need, Tick

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
    """What a trainable detector learns from: ticks with the fleet each was seen on, and rows float32[k, f] that it kept
    of quiet times itself."""

    ticks: Sequence[tuple[Tick, Fleet]] = ()
    quiet: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))


@runtime_checkable
class Trainable(Protocol):
    """A detector that learns from quiet history. The artefact is arrays, versioned, never a pickle."""

    @property
    def name(self) -> str: ...

    @property
    def every_s(self) -> float:
        """How long a model serves before the next lesson, in seconds of ticks."""
        ...

    def lesson(self, state: Any) -> History | None:
        """What ``state`` kept of quiet times; None while that is too little."""
        ...

    def fit(self, history: History) -> Arrays:
        """Pure: the same history and seed give the same arrays."""
        ...

    def taught(self, arrays: Arrays, version: int) -> Any:
        """The same detector with a model. Raises ValueError where it does not fit this release."""
        ...


def arrays_of(state: object) -> dict[str, NDArray[Any]]:
    """A state as arrays by field name, ready to be saved. Raises TypeError for a field that is no plain array."""
    if not is_dataclass(state):
        raise TypeError(f"a detector state is a dataclass of arrays, not {type(state).__name__}")
    arrays = {field.name: getattr(state, field.name) for field in fields(state)}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            raise TypeError(f"{type(state).__name__}.{name} is no array that can be saved without a pickle")
    return arrays


def state_from(like: State, arrays: Arrays) -> State:
    """The state that was saved as ``arrays``; ``like`` (a fresh ``start``) gives its shape of fields and types.

    Text keeps its saved width. Raises ValueError when a field is missing or of another sort: start afresh then.
    """
    saved: dict[str, NDArray[Any]] = {}
    for name, fresh in arrays_of(like).items():
        array = arrays.get(name)
        if array is None or not _fits(array, fresh):
            raise ValueError(f"saved state of {type(like).__name__} does not fit: {name}")
        saved[name] = array.copy() if fresh.dtype.kind == "U" else array.astype(fresh.dtype)
    return type(like)(**saved)


def _fits(array: NDArray[Any], fresh: NDArray[Any]) -> bool:
    """Same sort of values, same columns; only the number of rows may differ."""
    if array.dtype.kind != fresh.dtype.kind or array.ndim != fresh.ndim or array.shape[:-1] != fresh.shape[:-1]:
        return False
    return fresh.dtype.kind != "V" or array.dtype == fresh.dtype


def rows_from(old: Axis | None, new: Axis) -> NDArray[np.intp]:
    """For each row of ``new`` the row of ``old`` that held the same id, -1 where there was none."""
    if old is None:
        return np.full(len(new), -1, np.intp)
    if old.ids == new.ids:
        return np.arange(len(new), dtype=np.intp)
    at = {id_: row for row, id_ in enumerate(old.ids)}
    return np.fromiter((at.get(id_, -1) for id_ in new.ids), np.intp, len(new))


Cell = TypeVar("Cell", bound=np.generic)


def carried(array: NDArray[Cell], rows: NDArray[np.intp], fill: Any) -> NDArray[Cell]:
    """``array[..., rows]`` along the last axis, ``fill`` where a row is -1 or beyond the array."""
    out: NDArray[Cell] = np.full((*array.shape[:-1], len(rows)), fill, array.dtype)
    known = (rows >= 0) & (rows < array.shape[-1])
    out[..., known] = array[..., rows[known]]
    return out
