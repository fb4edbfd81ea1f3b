"""Files that trainers leave become steps: TensorBoard, W&B offline, CSV, JSON lines, HF's trainer_state.json, logs."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from backend.facts import StepFacts
from backend.ingest import tensorboard, wandb
from backend.ingest.base import SourceError
from backend.ingest.linetimes import Origin, from_iso
from backend.ingest.rows import EARLIEST, LATEST
from backend.ingest.steplines import Patterns, StepLines
from backend.ingest.steps import attrs_of, document_of
from backend.ingest.training import MEMBERS, NUMBERS, canonical
from detectors.training.signals import Signals

#: What columns call the step and the time.
STEPS = ("step", "_step", "global_step", "iteration", "iter", "steps", "Step", "trainer/global_step")
TIMES = ("ts", "_timestamp", "timestamp", "time", "wall_time", "Wall time", "created_at")
WHOSE = frozenset({"rank", "run", "job", "layer", "host"})
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")
_RANK = re.compile(r"(?<![a-z])rank[_.-]?(\d{1,6})(?!\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reader:
    """How files are read: ``run`` and ``job`` where they name none. A file that tells no times gets made-up ones, a
    second a row, up to when it was last written; ``timeless`` hears of each such file."""

    signals: Signals
    patterns: Patterns
    run: str = ""
    job: str = ""
    timeless: Callable[[Path], object] = print

    def read(self, path: Path) -> Iterator[StepFacts]:
        """The steps of a file, or of all files below a folder. Raises SourceError or OSError."""
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.is_file() and kind_of(p))
            if not files:
                raise SourceError(f"{path} holds no file of steps that is known here.", permanent=True)
            for file in files:
                yield from self.read(file)
            return
        yield from (canonical(row, self.signals) for row in self._file(path))

    def _file(self, path: Path) -> Iterator[StepFacts]:
        kind, name = kind_of(path), self.run or ("" if self.job else run_of(path))
        try:
            if kind == "tensorboard":
                with path.open("rb") as file:
                    yield from joined(tensorboard.scalars(file), name, self.job)
            elif kind == "wandb":
                with path.open("rb") as file:
                    rows = ((self.run or row.run or name, row.values) for row in wandb.history(file))
                    yield from self._rows(path, rows)
            elif kind in ("csv", "tsv"):
                yield from self._rows(path, ((name, row) for row in _sheet(path, kind)))
            elif kind == "json":
                yield from self._rows(path, ((name, row) for row in _documents(path)))
            else:
                yield from self._log(path, name)
        except SourceError as error:
            raise SourceError(f"{path}: {error}", permanent=True) from error

    def _rows(self, path: Path, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[StepFacts]:
        held = [(run, row, step) for run, row in rows if (step := _step(row)) is not None]
        none = [row for _, row, _ in held if _time(row) is None]
        if none:
            self.timeless(path)
        last = path.stat().st_mtime
        for place, (run, row, step) in enumerate(held):
            at = _time(row)
            at = last - (len(held) - 1 - place) if at is None or none else at
            yield self._facts(run, row, step, at)

    def _facts(self, run: str, row: Mapping[str, Any], step: int, at: float) -> StepFacts:
        own = {name: row.get(name) for name in ("run", "job")}
        told = {n: v for n, v in row.items() if n not in (*STEPS, *TIMES, "run", "job", "rank", "_runtime")}
        told = {n: _number(v) if n not in WHOSE else v for n, v in told.items()}
        rank = _whole(row.get("rank"))
        job = str(own["job"] or self.job)
        return StepFacts(at, str(own["run"] or run), job, step, rank=rank, attrs=_kept(told))

    def _log(self, path: Path, name: str) -> Iterator[StepFacts]:
        lines = StepLines(self.patterns)
        found = _RANK.search(path.name)
        stream = f"/rank_{found[1]}" if found else ""
        rows: list[tuple[StepFacts, bool]] = []
        last = path.stat().st_mtime
        with path.open("rb") as file:
            for raw in file:
                for line in raw.decode(errors="replace").replace("\r", "\n").split("\n"):
                    stamp = _STAMP.search(line)
                    at = from_iso(stamp[0], Origin("", last, UTC)) if stamp else None
                    row = lines.step_of(line, at or 0.0, self.job, stream, name)
                    rows += [(row, at is None)] if row is not None else []
        if any(made_up for _, made_up in rows):
            self.timeless(path)
            rows = [(replace(row, at=last - (len(rows) - 1 - n)), True) for n, (row, _) in enumerate(rows)]
        yield from (row for row, _ in rows)


def kind_of(path: Path) -> str:
    """tensorboard, wandb, csv, tsv, json or log, by the name of a file; "" for another."""
    name = path.name.lower()
    if ".tfevents." in name or name.endswith(".tfevents"):
        return "tensorboard"
    end = name.rpartition(".")[2]
    known = {"wandb": "wandb", "csv": "csv", "tsv": "tsv", "json": "json", "jsonl": "json", "ndjson": "json",
             "log": "log", "out": "log", "txt": "log", "err": "log"}  # fmt: skip
    return known.get(end, "")


def run_of(path: Path) -> str:
    """A run that a file does not name is called as its folder."""
    return path.resolve().parent.name or path.stem


def joined(scalars: Iterable[tensorboard.Scalar], run: str, job: str) -> Iterator[StepFacts]:
    """The numbers of one step that stand together are one row. TensorBoard writes a step's tags one after another."""
    values: dict[str, float] = {}
    step, at = -1, math.nan
    for one in scalars:
        if values and (one.step != step or one.tag in values):
            yield StepFacts(at, run, job, step, attrs=_kept(values))
            values = {}
        if not EARLIEST <= one.at <= LATEST or one.step < 0:
            continue
        step, at = one.step, one.at
        values[one.tag] = one.value
    if values:
        yield StepFacts(at, run, job, step, attrs=_kept(values))


