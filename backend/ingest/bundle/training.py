"""Steps and checkpoints of a bundle: checked once, kept as sorted columns on disk, handed on as facts by arrival."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from backend.facts import Batch, CheckpointFacts, StepFacts
from backend.ingest.bundle.folder import PartFile
from backend.ingest.bundle.reading import Reading, Shelf
from backend.ingest.bundle.spill import MAX_ROWS, Sorted, Spill
from backend.ingest.steps import (
    KINDS,
    CheckpointRow,
    attrs_of,
    checkpoint_facts,
    checkpoint_of,
    document_of,
    saves_batch,
    step_of,
)

#: Steps that come together at most.
MOST_STEPS = 10_000
#: Numbers of a step row in the order of their columns; a bit of ``said`` for each, as a loss may be NaN.
_NUMBERS = ("loss", "grad_norm", "step_time_s", "tokens")
_MEMBERS = ("rank", "replicas_live", "replicas_total")
_NOBODY = -1

F = TypeVar("F")


class Names:
    """Texts by number, each kept once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        found = self._numbers.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found


class _Taker(Protocol):
    """What one kind of rows becomes: the columns of one, and the facts again."""

    part: ClassVar[str]
    columns: ClassVar[tuple[type[np.generic], ...]]

    def row(self, names: Names, document: Any, file: int, offset: int, size: int) -> tuple[float, ...]:
        """(arrival, *columns). Raises ValueError: what is wrong."""
        ...


class StepColumns:
    """Columns of step rows: ts, run, job, step, four numbers and which are said, three members (-1 = not said), and
    where the row stands, for the other fields of it (size 0 = it has none)."""

    part: ClassVar[str] = "training"
    columns: ClassVar[tuple[type[np.generic], ...]] = (
        np.float64, np.int32, np.int32, np.int64, *[np.float64] * 4, np.uint8, *[np.int32] * 3,
        np.int32, np.int64, np.int32,
    )  # fmt: skip

    def row(self, names: Names, document: Any, file: int, offset: int, size: int) -> tuple[float, ...]:
        row = step_of(document)
        numbers = [getattr(row, name) for name in _NUMBERS]
        said = sum(1 << place for place, value in enumerate(numbers) if value is not None)
        members = [_NOBODY if (value := getattr(row, name)) is None else value for name in _MEMBERS]
        more = size if attrs_of(document) else 0
        return (
            row.arrival, row.ts, names.number(row.run), names.number(row.job), row.step,
            *(0.0 if value is None else value for value in numbers), said, *members, file, offset, more,
        )  # fmt: skip


