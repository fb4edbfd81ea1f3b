"""Records what a running watch takes in as a bundle: a replay of it does the same again, byte for byte."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from backend import pipeline
from backend.clock import unix
from backend.facts import Batch, RawEvent, Series
from backend.ingest.bundle.folder import ARRIVALS, VERSION
from backend.ingest.bundle.recorded import LOGS, TELEMETRY, label_of, labels_of, name_of
from backend.ingest.logs import logs_batch, read_rows
from backend.pipeline import Accepted
from backend.replay.files import line
from backend.watch import Watch
from detectors.kernel.lines import parse

#: Facts that are written as they are.
FACTS = ("attempts", "versions", "outages", "maintenances", "steps", "checkpoints")
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Recorder:
    """Stands before ``pipeline.accept`` of one watch and writes along, in the order in which things are taken in.

    ``folder`` must not hold a bundle yet. ``close`` it, or what is in its buffers is lost. ``left_out`` counts samples
    that no file of a bundle can tell: they belong to no metric of the catalogue.
    """

    def __init__(self, watch: Watch, folder: Path) -> None:
        self._watch = watch
        self._folder = folder
        self.left_out = 0
        for name in (ARRIVALS, TELEMETRY, LOGS):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        self._arrivals: BinaryIO = (folder / ARRIVALS).open("xb")
        self._telemetry: BinaryIO = (folder / TELEMETRY).open("xb")
        self._logs: BinaryIO = (folder / LOGS).open("xb")
        self._dark: tuple[str, ...] | None = None
        self._describe(None)

    def accept(self, batch: Batch, *, pushed: bool = True) -> Accepted:
        """As ``pipeline.accept``. What that refuses is not recorded."""
        with self._watch.lock:
            accepted = pipeline.accept(self._watch, batch, pushed=pushed)
            self.write(batch)
        return accepted

    def darken(self, source: str, dark: bool) -> None:
        """As ``Watch.darken``."""
        with self._watch.lock:
            self._watch.darken(source, dark)
            now = unix(self._watch.clock.now())
            self.write(Batch("sources", now, now))

    def write(self, batch: Batch) -> None:
        """One row of arrivals for one batch, now."""
        now = unix(self._watch.clock.now())
        row: dict[str, Any] = {"recv_ts": now, "source": batch.source, "start": batch.start, "end": batch.end}
        row["samples"] = sum(self._sample(series) for series in batch.series)
        lines = rows_of(batch.events, now)
        if lines is not None:
            self._logs.writelines(line(one) for one in lines)
            row["lines"] = len(lines)
        else:
            row["events"] = [asdict(event) | {"attrs": dict(event.attrs)} for event in batch.events]
        row["nodes"] = [asdict(facts) | {"flags": sorted(facts.flags)} for facts in batch.nodes]
        for name in FACTS:
            row[name] = [spoken(asdict(facts)) for facts in getattr(batch, name)]
        row["dropped"] = dict(batch.dropped)
        if self._watch.dark != self._dark:
            row["dark"] = self._dark = self._watch.dark
        self._arrivals.write(
            line({key: value for key, value in row.items() if value or key in ("start", "end", "dark")})
        )

    def close(self) -> None:
        """The end of the recording is now."""
        self._telemetry.write(b"# EOF\n")
        for file in (self._arrivals, self._telemetry, self._logs):
            file.close()
        self._describe(unix(self._watch.clock.now()))

    def _describe(self, end: float | None) -> None:
        ring = self._watch.ring
        said = {"version": VERSION, "cluster": self._watch.cluster, "interval_s": ring.interval_s}
        said |= {"lateness_s": ring.lateness_s}
        if end is None:
            self._start = unix(self._watch.clock.now())
        said |= {"start": self._start} | ({} if end is None else {"end": end})
        (self._folder / "bundle.json").write_bytes(orjson.dumps(said, option=orjson.OPT_INDENT_2))

    def _sample(self, series: Series) -> int:
        """Samples of one series, written."""
        name = name_of(self._watch.catalogue, series.metric)
        if not name or label_of(series.label.axis, labels_of(series.label)) != series.label:
            self.left_out += series.times.size
            return 0
        said = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels_of(series.label).items())
        pairs = zip(series.values.tolist(), series.times.tolist(), strict=True)
        self._telemetry.writelines(f"{name}{{{said}}} {_number(value)} {at!r}\n".encode() for value, at in pairs)
        return int(series.times.size)


def _number(value: float) -> str:
    return repr(value).replace("nan", "NaN").replace("inf", "Inf")


def spoken(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers that JSON has no word for, as the texts that are read as them again: a loss may be NaN."""
    return {
        key: repr(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in facts.items()
    }


def rows_of(events: Sequence[RawEvent], now: float) -> list[dict[str, Any]] | None:
    """Rows of log lines that become exactly these events again; None where they would not."""
    rows = [row for event in events for row in _lines_of(event, now)]
    if not rows:
        return []
    body = b"".join(line(row) for row in rows)
    again = logs_batch(read_rows(body, "application/jsonl", now), now, parse).events
    return rows if again == tuple(events) else None


def _lines_of(event: RawEvent, now: float) -> list[dict[str, Any]]:
    row: dict[str, Any] = {"ts": event.at, "recv_ts": now, "host": event.host, "source": event.attrs.get("source", "")}
    row |= ({"job": event.job} if event.job else {}) | ({"rank": r} if (r := event.attrs.get("rank")) else {})
    return [row | {"line": text} for text in event.text.split("\n")]
