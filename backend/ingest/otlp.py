"""OTLP over HTTP, JSON or protobuf: metrics of a job become its steps, log records become rows of a log.

Field numbers as in opentelemetry-proto (metrics/v1, logs/v1, common/v1). Whose a row is stands in the attributes of the
resource or of the point: run (else service.name), job, rank, layer, host; ``step`` too, or as a metric of that name.
"""

from __future__ import annotations

import base64
import math
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from backend.facts import StepFacts
from backend.ingest.base import SourceError
from backend.ingest.protobuf import fields, message, text, whole
from backend.ingest.rows import EARLIEST, LATEST, MAX_AHEAD_S, loaded

PROTOBUF = "application/x-protobuf"
#: Points and records of one export; a trainer sends some hundred.
MOST = 200_000
#: Characters of a name or value.
MAX_TEXT = 256
NO_STEP, NO_RUN, NO_TIME = "points without a step", "points of no run or job", "points whose time is none"
OTHER = "points that are no single number"
#: Attributes by what they mean, the first that is there counts.
WHOSE: Mapping[str, tuple[str, ...]] = {
    "run": ("run", "run.name", "run_name", "wandb.run.name", "mlflow.run_name", "service.name"),
    "job": ("job", "job.id", "job_id", "slurm.job.id", "slurm_job_id", "k8s.job.name"),
    "rank": ("rank", "global_rank", "process.rank", "torch.rank"),
    "layer": ("layer", "layer_id", "layer.index"),
    "host": ("host", "host.name", "node", "k8s.node.name", "slurm.node"),
    "step": ("step", "global_step", "global.step", "training.step", "iteration"),
}
STEPS = frozenset(WHOSE["step"])
Attrs = dict[str, str]


@dataclass(frozen=True, slots=True)
class Point:
    """One number of one metric at ``at`` (unix s)."""

    name: str
    at: float
    value: float
    attrs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Record:
    """One log record."""

    at: float
    body: str
    attrs: Mapping[str, str]


@dataclass(slots=True)
class Taken:
    """Rows of one export, and what was left out, by reason."""

    rows: list[StepFacts] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


def steps_of(points: Iterable[Point], now: float, others: int = 0) -> Taken:
    """Points of the same run, rank, layer and step are one row. ``now`` in unix s; others: points of other kinds."""
    taken = Taken()
    taken.dropped[OTHER] += others
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    at_step: dict[tuple[str, ...], str] = {}
    held = list(points)
    for point in held:
        if point.name in STEPS and point.value.is_integer():
            at_step[_who(point.attrs)] = str(int(point.value))
    for point in held:
        if point.name in STEPS:
            continue
        who = _who(point.attrs)
        step = _said(point.attrs, "step") or at_step.get(who, "") or at_step.get((*who[:2], "", "", ""), "")
        if reason := _wrong(point, who, step, now):
            taken.dropped[reason] += 1
            continue
        row = rows.setdefault((*who, step), {"at": point.at, "values": {}})
        row["at"] = max(row["at"], point.at)
        row["values"][point.name[:MAX_TEXT]] = point.value
    for (run, job, rank, layer, host, step), row in rows.items():
        attrs: dict[str, float | str] = {"layer": layer} if layer else {}
        attrs |= {"host": host} if host else {}
        attrs |= {n: v if math.isfinite(v) else repr(v) for n, v in row["values"].items()}
        of = int(rank) if rank.isdecimal() and len(rank) < 10 else None
        taken.rows.append(StepFacts(row["at"], run, job, int(float(step)), rank=of, attrs=attrs))
    return taken


def _wrong(point: Point, who: tuple[str, ...], step: str, now: float) -> str:
    if not (who[0] or who[1]):
        return NO_RUN
    if not EARLIEST <= point.at <= min(LATEST, now + MAX_AHEAD_S):
        return NO_TIME
    try:
        return "" if step and 0 <= float(step) < 2**53 and float(step).is_integer() else NO_STEP
    except ValueError:
        return NO_STEP


