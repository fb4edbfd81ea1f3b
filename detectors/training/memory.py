"""What a detector remembers of runs and of their cells (one signal of one run, rank or layer), as sorted arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.model import Entity, Fleet
from detectors.rows import cells
from detectors.training.told import LONGEST, Row, mark, number, run_entity, whole

#: Runs and cells that one detector remembers; of more, those that were heard of last.
MOST_RUNS, MOST_CELLS = 512, 200_000
Marks = NDArray[np.uint64]


def texts(axis: str) -> Any:
    """A field of a state: a text for each column; as wide as the longest."""
    return field(metadata={"fill": "", "of": np.str_, "lead": (), "axis": axis})


@dataclass(slots=True)
class RunState:
    """One column a run, in the order of ``run`` (a mark of its name). ``run_name``, ``run_job``: as text.
    ``run_at``, ``run_step``: the newest row and its step. ``run_back``: how many steps the last rollback undid.
    ``run_lr``, ``run_tokens``: as last told (NaN = never). ``run_saved``, ``run_saved_before``: steps of the last two
    finished saves (-1 = none). ``run_whole``: 1 = it has rows of no rank. ``run_seen``: 1 = its job was once
    among the fleet's."""

    run: Marks = cells(0, np.uint64, axis="run")
    run_name: NDArray[np.str_] = texts(axis="run")
    run_job: NDArray[np.str_] = texts(axis="run")
    run_at: NDArray[np.float64] = cells(0.0, axis="run")
    run_step: NDArray[np.float64] = cells(-1.0, axis="run")
    run_back: NDArray[np.float64] = cells(0.0, axis="run")
    run_lr: NDArray[np.float64] = cells(np.nan, axis="run")
    run_tokens: NDArray[np.float64] = cells(np.nan, axis="run")
    run_saved: NDArray[np.float64] = cells(-1.0, axis="run")
    run_saved_before: NDArray[np.float64] = cells(-1.0, axis="run")
    run_whole: NDArray[np.uint8] = cells(0, np.uint8, axis="run")
    run_seen: NDArray[np.uint8] = cells(0, np.uint8, axis="run")


def place(state: RunState, row: Row) -> int:
    """The column of a row's run, made where it is new; what the row says of the run as a whole is kept."""
    key = np.uint64(mark(row.run))
    at = int(np.searchsorted(state.run, key))
    if at == len(state.run) or state.run[at] != key:
        grow(state, "run", np.array([key], np.uint64), {"run_name": [row.run]})
        at = int(np.searchsorted(state.run, key))
    job = row.event.attrs.get("job", "")[:LONGEST]
    if job and str(state.run_job[at]) != job:
        state.run_job = with_text(state.run_job, at, job)
    return at


def advance(state: RunState, at: int, row: Row) -> float:
    """Fold in how far a run is. Returns how many steps it went back: 0, where it went on or the row is only late."""
    back = 0.0
    if row.step >= 0 and row.at >= state.run_at[at]:
        back = max(0.0, state.run_step[at] - row.step) if row.at > state.run_at[at] else 0.0
        if back:
            state.run_back[at] = back
        state.run_step[at] = row.step if back or row.at > state.run_at[at] else max(row.step, state.run_step[at])
        state.run_at[at] = row.at
    return back


def changed(state: RunState, at: int, row: Row, share: float) -> bool:
    """Whether the row tells that the run works otherwise from here on: other tokens a step, a jump of its rate."""
    found = False
    state.run_whole[at] |= row.rank < 0 and not row.layer
    if row.layer or row.rank > 0 or (row.rank == 0 and state.run_whole[at]):
        return False
    for name, memory in (("tokens", state.run_tokens), ("lr", state.run_lr)):
        now, before = number(row.event.attrs.get(name)), memory[at]
        if now is None or not np.isfinite(now) or now <= 0:
            continue
        found |= bool(before > 0 and abs(np.log(now / before)) > share)
        memory[at] = now
    return found


def saved(state: RunState, at: int, row: Row) -> None:
    """A finished save is where one can go back to."""
    step = whole(row.event.attrs.get("step"))
    if row.event.code == "save" and step >= 0 and step != state.run_saved[at]:
        state.run_saved_before[at], state.run_saved[at] = state.run_saved[at], step


def grow(state: Any, axis: str, keys: Marks, texts: dict[str, Sequence[str]]) -> None:
    """Put new columns (distinct keys, none of them there) in; the key of an axis is the field of its name."""
    known = getattr(state, axis)
    order = np.argsort(np.concatenate([known, keys]), kind="stable")
    for one in fields(state):
        if one.metadata["axis"] != axis:
            continue
        array = getattr(state, one.name)
        if one.name == axis:
            more: NDArray[Any] = keys
        elif one.name in texts:
            more = np.array(texts[one.name], np.str_)
        else:
            more = np.full((*array.shape[:-1], len(keys)), one.metadata["fill"], array.dtype)
        setattr(state, one.name, np.concatenate([array, more], axis=-1)[..., order])


def keep(state: Any, axis: str, kept: NDArray[Any]) -> None:
    """Leave out columns: ``kept`` is a mask or an index that keeps their order."""
    for one in fields(state):
        if one.metadata["axis"] == axis:
            setattr(state, one.name, getattr(state, one.name)[..., kept])


def forget(state: RunState, now: float, after_s: float, axes: Sequence[str] = ()) -> None:
    """Drop runs unheard of for ``after_s``, and of too many the oldest; with them their cells, which are
    bounded themselves (field ``of`` of each of
    ``axes`` is the mark of a run)."""
    old = now - state.run_at > after_s
    if len(old) - int(old.sum()) > MOST_RUNS:
        old[np.argsort(state.run_at, kind="stable")[: len(old) - MOST_RUNS]] = True
    if old.any():
        gone = state.run[old]
        keep(state, "run", ~old)
        for axis in axes:
            keep(state, axis, ~np.isin(getattr(state, f"{axis}_of"), gone))
    for axis in axes:
        bound(state, axis)


def bound(state: Any, axis: str, most: int = MOST_CELLS) -> None:
    """Of too many columns those that were heard of last (field ``at`` of the axis)."""
    heard = getattr(state, f"{axis}_at", None)
    if heard is not None and len(heard) > most:
        keep(state, axis, np.sort(np.argsort(heard, kind="stable")[len(heard) - most :]))


def entity(state: RunState, at: int, fleet: Fleet) -> Entity:
    return run_entity(fleet.cluster, str(state.run_name[at]))


def column(state: RunState, key: np.uint64) -> int:
    """Where a run stands; -1 = it is forgotten."""
    at = int(np.searchsorted(state.run, key))
    return at if at < len(state.run) and state.run[at] == key else -1


def with_text(texts: NDArray[np.str_], at: int, text: str) -> NDArray[np.str_]:
    """The array with one text in it, as wide as that needs."""
    wide = texts.astype(f"<U{max(len(text), texts.dtype.itemsize // 4, 1)}")
    wide[at] = text
    return wide
