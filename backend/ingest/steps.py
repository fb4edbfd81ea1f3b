"""Rows of training: steps as a trainer logs them, and saves and loads of checkpoints."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, get_args

import orjson
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from backend.facts import Batch, CheckpointFacts, StepFacts
from backend.ingest.rows import MAX_AHEAD_S, MaybeMoment, Moment, Name, Row, decoded, problem_of
from backend.reported import ToldFacts
from detectors.training.told import SAVES

#: Other fields of a row that are kept, and the longest text of one.
MOST_ATTRS, MAX_ATTR = 64, 256
#: Steps, tokens and bytes beyond this are mistakes: what float64 counts exactly.
MAX_COUNT = 2**53


def _number(value: object) -> object:
    """A number, also one that is none: trainers write NaN, Infinity and the texts of both when a loss breaks."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise PydanticCustomError("number", "must be a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise PydanticCustomError("number", "must be a number")
    return None if value is None else _float(value)


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise PydanticCustomError("number", "is larger than any number") from None


def _finite(value: object) -> object:
    """A finite number; one that is none is as good as not said."""
    found = _number(value)
    return found if isinstance(found, float) and math.isfinite(found) else None


def _whole(value: object) -> object:
    """A whole number, also written as 12.0 or "12"."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


MaybeNumber = Annotated[float | None, BeforeValidator(_number)]
#: Seconds, tokens, bytes.
Amount = Annotated[Annotated[float, Field(ge=0)] | None, BeforeValidator(_finite)]
Whole = Annotated[int, BeforeValidator(_whole)]
#: Ranks and replicas.
Member = Annotated[Annotated[int, Field(ge=0, le=2**31 - 1)] | None, BeforeValidator(_whole)]


Kind = Literal["save", "load", "eval", "save_begin", "load_begin", "eval_begin"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class _Told(Row):
    """What rows of both kinds share: when, and whose. Whose is said by the run, the job, or both."""

    ts: Moment
    recv_ts: MaybeMoment = None
    run: Name = ""
    job: Name = ""

    @model_validator(mode="after")
    def _whose(self) -> Self:
        if not self.run and not self.job:
            raise PydanticCustomError("whose", "needs run or job")
        if self.recv_ts is not None and self.ts > self.recv_ts + MAX_AHEAD_S:
            raise PydanticCustomError("ahead", "lies after recv_ts: is the clock of its host right?")
        return self

    @property
    def arrival(self) -> float:
        """When the row was received (unix s); where that was not recorded it arrived at once."""
        return self.ts if self.recv_ts is None else self.recv_ts


class StepRow(_Told):
    """One row of ``training/*.jsonl``; it covers the time since the row before of the same attempt. Its further fields
    (``layer``, ``host``, any signal) are kept as ``attrs_of`` gives them."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, hide_input_in_errors=True)

    step: Whole = Field(ge=0, le=MAX_COUNT)
    loss: MaybeNumber = None
    grad_norm: MaybeNumber = None
    step_time_s: Amount = None
    tokens: Amount = None
    rank: Member = None
    replicas_live: Member = None
    replicas_total: Member = None


class CheckpointRow(_Told):
    """One row of ``checkpoints.jsonl``; ``ts`` is when it finished. blocking: training waited for it. A job may also
    tell when one begins, and of its evaluations: a pause that is known is no hang."""

    step: Whole = Field(ge=0, le=MAX_COUNT)
    kind: Kind
    duration_s: Amount = None
    bytes: Amount = None
    blocking: bool = True

    @model_validator(mode="after")
    def _lasted(self) -> Self:
        if self.duration_s is None and self.kind in ("save", "load"):
            raise PydanticCustomError("duration", "duration_s must be a finite number")
        return self


NAMED = frozenset(StepRow.model_fields)


def document_of(text: bytes) -> Any:
    """The JSON value of one line, also with NaN and Infinity in it. Raises ValueError that says what is wrong."""
    whole = decoded(text)[0]
    try:
        return orjson.loads(whole)
    except orjson.JSONDecodeError as error:
        try:
            return json.loads(whole)
        except (ValueError, RecursionError):
            raise ValueError(f"is not JSON: {error}") from None


def step_of(document: Any) -> StepRow:
    """Raises ValueError that says what is wrong with the row."""
    try:
        return StepRow.model_validate(document)
    except ValidationError as error:
        raise ValueError(": ".join(problem_of(error))) from None


def checkpoint_of(document: Any) -> CheckpointRow:
    """Raises ValueError that says what is wrong with the row."""
    try:
        return CheckpointRow.model_validate(document)
    except ValidationError as error:
        raise ValueError(": ".join(problem_of(error))) from None


def attrs_of(document: Mapping[str, Any]) -> dict[str, float | str]:
    """The other fields of a step row that are a number or a text, the first MOST_ATTRS of them. NaN and infinities
    stand as text: JSON has no word for them."""
    found: dict[str, float | str] = {}
    for name, value in document.items():
        if name in NAMED or len(found) >= MOST_ATTRS or isinstance(value, bool):
            continue
        if isinstance(value, str):
            found[name] = value[:MAX_ATTR]
        elif isinstance(value, float) and not math.isfinite(value):
            found[name] = repr(value)
        elif isinstance(value, int | float) and abs(value) <= 1e300:
            found[name] = float(value)
    return found


def step_facts(row: StepRow) -> StepFacts:
    return StepFacts(
        at=row.ts,
        run=row.run,
        job=row.job,
        step=row.step,
        loss=row.loss,
        grad_norm=row.grad_norm,
        step_time_s=row.step_time_s,
        tokens=row.tokens,
        rank=row.rank,
        replicas_live=row.replicas_live,
        replicas_total=row.replicas_total,
        attrs=attrs_of(row.model_extra or {}),
    )


def checkpoint_facts(row: CheckpointRow) -> CheckpointFacts:
    """Of a save or load that has finished."""
    kind: Literal["save", "load"] = "load" if row.kind == "load" else "save"
    return CheckpointFacts(row.ts, row.run, row.step, kind, row.duration_s or 0.0, row.bytes, row.job, row.blocking)


def saves_batch(rows: Sequence[CheckpointRow], now: float, dropped: Mapping[str, int]) -> Batch:
    """Saves and loads that finished, and of the other phases that they began or ended."""
    done = tuple(checkpoint_facts(row) for row in rows if row.kind in ("save", "load"))
    phases = tuple(_phase(row) for row in rows if row.kind not in ("save", "load"))
    return Batch("checkpoints", now, now, checkpoints=done, told=phases, dropped=dropped)


def _phase(row: CheckpointRow) -> ToldFacts:
    length = {} if row.duration_s is None else {"duration_s": repr(row.duration_s)}
    attrs = {"step": str(row.step), "blocking": "yes" if row.blocking else "no"} | length
    return ToldFacts(row.ts, SAVES, row.kind, row.run, row.job, attrs=attrs)
