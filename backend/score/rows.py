"""Rows of truth.jsonl, incidents.jsonl and findings.jsonl, read and checked: what is wrong is said with its line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detectors.model import Severity

Row = Mapping[str, Any]


class ScoreError(ValueError):
    """Input that cannot be scored; the text says what, where and what would be right."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of truth. Times are unix s; ``end`` is infinite for a fault that never ended, ``first_visible`` None
    for one that no source shows. ``nodes``: its victims, and itself."""

    id: str
    entity: str
    kind: str
    start: float
    end: float
    first_visible: float | None
    first_code: float | None
    exclude: bool
    exclude_ok: bool
    job: str
    run: str
    nodes: tuple[str, ...]

    @property
    def group(self) -> str:
        """What its chance of being found hangs on: its run, else its job, else itself."""
        return f"run:{self.run}" if self.run else f"job:{self.job}" if self.job else f"fault:{self.id}"


@dataclass(frozen=True, slots=True)
class Incident:
    """One row of incidents.jsonl, as far as it is scored. ``keys``: its findings; ``loud``: above info."""

    id: int
    opened_at: float
    entity: str
    kind: str
    loud: bool
    entities: tuple[str, ...]
    exclude: tuple[str, ...]
    run: str
    job: str
    keys: tuple[str, ...]

    @property
    def named(self) -> tuple[str, ...]:
        """Every entity it names, its own first."""
        return (self.entity, *(e for e in self.entities if e != self.entity))

    @property
    def group(self) -> str:
        return f"run:{self.run}" if self.run else f"job:{self.job}" if self.job else f"incident:{self.id}"


@dataclass(frozen=True, slots=True)
class Assertion:
    """One row of findings.jsonl that asserts (raised or changed); ``emitted_at``: when its tick closed."""

    key: str
    entity: str
    kind: str
    ts: float
    emitted_at: float


@dataclass(frozen=True, slots=True)
class Output:
    """Rows of a replay's folder, checked."""

    findings: tuple[Row, ...]
    incidents: tuple[Row, ...]


def read_truth(path: Path) -> tuple[Row, ...]:
    """Rows of a truth.jsonl. Raises ScoreError naming file and line."""
    return _checked(path, fault_of, "the faults of a bundle stand in its truth.jsonl")


def read_output(folder: Path) -> Output:
    """findings.jsonl and incidents.jsonl of a replay's ``--out``. Raises ScoreError naming file and line."""
    fix = "give the folder that a replay wrote with --out"
    findings = _checked(folder / "findings.jsonl", assertion_of, fix)
    return Output(findings, _checked(folder / "incidents.jsonl", incident_of, fix))


def read_topology(path: Path) -> tuple[dict[str, tuple[str, ...]], int]:
    """Racks and switches above each node as they print (``rack:R``), and how many GPUs there are, of a
    topology.json. Raises ScoreError."""
    try:
        nodes = json.loads(path.read_text(encoding="utf-8"))["nodes"]
        above = {_text(node, "name"): _above(node) for node in nodes}
        gpus = sum(len(node.get("gpus") or ()) for node in nodes)
    except OSError as error:
        raise ScoreError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        fix = 'it holds {"nodes": [{"name", "rack", "switch", "gpus": [...]}]}'
        raise ScoreError(f"{path}: {error}; {fix}") from error
    return above, gpus


def fault_of(row: Row) -> Fault:
    """Raises ScoreError for a field that is missing or of another type."""
    if "first_visible" not in row:
        raise ScoreError("first_visible is missing; it is the unix second of the first sign, null where none shows")
    end, exclude = _maybe(row, "end"), _flag(row, "exclude", False)
    fault = Fault(
        id=_text(row, "id"),
        entity=_text(row, "entity"),
        kind=_text(row, "kind"),
        start=_number(row, "start"),
        end=math.inf if end is None else end,
        first_visible=_maybe(row, "first_visible"),
        first_code=_maybe(row, "first_xid"),
        exclude=exclude,
        exclude_ok=_flag(row, "exclude_ok", exclude),
        job=_name(row, "job"),
        run=_name(row, "run"),
        nodes=_names(row, "nodes"),
    )
    if fault.end < fault.start:
        raise ScoreError(f"end {fault.end} is before start {fault.start}")
    return fault