def _who(attrs: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(_said(attrs, what) for what in ("run", "job", "rank", "layer", "host"))


def _said(attrs: Mapping[str, str], what: str) -> str:
    found = next((attrs[name] for name in WHOSE[what] if attrs.get(name)), "")
    return "".join(c for c in found if c.isprintable()).strip()[:MAX_TEXT]


def log_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Log records as the rows that ``ingest/logs`` takes."""
    found = []
    for record in records:
        host, job, rank = (_said(record.attrs, what) for what in ("host", "job", "rank"))
        source = record.attrs.get("log.file.name") or record.attrs.get("service.name") or "otlp"
        row: dict[str, Any] = {"ts": record.at, "host": host, "source": source[:128], "line": record.body, "job": job}
        found.append(row | ({"rank": int(rank)} if rank.isdecimal() and len(rank) < 10 else {}))
    return found


# --- reading --------------------------------------------------------------------------------------------------------


def metrics_of(body: bytes, content_type: str) -> tuple[list[Point], int]:
    """Points of one export, and how many are no single number (histograms, summaries).

    Raises SourceError(permanent=True) where the body cannot be read.
    """
    found: list[Point] = []
    others = 0
    for resource, name, kind, point in _packed_points(body) if is_binary(content_type) else _written_points(body):
        if len(found) >= MOST:
            raise SourceError(f"The body holds over {MOST:,} points. Send less at once.", permanent=True)
        if kind == "other":
            others += 1
            continue
        at, value, attrs = point
        found.append(Point(name, at, value, {**resource, **attrs}))
    return found, others


def logs_of(body: bytes, content_type: str) -> list[Record]:
    """Raises SourceError(permanent=True) where the body cannot be read."""
    found: list[Record] = []
    for resource, at, said, attrs in _packed_logs(body) if is_binary(content_type) else _written_logs(body):
        if len(found) >= MOST:
            raise SourceError(f"The body holds over {MOST:,} records. Send less at once.", permanent=True)
        found.append(Record(at, said, {**resource, **attrs}))
    return found


def is_binary(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() in (PROTOBUF, "application/protobuf")


PointOf = tuple[Attrs, str, str, tuple[float, float, Attrs]]
NOTHING: tuple[float, float, Attrs] = (0.0, 0.0, {})


def _packed_points(body: bytes) -> Iterator[PointOf]:
    for resource, metric in _packed(memoryview(body), 2):
        name, points = "", []
        for number, value in fields(metric):
            if number == 1:
                name = text(value)
            elif number in (5, 7):  # gauge, sum
                points += [_packed_point(message(one)) for n, one in fields(message(value)) if n == 1]
            elif number in (9, 10, 11):
                yield resource, "", "other", NOTHING
        for point in points:
            yield resource, name, "number", point


def _packed_point(raw: memoryview) -> tuple[float, float, Attrs]:
    at, value = 0.0, math.nan
    attrs: Attrs = {}
    for number, one in fields(raw):
        if number == 7:
            attrs |= dict([_packed_pair(message(one))])
        elif number == 3:
            at = _fixed("<Q", one) / 1e9
        elif number == 4:
            value = _fixed("<d", one)
        elif number == 6:
            value = _fixed("<q", one)
    return at, value, attrs


def _fixed(form: str, value: int | memoryview) -> float:
    """A field of eight bytes; NaN for one of another length."""
    return float(struct.unpack(form, value)[0]) if isinstance(value, memoryview) and len(value) == 8 else math.nan


def _packed(raw: memoryview, within: int) -> Iterator[tuple[Attrs, memoryview]]:
    """(attributes of the resource, metric or record) of an export; ``within``: their field in a scope."""
    for number, whole_ in fields(raw):
        if number != 1:
            continue
        resource: Attrs = {}
        scopes = []
        for n, one in fields(message(whole_)):
            if n == 1:
                resource |= dict(_packed_pair(message(pair)) for m, pair in fields(message(one)) if m == 1)
            elif n == 2:
                scopes.append(message(one))
        for scope in scopes:
            for n, one in fields(scope):
                if n == within:
                    yield resource, message(one)


def _packed_pair(raw: memoryview) -> tuple[str, str]:
    key = said = ""
    for number, value in fields(raw):
        if number == 1:
            key = text(value)[:MAX_TEXT]
        elif number == 2:
            said = _packed_value(message(value))[:MAX_TEXT]
    return key, said


def _packed_value(raw: memoryview) -> str:
    for number, value in fields(raw):
        if number == 1:
            return text(value)
        if number == 2:
            return "true" if value else "false"
        if number == 3:
            return str(whole(value))
        if number == 4:
            return repr(_fixed("<d", value))
    return ""


def _packed_logs(body: bytes) -> Iterator[tuple[Attrs, float, str, Attrs]]:
    for resource, record in _packed(memoryview(body), 2):
        at, seen, said = 0.0, 0.0, ""
        attrs: Attrs = {}
        for number, value in fields(record):
            if number in (1, 11):
                time = _fixed("<Q", value) / 1e9
                at, seen = (time, seen) if number == 1 else (at, time)
            elif number == 5:
                said = _packed_value(message(value))
            elif number == 6:
                attrs |= dict([_packed_pair(message(value))])
        yield resource, at or seen, said, attrs


def _document(body: bytes, top: str) -> list[Any]:
    try:
        found, _ = loaded(body)
    except ValueError as error:
        raise SourceError(f"The body is not JSON: {error}.", permanent=True) from error
    if not isinstance(found, dict) or not isinstance(found.get(top), list):
        raise SourceError(f"The body is no OTLP export: it holds no list {top!r}.", permanent=True)
    return list(found[top])


def _written(body: bytes, top: str, scopes: str, within: str) -> Iterator[tuple[Attrs, dict[str, Any]]]:
    for one in _dicts(_document(body, top)):
        resource = _pairs(
            (one.get("resource") or {}).get("attributes") if isinstance(one.get("resource"), dict) else ()
        )
        for scope in _dicts(one.get(scopes)):
            for found in _dicts(scope.get(within)):
                yield resource, found


def _written_points(body: bytes) -> Iterator[PointOf]:
    for resource, metric in _written(body, "resourceMetrics", "scopeMetrics", "metrics"):
        kinds = [metric[k] for k in ("gauge", "sum") if isinstance(metric.get(k), dict)]
        for kind in kinds:
            for point in _dicts(kind.get("dataPoints")):
                value = point.get("asDouble", point.get("asInt"))
                at = _float(point.get("timeUnixNano")) / 1e9
                yield (
                    resource,
                    str(metric.get("name", "")),
                    "number",
                    (at, _float(value), _pairs(point.get("attributes"))),
                )
        if not kinds:
            yield resource, "", "other", NOTHING


def _written_logs(body: bytes) -> Iterator[tuple[Attrs, float, str, Attrs]]:
    for resource, record in _written(body, "resourceLogs", "scopeLogs", "logRecords"):
        at = _float(record.get("timeUnixNano") or record.get("observedTimeUnixNano") or 0) / 1e9
        yield resource, at, _value(record.get("body")), _pairs(record.get("attributes"))


def _dicts(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # whatever it is
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _pairs(found: object) -> Attrs:
    return {str(one.get("key", ""))[:MAX_TEXT]: _value(one.get("value"))[:MAX_TEXT] for one in _dicts(found)}


def _value(found: object) -> str:
    if not isinstance(found, dict):
        return ""
    for kind in ("stringValue", "intValue", "doubleValue", "boolValue"):
        if kind in found:
            return str(found[kind]).lower() if kind == "boolValue" else str(found[kind])
    if "bytesValue" in found:
        try:
            return base64.b64decode(str(found["bytesValue"])).decode(errors="replace")
        except ValueError:
            return ""
    return ""


# --- answering ------------------------------------------------------------------------------------------------------


def answer(rejected: int, why: str, content_type: str, what: str) -> tuple[dict[str, Any] | bytes, str]:
    """The export's answer in the language of its request; ``what``: DataPoints or LogRecords."""
    if is_binary(content_type):
        if not rejected:
            return b"", PROTOBUF
        said = why.encode()[:120]
        inner = b"\x08" + _varint(rejected) + b"\x12" + _varint(len(said)) + said
        return b"\x0a" + _varint(len(inner)) + inner, PROTOBUF
    partial = {"partialSuccess": {f"rejected{what}": str(rejected), "errorMessage": why}} if rejected else {}
    return partial, "application/json"


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
