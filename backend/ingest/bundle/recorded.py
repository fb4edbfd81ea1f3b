"""A bundle that a running watch recorded: ``arrivals.jsonl`` says what came when, in which order and how much at once.

Each row is one Batch: {"recv_ts", "source", "start", "end"[, "samples", "lines", "nodes", "attempts", "events",
"versions", "outages", "maintenances", "steps", "checkpoints", "told", "cables", "listing", "dropped", "dark"]}.
``samples`` and ``lines`` count rows of ``telemetry/recorded.om`` and ``logs/recorded.jsonl``, which are read on from
row to row; these two are what any bundle may hold, the other fields are facts as taken in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

import numpy as np
import orjson
from pydantic import Field, TypeAdapter, ValidationError

from backend.facts import (
    AttemptFacts,
    Batch,
    CableFacts,
    CheckpointFacts,
    DeviceLabel,
    MaintenanceFacts,
    NodeFacts,
    OutageFacts,
    RawEvent,
    Series,
    StepFacts,
    VersionFacts,
)
from backend.ingest.bundle.folder import PartFile
from backend.ingest.bundle.openmetrics import labels_in, sample_of
from backend.ingest.bundle.reading import BadRows, Reading
from backend.ingest.logs import logs_batch, read_rows
from backend.ingest.rows import Moment, Name, Row, problem_of
from backend.ingest.samples import UP
from backend.reported import ToldFacts
from detectors.catalogue import Catalogue
from detectors.kernel.lines import parse

TELEMETRY, LOGS = "telemetry/recorded.om", "logs/recorded.jsonl"
#: The source of a row that says: here the watch judged what it had.
TURN = "(turn)"

_FACTS: Mapping[str, TypeAdapter[Any]] = {
    "nodes": TypeAdapter(tuple[NodeFacts, ...]),
    "attempts": TypeAdapter(tuple[AttemptFacts, ...]),
    "events": TypeAdapter(tuple[RawEvent, ...]),
    "versions": TypeAdapter(tuple[VersionFacts, ...]),
    "outages": TypeAdapter(tuple[OutageFacts, ...]),
    "maintenances": TypeAdapter(tuple[MaintenanceFacts, ...]),
    "steps": TypeAdapter(tuple[StepFacts, ...]),
    "checkpoints": TypeAdapter(tuple[CheckpointFacts, ...]),
    "told": TypeAdapter(tuple[ToldFacts, ...]),
    "cables": TypeAdapter(tuple[CableFacts, ...]),
}
_NOBODY = DeviceLabel("", "")
#: The label that tells the parts of a row apart, where a metric joins them.
PART = "part"


class Arrival(Row):
    """One row of ``arrivals.jsonl``; the facts in it are checked with it."""

    recv_ts: Moment
    source: Name
    start: float
    end: float
    samples: int = Field(0, ge=0)
    lines: int = Field(0, ge=0)
    dropped: dict[str, int] = Field(default_factory=dict)
    dark: list[str] | None = None
    listing: bool | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording that was looked at: its files, and when its first and last row came (unix s). turns: it says when the
    watch judged; else it did so whenever a tick was due or lines had come."""

    arrivals: PartFile
    telemetry: PartFile | None
    logs: PartFile | None
    catalogue: Catalogue
    first: float | None
    last: float | None
    bad: BadRows
    left_out: Counter[str]
    turns: bool = False

    def batches(self) -> Iterator[tuple[float, Batch]]:
        """(arrival, Batch) as they came, in memory of one batch. Rows that cannot be read are listed in ``bad``."""
        reading = Reading(0)
        samples, lines = _Lines(self.telemetry, reading, b"#"), _Lines(self.logs, reading)
        for row, document in _rows(self.arrivals, reading):  # those that cannot be read are listed already
            facts = {name: kind.validate_python(document.get(name, ())) for name, kind in _FACTS.items()}
            events = facts.pop("events")
            body = lines.take(row.lines)
            told = logs_batch(read_rows(body, "application/jsonl", row.recv_ts), row.recv_ts, parse) if body else None
            yield (
                row.recv_ts,
                Batch(
                    row.source,
                    row.start,
                    row.end,
                    series=self._series(samples.take(row.samples)),
                    events=(*(told.events if told else ()), *events),
                    dropped=row.dropped,
                    dark=None if row.dark is None else tuple(row.dark),
                    listing=row.listing,
                    **facts,
                ),
            )

    def _series(self, text: bytes) -> tuple[Series, ...]:
        """Samples of one batch, those of a series together."""
        found: list[tuple[str, DeviceLabel, str, float, float]] = []
        for line in text.splitlines():
            try:
                name, labels, value, at = sample_of(line)
                metric, label, part = self._whom(name, labels)
            except ValueError as error:
                self.bad.add(TELEMETRY, 0, str(error))
                continue
            if metric:
                found.append((metric, label, part, at, value))
        groups = groupby(found, key=lambda sample: sample[:3])
        return tuple(_one(metric, label, part, list(group)) for (metric, label, part), group in groups)

    def _whom(self, name: bytes, labels: bytes) -> tuple[str, DeviceLabel, str]:
        metric = self.catalogue.metrics.get(self.catalogue.alias.get(name.decode(), ""))
        if metric is None:
            self.left_out["metric not in the catalogue"] += 1
            return "", _NOBODY, ""
        said = labels_in(labels)
        return metric.name, label_of(metric.axis, said), said.get(PART, "")