def _kept(told: Mapping[str, Any]) -> dict[str, float | str]:
    """What is kept of a row, its loss and its like too: ``canonical`` puts them where they belong."""
    own = attrs_of({f" {name}": told[name] for name in (*NUMBERS, *MEMBERS) if name in told})
    return {name.strip(): value for name, value in own.items()} | attrs_of(told)


def _sheet(path: Path, kind: str) -> Iterator[Mapping[str, Any]]:
    """Rows by their heads. TensorBoard's own download holds one tag, which its file is named after."""
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
        for row in csv.DictReader(file, delimiter="\t" if kind == "tsv" else ","):
            told = {name: value for name, value in row.items() if name is not None and value not in ("", None)}
            yield (
                {**told, path.stem.rpartition("tag-")[2]: told["Value"]}
                if set(told) == {"Wall time", "Step", "Value"}
                else told
            )


def _documents(path: Path) -> Iterator[Mapping[str, Any]]:
    raw = path.read_bytes()
    try:
        whole = document_of(raw)
    except ValueError:
        whole = None
    if isinstance(whole, dict) and isinstance(whole.get("log_history"), list):
        whole = whole["log_history"]
    if isinstance(whole, list):
        yield from (row for row in whole if isinstance(row, dict))
        return
    for line in raw.splitlines():
        try:
            row = document_of(line) if line.strip() else None
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _step(row: Mapping[str, Any]) -> int | None:
    found = next((row[name] for name in STEPS if row.get(name) is not None), None)
    return _whole(found)


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if isinstance(number, float) and 0 <= number < 2**53 and number.is_integer() else None


def _number(value: object) -> object:
    """A float where it is one, or text of one; else the value."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 else value


def _time(row: Mapping[str, Any]) -> float | None:
    found = next((row[name] for name in TIMES if row.get(name) not in (None, "")), None)
    number = _number(found)
    if isinstance(number, str):
        try:
            moment = datetime.fromisoformat(number)
        except ValueError:
            return None
        number = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    return number if isinstance(number, float) and EARLIEST <= number <= LATEST else None


def row_of(facts: StepFacts) -> bytes:
    """The row that ``ingest/steps`` takes, as one line."""
    own = {"ts": facts.at, "run": facts.run, "job": facts.job, "step": facts.step, "loss": facts.loss,
           "grad_norm": facts.grad_norm, "step_time_s": facts.step_time_s, "tokens": facts.tokens, "rank": facts.rank,
           "replicas_live": facts.replicas_live, "replicas_total": facts.replicas_total}  # fmt: skip
    said = {**facts.attrs, **{name: value for name, value in own.items() if value not in (None, "")}}
    plain = {n: repr(v) if isinstance(v, float) and not math.isfinite(v) else v for n, v in said.items()}
    return orjson.dumps(plain) + b"\n"
