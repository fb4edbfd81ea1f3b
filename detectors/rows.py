"""States that hold one column for each row of an axis: how they begin, and how they follow their rows."""

from __future__ import annotations

from dataclasses import Field, field, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from detectors.detector import carried, rows_from
from detectors.model import Fleet

State = TypeVar("State")
_NONE = np.zeros(0, np.intp)


def cells(
    fill: float | bool = 0.0, of: type[np.generic] = np.float64, *lead: int | str, axis: str | None = "gpu"
) -> Any:
    """A field of a state: an array of type ``of`` and shape [*lead, n], n rows of ``axis``. What a row that was never
    seen holds is ``fill``. A word in ``lead`` is a length that ``started`` is told, as is the axis "" (then of all).
    axis None: it has no rows, and follows nothing."""
    return field(metadata={"fill": fill, "of": of, "lead": lead, "axis": axis})


def started(kind: type[State], fleet: Fleet, axis: str = "", **lengths: int) -> State:
    """The state before anything was seen."""
    made = {}
    for one in fields(kind):  # type: ignore[arg-type]  # a dataclass whose fields are all ``cells``
        lead = (lengths[length] if isinstance(length, str) else length for length in one.metadata["lead"])
        name = one.metadata["axis"]
        rows = () if name is None else (len(fleet.axes.get(name or axis, ())),)
        made[one.name] = np.full((*lead, *rows), one.metadata["fill"], one.metadata["of"])
    return kind(**made)


def moved(state: State, old: Fleet, new: Fleet, axis: str = "") -> State:
    """The same state for another fleet: rows follow their ids."""
    rows: dict[str, NDArray[np.intp]] = {}
    for name in {one.metadata["axis"] or axis for one in _follows(state)}:
        rows[name] = rows_from(old.axes.get(name), new.axes[name]) if name in new.axes else _NONE
    return _carried(state, rows, axis)


def fit(state: State, fleet: Fleet, axis: str = "") -> None:
    """A fleet that changed without a move: rows beyond it are dropped, new rows start afresh; in place."""
    sizes = {one.metadata["axis"] or axis: getattr(state, one.name).shape[-1] for one in _follows(state)}
    now = {name: len(fleet.axes.get(name, ())) for name in sizes}
    if now != sizes:
        fitted = _carried(state, {name: np.arange(n, dtype=np.intp) for name, n in now.items()}, axis)
        for one in _follows(state):
            setattr(state, one.name, getattr(fitted, one.name))


def _follows(state: object) -> list[Field[Any]]:
    return [one for one in fields(state) if one.metadata["axis"] is not None]  # type: ignore[arg-type]


def _carried(state: State, rows: dict[str, NDArray[np.intp]], axis: str) -> State:
    made = {
        one.name: carried(getattr(state, one.name), rows[one.metadata["axis"] or axis], one.metadata["fill"])
        for one in _follows(state)
    }
    return type(state)(**({one.name: getattr(state, one.name) for one in fields(state)} | made))  # type: ignore[arg-type]