class CheckpointColumns:
    """Columns of checkpoint rows: ts, run, job, step, its kind as a place in KINDS, its length, bytes (NaN = not said),
    and whether training waited for it."""

    part: ClassVar[str] = "checkpoints"
    columns: ClassVar[tuple[type[np.generic], ...]] = (
        np.float64, np.int32, np.int32, np.int64, np.uint8, np.float64, np.float64, np.uint8,
    )  # fmt: skip

    def row(self, names: Names, document: Any, file: int, offset: int, size: int) -> tuple[float, ...]:
        row = checkpoint_of(document)
        length = row.duration_s or 0.0
        told = math.nan if row.bytes is None else row.bytes
        return (
            row.arrival, row.ts, names.number(row.run), names.number(row.job), row.step, KINDS.index(row.kind), length,
            told, row.blocking,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SortedSteps:
    """Good step rows by arrival, ties by file name, then line; ``rows`` has the columns of StepColumns."""

    files: tuple[PartFile, ...]
    rows: Sorted
    names: tuple[str, ...]
    part: str = StepColumns.part

    def each(self) -> Iterator[tuple[float, StepFacts]]:
        """(arrival, facts) of each row, in memory of a few. Raises BundleError where the files change meanwhile."""
        with Shelf(self.files) as shelf:
            for arrival, ts, run, job, step, *more in self.rows.each():
                numbers, said, (rank, live, total), (file, offset, size) = more[:4], more[4], more[5:8], more[8:]
                loss, grad_norm, step_time_s, tokens = (
                    value if said >> place & 1 else None for place, value in enumerate(numbers)
                )
                attrs = attrs_of(document_of(shelf.read(file, offset, size))) if size else {}
                yield arrival, StepFacts(
                    ts, self.names[run], self.names[job], step, loss, grad_norm, step_time_s, tokens,
                    _member(rank), _member(live), _member(total), attrs,
                )  # fmt: skip

    def blocks(self) -> Iterator[StepBlock]:
        """The rows as columns, piece by piece in the order of arrival."""
        for _, ts, run, job, step, _, _, step_s, tokens, said, rank, live, total, *_ in self.rows.blocks():
            timed = said >> _NUMBERS.index("step_time_s") & 1 > 0
            merged = np.where(said >> _NUMBERS.index("tokens") & 1 > 0, tokens, np.nan)
            yield StepBlock(
                ts, run, job, step, np.where(timed, step_s, np.nan), rank, _members(live), _members(total), merged
            )  # fmt: skip

    def batches(self, round_s: float) -> Iterator[tuple[float, Batch]]:
        """(arrival, Batch): rows of one round together, when the last of them came; 0 = of the same instant."""
        for arrival, rows in _rounds(self.each(), round_s):
            yield arrival, Batch("steps", arrival, arrival, steps=tuple(rows))


class StepBlock(NamedTuple):
    """Columns of n step rows. run, job: places in ``names``. Not said: NaN, and -1 for a rank."""

    at: NDArray[np.float64]
    run: NDArray[np.int32]
    job: NDArray[np.int32]
    step: NDArray[np.int64]
    step_s: NDArray[np.float64]
    rank: NDArray[np.int32]
    live: NDArray[np.float64]
    total: NDArray[np.float64]
    tokens: NDArray[np.float64]


def _members(column: NDArray[np.int32]) -> NDArray[np.float64]:
    return np.where(column == _NOBODY, np.nan, column)


def _member(value: int) -> int | None:
    return None if value == _NOBODY else value


@dataclass(frozen=True, slots=True)
class SortedCheckpoints:
    """Good checkpoint rows by arrival; ``rows`` has the columns of CheckpointColumns."""

    files: tuple[PartFile, ...]
    rows: Sorted
    names: tuple[str, ...]
    part: str = CheckpointColumns.part

    def each(self) -> Iterator[tuple[float, CheckpointFacts]]:
        """(arrival, facts) of each save and load that finished."""
        for arrival, row in self._rows():
            if row.kind in ("save", "load"):
                yield arrival, checkpoint_facts(row)

    def _rows(self) -> Iterator[tuple[float, CheckpointRow]]:
        for arrival, ts, run, job, step, kind, length, told, blocking in self.rows.each():
            yield arrival, CheckpointRow.model_construct(
                ts=ts, run=self.names[run], step=step, kind=KINDS[kind], duration_s=length,
                bytes=None if math.isnan(told) else told, job=self.names[job], blocking=bool(blocking),
            )  # fmt: skip

    def batches(self, round_s: float) -> Iterator[tuple[float, Batch]]:
        """(arrival, Batch), as for steps."""
        for arrival, rows in _rounds(self._rows(), round_s):
            yield arrival, saves_batch(rows, arrival, {})


def _rounds(rows: Iterator[tuple[float, F]], round_s: float) -> Iterator[tuple[float, list[F]]]:
    held: list[F] = []
    turn, last = math.nan, 0.0
    for arrival, facts in rows:
        now = math.ceil(arrival / round_s) if round_s > 0 else arrival
        if held and (now != turn or len(held) >= MOST_STEPS):
            yield last, held
            held = []
        held.append(facts)
        turn, last = now, arrival
    if held:
        yield last, held


def read_steps(files: tuple[PartFile, ...], reading: Reading, work: Path, max_rows: int = MAX_ROWS) -> SortedSteps:
    """One pass over ``training/*.jsonl``. Raises BundleError."""
    rows, names = _read(StepColumns(), files, reading, work, max_rows)
    return SortedSteps(files, rows, names)


def read_checkpoints(
    files: tuple[PartFile, ...], reading: Reading, work: Path, max_rows: int = MAX_ROWS
) -> SortedCheckpoints:
    """One pass over ``checkpoints.jsonl``. Raises BundleError."""
    rows, names = _read(CheckpointColumns(), files, reading, work, max_rows)
    return SortedCheckpoints(files, rows, names)


def _read(
    taker: _Taker, files: tuple[PartFile, ...], reading: Reading, work: Path, max_rows: int
) -> tuple[Sorted, tuple[str, ...]]:
    """Every row checked; the good ones sorted by arrival, the others listed."""
    spill = Spill(work, taker.part, taker.columns, max_rows)
    names = Names()
    for number, file in enumerate(files):
        for line, offset, text in reading.lines(file):
            if not text.strip():
                continue
            try:
                spill.add_rows([taker.row(names, document_of(text), number, offset, len(text))])
            except ValueError as error:
                reading.bad.add(file.name, line, str(error))
    return spill.finish(), tuple(names.texts)


#: How each of these parts is read.
READERS: Mapping[str, Callable[..., SortedSteps | SortedCheckpoints]] = {
    StepColumns.part: read_steps,
    CheckpointColumns.part: read_checkpoints,
}
