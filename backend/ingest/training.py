"""What trainers tell becomes events of ticks: canonical names of signals, one shape for steps, saves and collectives.

The shape stands in ``detectors/training/told.py``. A row of a feed is such an event as plain JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from backend.facts import Batch, CheckpointFacts, StepFacts
from backend.reported import ToldFacts
from detectors.model import Event
from detectors.training.signals import Signals
from detectors.training.told import SAVES, STEP, rank_entity, run_entity

T = TypeVar("T")
#: What makes a row itself, so that one that is sent again is known.
Mark = tuple[object, ...]
#: Fields of StepFacts that are signals.
NUMBERS = ("loss", "grad_norm", "step_time_s", "tokens")
MEMBERS = ("replicas_live", "replicas_total")


def canonical(row: StepFacts, signals: Signals) -> StepFacts:
    """The row with its signals under their own names: ``train/loss`` is its loss, where it names no other."""
    renamed = {name: signals.canonical(name) for name in row.attrs}
    if all(name == old for old, name in renamed.items()) and not any(name in row.attrs for name in NUMBERS):
        return row
    attrs: dict[str, float | str] = {}
    own: dict[str, Any] = {}
    for old, name in renamed.items():
        value = row.attrs[old]
        if name in NUMBERS and getattr(row, name) is None and (number := _number(value)) is not None:
            own.setdefault(name, number)
        elif name in MEMBERS and getattr(row, name) is None and (number := _number(value)) is not None:
            own.setdefault(name, int(number) if math.isfinite(number) else None)
        elif old == name or name not in attrs:
            attrs[name] = value
    return replace(row, attrs=attrs, **own)


def _number(value: float | str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def fed(batch: Batch, now: float, late_s: float) -> list[dict[str, Any]]:
    """The rows of a feed that stand for a batch, as accepted at ``now`` (unix s); late_s: older ones are late."""
    found = [*map(of_step, batch.steps), *map(of_save, batch.checkpoints), *map(of_told, batch.told)]
    return [row | {"late": True} if now - row["at"] > late_s else row for row in found]


def of_step(row: StepFacts) -> dict[str, Any]:
    named = {name: getattr(row, name) for name in (*NUMBERS, *MEMBERS)}
    attrs = {"step": str(row.step)} | {n: _text(v) for n, v in {**named, **row.attrs}.items() if v is not None}
    host = attrs.get("host", "")
    return _row(row.at, STEP, "", row.run, row.job, row.rank, host, attrs)


def of_save(row: CheckpointFacts) -> dict[str, Any]:
    attrs = {"step": str(row.step), "duration_s": repr(row.duration_s), "blocking": "yes" if row.blocking else "no"}
    attrs |= {} if row.bytes is None else {"bytes": repr(row.bytes)}
    return _row(row.at, SAVES, row.kind, row.run, row.job, None, "", attrs)


def of_told(row: ToldFacts) -> dict[str, Any]:
    return _row(row.at, row.namespace, row.code, row.run, row.job, row.rank, row.host, dict(row.attrs))


def _row(
    at: float, namespace: str, code: str, run: str, job: str, rank: int | None, host: str, attrs: Mapping[str, str]
) -> dict[str, Any]:
    who = {"run": run, "job": job, "rank": "" if rank is None else str(rank), "host": host}
    return {"at": at, "ns": namespace, "code": code, "attrs": {**attrs, **{k: v for k, v in who.items() if v}}}


def _text(value: float | int | str) -> str:
    return value if isinstance(value, str) else repr(value)


def events_of(rows: Sequence[Mapping[str, Any]], cluster: str) -> Iterator[Event]:
    """The events that rows of a feed stand for; a row of another shape is nobody's."""
    for row in rows:
        try:
            attrs = {str(name): str(value) for name, value in row["attrs"].items()}
            at, namespace, code = float(row["at"]), str(row["ns"]), str(row["code"])
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        run, rank = attrs.get("run", "") or attrs.get("job", ""), attrs.get("rank", "")
        host = attrs.get("host", "")
        entity = rank_entity(cluster, run, int(rank), host) if rank.isdecimal() else run_entity(cluster, run)
        yield Event(at, entity, namespace, code, late=bool(row.get("late")), attrs=attrs)


def only_new(batch: Batch, fresh: Callable[[Iterable[Mark]], Sequence[Mark]]) -> tuple[Batch, Sequence[Mark]]:
    """The batch less the rows that came before, by the word of ``fresh``, and the marks of those that it keeps."""
    marks = [*map(_step_mark, batch.steps), *map(_save_mark, batch.checkpoints), *map(_told_mark, batch.told)]
    new = fresh(marks)
    if len(new) == len(marks):
        return batch, new
    left = set(new)

    def kept(rows: Sequence[T], mark: Callable[[T], Mark]) -> tuple[T, ...]:
        found = []
        for row in rows:
            if (one := mark(row)) in left:
                left.remove(one)
                found.append(row)
        return tuple(found)

    steps, saves = kept(batch.steps, _step_mark), kept(batch.checkpoints, _save_mark)
    return replace(batch, steps=steps, checkpoints=saves, told=kept(batch.told, _told_mark)), new


def _step_mark(row: StepFacts) -> Mark:
    said = (row.loss, row.grad_norm, row.step_time_s, row.tokens, row.replicas_live, row.replicas_total)
    return "step", row.at, row.run, row.job, row.step, row.rank, repr(said), repr(sorted(row.attrs.items()))


def _save_mark(row: CheckpointFacts) -> Mark:
    return "save", row.at, row.run, row.job, row.step, row.kind, row.duration_s


def _told_mark(row: ToldFacts) -> Mark:
    return row.namespace, row.at, row.code, row.run, row.job, row.rank, repr(sorted(row.attrs.items()))