def incident_of(row: Row) -> Incident:
    """Raises ScoreError for a field that is missing or of another type."""
    number, severity = row.get("id"), _text(row, "severity")
    if not isinstance(number, int) or isinstance(number, bool):
        raise ScoreError(f"id must be a whole number, is {number!r}")
    try:
        loud = Severity.of(severity) > Severity.INFO
    except KeyError:
        raise ScoreError(f"severity must be one of info, warning, high, critical, is {severity!r}") from None
    return Incident(
        id=number,
        opened_at=_number(row, "opened_at"),
        entity=_text(row, "entity"),
        kind=_text(row, "kind"),
        loud=loud,
        entities=_names(row, "entities"),
        exclude=_names(row, "exclude"),
        run=_name(row, "run"),
        job=_name(row, "job"),
        keys=_names(row, "findings"),
    )


def assertion_of(row: Row) -> Assertion | None:
    """None for a row that clears. Raises ScoreError for a field that is missing or of another type."""
    state = _text(row, "state")
    if state not in ("raised", "changed", "cleared"):
        raise ScoreError(f"state must be raised, changed or cleared, is {state!r}")
    key, entity, kind = (_text(row, name) for name in ("key", "entity", "kind"))
    found = Assertion(key, entity, kind, _number(row, "ts"), _number(row, "emitted_at"))
    return None if state == "cleared" else found


def _checked(path: Path, check: Any, fix: str) -> tuple[Row, ...]:
    rows: list[Row] = []
    for line, text in _lines(path, fix):
        try:
            row = json.loads(text)
            if not isinstance(row, dict):
                raise ScoreError("a line holds one JSON object")
            check(row)
        except json.JSONDecodeError as error:
            raise ScoreError(f"{path}, line {line}: no JSON ({error.msg} at column {error.colno})") from error
        except ScoreError as error:
            raise ScoreError(f"{path}, line {line}: {error}") from error
        rows.append(row)
    return tuple(rows)


def _lines(path: Path, fix: str) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as file:
            yield from ((at, line) for at, line in enumerate(file, 1) if line.strip())
    except OSError as error:
        raise ScoreError(f"{path} cannot be read ({error.strerror}); {fix}") from error
    except UnicodeDecodeError as error:
        raise ScoreError(f"{path} is no UTF-8 text ({error.reason} at byte {error.start})") from error


def _above(node: Row) -> tuple[str, ...]:
    """``rack:R`` and ``switch:S`` of one node; either may be missing, a name or a list of names."""
    found: list[str] = []
    for word in ("rack", "switch"):
        names = node.get(word) or ()
        found += [f"{word}:{name}" for name in ([names] if isinstance(names, str) else names)]
    return tuple(found)


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value:
        raise ScoreError(f"{name} must be a text, is {value!r}")
    return value


def _name(row: Row, name: str) -> str:
    """A job or run: a text or a number, empty for null or missing."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise ScoreError(f"{name} must be a text or a number, is {value!r}")
    return "" if value is None else str(value)


def _names(row: Row, name: str) -> tuple[str, ...]:
    value = row.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) and v for v in value):
        raise ScoreError(f"{name} must be a list of texts, is {value!r}")
    return tuple(dict.fromkeys(value))


def _maybe(row: Row, name: str) -> float | None:
    return None if row.get(name) is None else _number(row, name)


def _number(row: Row, name: str) -> float:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ScoreError(f"{name} must be a number of unix seconds, is {value!r}")
    return float(value)


def _flag(row: Row, name: str, missing: bool) -> bool:
    value = row.get(name, missing)
    if not isinstance(value, bool):
        raise ScoreError(f"{name} must be true or false, is {value!r}")
    return value
