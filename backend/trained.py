"""Steps, saves and loads as jobs push them, kept in append-only segments of records: one file a job and day.

Never rows of the database: a run writes millions. A segment is records of one width; a torn last record (a crash in
the middle of a write) is left out when it is read. ``who.json`` beside it names run and job.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from backend import traces
from backend.facts import CheckpointFacts, StepFacts
from backend.ingest.base import SourceError
from backend.reliability.history import StepTable, joined, members_of

STEP = np.dtype(
    [
        ("at", "<f8"), ("step", "<i8"), ("step_s", "<f8"), ("loss", "<f8"), ("grad_norm", "<f8"), ("tokens", "<f8"),
        ("rank", "<i4"), ("live", "<i4"), ("total", "<i4"),
    ]
)  # fmt: skip
SAVE = np.dtype([("at", "<f8"), ("step", "<i8"), ("s", "<f8"), ("bytes", "<f8"), ("load", "u1"), ("blocking", "u1")])
#: Rows that one reading holds, some 64 bytes each; of more the oldest days are left out.
MOST_ROWS = 3_000_000
#: A segment with more rows than this is read for its lowest rank alone: a step is finished by all of them.
MANY_ROWS = 100_000
WHO = "who.json"


class Trained:
    """The segments of one cluster under ``folder``. Appends of several threads take turns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def append(self, steps: Sequence[StepFacts] = (), checkpoints: Sequence[CheckpointFacts] = ()) -> None:
        """On the disk before it returns. Raises SourceError where the disk takes no more."""
        with self._lock:
            try:
                for (day, run, job), rows in _parted(steps):
                    whole = [row for row in rows if "layer" not in row.attrs]
                    folder = self._write(day, run, job, "steps", np.array([_step(row) for row in whole], STEP))
                    traces.write_cells(folder, rows)
                for (day, run, job), saves in _parted(checkpoints):
                    self._write(day, run, job, "saves", np.array([_save(row) for row in saves], SAVE))
            except OSError as error:
                raise SourceError(f"{self._folder} takes no more: {error.strerror or error}") from error

    def _write(self, day: str, run: str, job: str, kind: str, rows: NDArray[Any]) -> Path:
        folder = self._folder / day / hashlib.sha256(f"{run}\0{job}".encode()).hexdigest()[:24]
        if not (folder / WHO).exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / WHO).write_bytes(orjson.dumps({"run": run, "job": job}))
        with (folder / kind).open("ab") as file:
            torn = file.tell() % rows.dtype.itemsize
            if torn:
                file.truncate(file.tell() - torn)
            file.write(rows.tobytes())
        return folder

    def folders(self, run: str, jobs: Collection[str], start: float, end: float) -> list[Path]:
        """The segments of a run, by its own name or those of its jobs, the newest day first."""
        return [f for f, name, job in self._segments(start, end) if (name or job) == run or (job and job in jobs)]

    def trace(self, folders: Sequence[Path], start: float, end: float) -> traces.Trace:
        return traces.trace_of(folders, STEP, start, end)

    def read(self, start: float, end: float) -> tuple[StepTable, list[CheckpointFacts]]:
        """Rows from ``start`` to ``end`` (unix s), of many those of the newest days."""
        parts: list[StepTable] = []
        saves: list[CheckpointFacts] = []
        size = 0
        for folder, run, job in self._segments(start, end):
            if size < MOST_ROWS:
                table = _table(_records(folder / "steps", STEP), run, job, start, end)
                size += len(table)
                parts += [table] if len(table) else []
            saves += _facts(_records(folder / "saves", SAVE), run, job, start, end)
        return joined(parts), sorted(saves, key=lambda save: (save.at, save.job, save.kind))

    def saves(self, jobs: Collection[str], start: float, end: float) -> list[CheckpointFacts]:
        """Saves and loads of these jobs (or runs) alone, oldest first: their steps are not read."""
        found: list[CheckpointFacts] = []
        for folder, run, job in self._segments(start, end):
            if job in jobs or run in jobs:
                found += _facts(_records(folder / "saves", SAVE), run, job, start, end)
        return sorted(found, key=lambda save: (save.at, save.job, save.kind))

    def step_at(self, job: str, at: float, back_s: float = 86_400.0) -> int | None:
        """The newest step that a job (or run) had made at ``at``; None where it told of none within ``back_s``."""
        newest: list[int] = []
        for folder, run, name in self._segments(at - back_s, at):
            if job in (name, run):
                rows = _records(folder / "steps", STEP)
                made = rows["step"][(rows["at"] >= at - back_s) & (rows["at"] <= at)]
                newest += [int(made.max())] if len(made) else []
        return max(newest, default=None)

    def _segments(self, start: float, end: float) -> Iterator[tuple[Path, str, str]]:
        """Segments of the days that the span touches, the newest day first."""
        first, last = _day(start), _day(end)
        days = sorted((d for d in self._folder.glob("[0-9]*") if first <= d.name <= last), reverse=True)
        for day in days:
            for folder in sorted(day.iterdir()):
                try:
                    who = orjson.loads((folder / WHO).read_bytes())
                    yield folder, str(who["run"]), str(who["job"])
                except (OSError, ValueError, KeyError, TypeError):
                    continue  # a folder that a crash left without its names says nothing

    def drop_before(self, at: float) -> int:
        """Forget whole days before ``at``; how many."""
        old = [day for day in self._folder.glob("[0-9]*") if day.name < _day(at)]
        for day in old:
            shutil.rmtree(day, ignore_errors=True)
        return len(old)