def _one(
    metric: str, label: DeviceLabel, part: str, group: Sequence[tuple[str, DeviceLabel, str, float, float]]
) -> Series:
    return Series(metric, label, np.array([s[3] for s in group]), np.array([s[4] for s in group]), part)


class _Lines:
    """Lines of one file, so many at a time; those that begin with ``but`` are none."""

    def __init__(self, file: PartFile | None, reading: Reading, but: bytes = b"\0") -> None:
        lines = reading.lines(file) if file is not None else iter(())
        self._lines = (line for _, _, line in lines if line and not line.startswith(but))

    def take(self, count: int) -> bytes:
        return b"\n".join(islice(self._lines, count))


def look_at(arrivals: PartFile, files: Mapping[str, PartFile], catalogue: Catalogue, reading: Reading) -> Recorded:
    """One pass over the arrivals alone; ``files``: what else there is, by name. Rows that cannot be read are listed."""
    first = last = None
    turns = False
    for row, _ in _rows(arrivals, reading):
        turns = turns or row.source == TURN
        first = row.recv_ts if first is None else first
        last = max(row.recv_ts, last or row.recv_ts)
    telemetry, logs = files.get(TELEMETRY), files.get(LOGS)
    return Recorded(arrivals, telemetry, logs, catalogue, first, last, reading.bad, Counter(), turns)


def _rows(file: PartFile, reading: Reading) -> Iterator[tuple[Arrival, dict[str, Any]]]:
    for line, _, text in reading.lines(file):
        if not text.strip():
            continue
        try:
            document = orjson.loads(text)
            row = Arrival.model_validate(document)
            for name, kind in _FACTS.items():
                kind.validate_python(document.get(name, ()))
        except orjson.JSONDecodeError as error:
            reading.bad.add(file.name, line, f"is not JSON: {error}")
        except ValidationError as error:
            reading.bad.add(file.name, line, ": ".join(problem_of(error)))
        else:
            yield row, document


# --- labels ---------------------------------------------------------------------------------------------------------


def labels_of(label: DeviceLabel) -> dict[str, str]:
    """What an exporter would have said of this device or node; ``label_of`` reads it back to the letter."""
    if label.axis == "node":
        return {"instance": label.node}
    if label.axis != "gpu":
        told = {"node": label.node, "place": label.index, "export": label.export, "operation": label.operation}
        return {name: value for name, value in told.items() if value}
    said = {"gpu": label.index, "UUID": label.uuid, "pci_bus_id": label.pci, "modelName": label.model}
    said |= {"Hostname": label.node, "hpc_job": label.job}
    return {name: value for name, value in said.items() if value}


def label_of(axis: str, said: Mapping[str, str]) -> DeviceLabel:
    """The label as it was taken in; it was checked then."""
    if axis == "node":
        return DeviceLabel("node", said.get("instance", ""))
    if axis != "gpu":
        where, what = (said.get("node", ""), said.get("place", "")), (said.get("export", ""), said.get("operation", ""))
        return DeviceLabel(axis, where[0], index=where[1], export=what[0], operation=what[1])
    return DeviceLabel(
        axis,
        said.get("Hostname", ""),
        said.get("UUID", ""),
        said.get("pci_bus_id", ""),
        said.get("gpu", ""),
        said.get("modelName", ""),
        said.get("hpc_job", ""),
    )


def name_of(catalogue: Catalogue, metric: str) -> str:
    """The raw name under which a metric is written; ``up`` for node_up. "" for one that is not in the catalogue."""
    if metric == UP:
        return "up"
    known = catalogue.metrics.get(metric)
    return known.aliases[0] if known is not None else ""
