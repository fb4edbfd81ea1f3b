"""Parts of a bundle that are JSON rows with a ts: sorted by arrival, then handed on as an agent would push them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from pydantic import ValidationError

from backend.facts import Batch
from backend.ingest.bundle.folder import PartFile
from backend.ingest.bundle.reading import Reading, Shelf
from backend.ingest.bundle.spill import MAX_ROWS, Sorted, Spill
from backend.ingest.logs import MAX_AHEAD_S, JobTails, LogRow, logs_batch, read_rows
from backend.ingest.rows import MaybeMoment, Moment, Row, decoded, problem_of
from detectors.kernel.lines import parse

#: Lines without a time of arrival come together when they are this close, as from an agent that sends so often, in
#: seconds: what a driver prints over several lines is one event only within one push.
GATHER_S = 1.0
#: Most of one push, in rows and in bytes (the default limit of a body).
MOST_ROWS, MOST_BYTES = 10_000, 33_554_432
#: file, offset, size, and whether the time of arrival was recorded.
_COLUMNS = (np.int32, np.int64, np.int32, np.int8)


class _Arrival(Row):
    """When a row happened and when it was received (unix s); without the latter it arrived at once."""

    ts: Moment
    recv_ts: MaybeMoment = None


@dataclass(frozen=True, slots=True)
class RowReader:
    """How the rows of one part are checked, and how a body of them (JSON lines, arrival in unix s) becomes a Batch."""

    part: str
    model: type[Row]
    batch: Callable[[bytes, float], Batch]


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Good rows of one part by arrival, ties by file name, then line."""

    reader: RowReader
    files: tuple[PartFile, ...]
    rows: Sorted

    def batches(self, gather_s: float = GATHER_S) -> Iterator[tuple[float, Batch]]:
        """(arrival, Batch): rows received at the same time together; where that was not recorded, those of the same
        ``gather_s`` together, when the last of them came (0 = of the same instant)."""
        body: list[bytes] = []
        group, arrival, size = (0, 0.0), 0.0, 0
        with Shelf(self.files) as shelf:
            for at, file, offset, length, recorded in self.rows.each():
                turn = (recorded, at if recorded or gather_s <= 0 else math.floor(at / gather_s))
                if body and (turn != group or len(body) >= MOST_ROWS or size + length > MOST_BYTES):
                    yield arrival, self.reader.batch(b"\n".join(body), arrival)
                    body, size = [], 0
                body.append(shelf.read(file, offset, length))
                group, arrival, size = turn, at, size + length
        if body:
            yield arrival, self.reader.batch(b"\n".join(body), arrival)


def log_reader(tails: JobTails | None = None) -> RowReader:
    """Log lines, by the rules of the ingest route; ``tails`` keeps the last lines of each job."""

    def batch(body: bytes, arrival: float) -> Batch:
        return logs_batch(read_rows(body, "application/jsonl", arrival), arrival, parse, tails)

    return RowReader("logs", LogRow, batch)


def read_json_rows(
    reader: RowReader, files: tuple[PartFile, ...], reading: Reading, work: Path, max_rows: int = MAX_ROWS
) -> SortedRows:
    """One pass over the files of a part: every row checked whole, the place of the good ones sorted by arrival.

    Raises BundleError.
    """
    spill = Spill(work, reader.part, _COLUMNS, max_rows)
    for number, file in enumerate(files):
        for line, offset, text in reading.lines(file):
            if not text.strip():
                continue
            try:
                arrival, recorded = _arrival(reader.model, text)
            except ValueError as error:
                reading.bad.add(file.name, line, str(error))
                continue
            spill.add_rows([(arrival, number, offset, len(text), recorded)])
    return SortedRows(reader, files, spill.finish())


def _arrival(model: type[Row], text: bytes) -> tuple[float, bool]:
    """(arrival, whether it was recorded). Raises ValueError that says what is wrong with the row."""
    try:
        document = orjson.loads(decoded(text)[0])
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    try:
        when = _Arrival.model_validate(document)
        model.model_validate(document)
    except ValidationError as error:
        name, problem = problem_of(error)
        raise ValueError(f"{name}: {problem}") from None
    arrival = when.ts if when.recv_ts is None else when.recv_ts
    if when.ts > arrival + MAX_AHEAD_S:
        raise ValueError(f"ts: lies {when.ts - arrival:.0f} s after recv_ts: is the clock of its host right?")
    return arrival, when.recv_ts is not None