def _day(at: float) -> str:
    at = min(max(at, 0.0), 7_258_118_400.0)  # to the year 2200
    return datetime.fromtimestamp(at, UTC).strftime("%Y%m%d")


def _parted(rows: Iterable[Any]) -> list[tuple[tuple[str, str, str], list[Any]]]:
    parts: defaultdict[tuple[str, str, str], list[Any]] = defaultdict(list)
    for row in rows:
        parts[_day(row.at), row.run, row.job].append(row)
    return sorted(parts.items(), key=lambda part: part[0])


def _step(row: StepFacts) -> tuple[float | int, ...]:
    floats = (row.step_time_s, row.loss, row.grad_norm, row.tokens)
    counts = (row.rank, members_of(row), row.replicas_total)
    return (
        row.at,
        row.step,
        *(np.nan if value is None else value for value in floats),
        *(-1 if value is None else value for value in counts),
    )


def _save(row: CheckpointFacts) -> tuple[float | int, ...]:
    size = np.nan if row.bytes is None else row.bytes
    return row.at, row.step, row.duration_s, size, row.kind == "load", row.blocking


def _records(file: Path, kind: np.dtype[Any]) -> NDArray[Any]:
    try:
        raw = file.read_bytes()
    except OSError:
        return np.empty(0, kind)
    return np.frombuffer(raw, kind, count=len(raw) // kind.itemsize)


def _table(rows: NDArray[Any], run: str, job: str, start: float, end: float) -> StepTable:
    rows = rows[(rows["at"] >= start) & (rows["at"] <= end)]
    if len(rows) > MANY_ROWS and (rows["rank"] >= 0).any():
        rows = rows[rows["rank"] <= rows["rank"][rows["rank"] >= 0].min()]
    none = np.zeros(len(rows), np.int64)
    counts = {name: np.where(rows[name] < 0, np.nan, rows[name].astype(np.float64)) for name in ("live", "total")}
    return StepTable(
        at=rows["at"].astype(np.float64),
        step=rows["step"].astype(np.int64),
        step_s=rows["step_s"].astype(np.float64),
        live=counts["live"],
        total=counts["total"],
        tokens=rows["tokens"].astype(np.float64),
        rank=rows["rank"].astype(np.int64),
        job_of=none,
        run_of=none,
        jobs=(job,),
        runs=(run,),
    )


def _facts(rows: NDArray[Any], run: str, job: str, start: float, end: float) -> list[CheckpointFacts]:
    blank = CheckpointFacts(0.0, run, 0, "save", 0.0, job=job)
    return [
        replace(
            blank,
            at=float(row["at"]),
            step=int(row["step"]),
            kind="load" if row["load"] else "save",
            duration_s=float(row["s"]),
            bytes=None if np.isnan(row["bytes"]) else float(row["bytes"]),
            blocking=bool(row["blocking"]),
        )
        for row in rows
        if start <= row["at"] <= end
    ]
