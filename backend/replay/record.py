"""Records what a running watch takes in as a bundle: a replay of it does the same again, byte for byte."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson

from backend.clock import unix
from backend.facts import Batch, DeviceLabel, NodeFacts, RawEvent, Series
from backend.incidents.record import Delta
from backend.ingest.bundle.folder import ARRIVALS, VERSION
from backend.ingest.bundle.recorded import LOGS, PART, TELEMETRY, TURN, label_of, labels_of, name_of
from backend.ingest.logs import logs_batch, read_rows
from backend.replay.files import line
from backend.store import cluster as cluster_rows
from backend.watch import Watch
from detectors.kernel.lines import parse
from detectors.model import Tick

log = logging.getLogger("watchkeeper.record")

#: A recording of this size ends; at 1,000 GPUs x 20 metrics every 15 s it lasts some three hours.
MOST_BYTES = 2 * 1024**3

#: Facts that are written as they are.
FACTS = ("attempts", "versions", "outages", "maintenances", "steps", "checkpoints", "told", "cables")
#: Fields of which nothing is a word, too.
ALWAYS = ("start", "end", "dark", "listing")
#: The source of what was known when the recording began, where no list tells of it.
KNOWN = "known"
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Recorder:
    """Writes along what one watch takes in and when it judged, in that order, from when it is made until ``close``.

    ``folder`` must not hold a bundle yet; what the watch knows of nodes and jobs comes first. At ``most_bytes``, and
    where the disk takes no more, the recording ends and says so in ``ended``; the watch goes on. ``left_out`` counts
    samples that no file of a bundle can tell: they belong to no metric of the catalogue. Raises OSError where the
    folder cannot be written, or holds a recording.
    """

    def __init__(self, watch: Watch, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._watch = watch
        self._folder = folder
        self._most_bytes = most_bytes
        self.left_out = 0
        self.bytes = 0
        self.ended = ""
        for name in (ARRIVALS, TELEMETRY, LOGS):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        self._arrivals: BinaryIO = (folder / ARRIVALS).open("xb")
        self._telemetry: BinaryIO = (folder / TELEMETRY).open("xb")
        self._logs: BinaryIO = (folder / LOGS).open("xb")
        self._dark: tuple[str, ...] | None = None
        self._describe(None)
        self._before = watch.taken, watch.stepped
        with watch.lock:
            self._open()
            watch.taken, watch.stepped = self.take, self._stepped

    def _open(self) -> None:
        """Nodes and running jobs as the watch knows them now; a node by the word of each source that lists it, for only
        by that source's lists it will leave again."""
        with self._watch.store.read() as session:
            facts = {one.name: one for one in cluster_rows.node_facts(session, self._watch.cluster)}
            listed = {row.name: row.listed_by for row in cluster_rows.nodes(session, self._watch.cluster)}
            running = tuple(cluster_rows.running(session, self._watch.cluster))
        now = unix(self._watch.clock.now())
        told: defaultdict[str, list[NodeFacts]] = defaultdict(list)
        for name, one in facts.items():
            for source in listed[name] or [KNOWN]:
                told[source].append(one)
        for source in sorted(told):
            self.take(Batch(source, now, now, nodes=tuple(told[source])))
        if running:
            self.take(Batch(KNOWN, now, now, attempts=running))

    def _stepped(self, tick: Tick, delta: Delta) -> None:
        self._before[1](tick, delta)
        with self._watch.lock:
            now = unix(self._watch.clock.now())
            self.take(Batch(TURN, now, now))

    def take(self, batch: Batch) -> None:
        """One row of arrivals for one batch, now; on disk before the next. Whoever calls holds the watch's lock."""
        if self.ended:
            return
        try:
            self.bytes += self._write(batch)
            if self.bytes >= self._most_bytes:
                self._end(f"it has reached its limit of {self._most_bytes} bytes")
        except OSError as error:
            self._end(f"{self._folder} takes no more: {error.strerror or error}")

    def _end(self, why: str) -> None:
        self.ended = why
        log.warning("%s: the recording in %s ends: %s. The watch goes on.", self._watch.cluster, self._folder, why)
        self.close()

    def _write(self, batch: Batch) -> int:
        """Bytes written."""
        now = unix(self._watch.clock.now())
        row: dict[str, Any] = {"recv_ts": now, "source": batch.source, "start": batch.start, "end": batch.end}
        samples = [sample for series in series_of(batch) for sample in self._samples(series)]
        row["samples"] = len(samples)
        rows = rows_of(batch.events, now)
        lines = [line(one) for one in rows or ()]
        row["lines"] = len(lines)
        if rows is None:
            row["events"] = [asdict(event) | {"attrs": dict(event.attrs)} for event in batch.events]
        row["nodes"] = [asdict(facts) | {"flags": sorted(facts.flags)} for facts in batch.nodes]
        for name in FACTS:
            row[name] = [spoken(asdict(facts)) for facts in getattr(batch, name)]
        row["dropped"] = dict(batch.dropped)
        if batch.listing is not None:
            row["listing"] = batch.listing
        if self._watch.dark != self._dark:
            row["dark"] = self._dark = self._watch.dark
        said = line({key: value for key, value in row.items() if value or key in ALWAYS})
        for file, texts in ((self._telemetry, samples), (self._logs, lines), (self._arrivals, [said])):
            if texts:
                file.writelines(texts)
                file.flush()  # the arrivals last: they never tell of rows that are not there
        return sum(map(len, samples)) + sum(map(len, lines)) + len(said)

    def close(self) -> None:
        """The end of the recording is now. Raises nothing: what a full disk does not take is lost."""
        with self._watch.lock:
            if self._watch.taken == self.take:
                self._watch.taken, self._watch.stepped = self._before
            if self._arrivals.closed:
                return
            self.ended = self.ended or "it was closed"
            with suppress(OSError):
                self._telemetry.write(b"# EOF\n")
            for file in (self._arrivals, self._telemetry, self._logs):
                with suppress(OSError):
                    file.close()
            with suppress(OSError):
                self._describe(unix(self._watch.clock.now()))

    def _describe(self, end: float | None) -> None:
        ring = self._watch.ring
        said = {"version": VERSION, "cluster": self._watch.cluster, "interval_s": ring.interval_s}
        said |= {"lateness_s": ring.lateness_s}
        if end is None:
            self._start = unix(self._watch.clock.now())
        said |= {"start": self._start} | ({} if end is None else {"end": end})
        (self._folder / "bundle.json").write_bytes(orjson.dumps(said, option=orjson.OPT_INDENT_2))

    def _samples(self, series: Series) -> list[bytes]:
        """Lines of the samples of one series."""
        name = name_of(self._watch.catalogue, series.metric)
        if not name or label_of(series.label.axis, labels_of(series.label)) != series.label:
            self.left_out += series.times.size
            return []
        labels = labels_of(series.label) | ({PART: series.part} if series.part else {})
        said = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels.items())
        pairs = zip(series.values.tolist(), series.times.tolist(), strict=True)
        return [f"{name}{{{said}}} {_number(value)} {at!r}\n".encode() for value, at in pairs]


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


def series_of(batch: Batch) -> Iterator[Series]:
    """All samples of a batch series by series, also those that came by number."""
    yield from batch.series
    for metric, label, part, times, values in batch.columns.series() if batch.columns is not None else ():
        yield Series(metric, cast(DeviceLabel, label), times, values, part)
