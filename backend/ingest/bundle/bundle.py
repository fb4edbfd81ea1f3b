"""A replay bundle as a stream of batches in the order of their arrival, in bounded memory."""

from __future__ import annotations

import heapq
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from types import TracebackType
from typing import Self

from backend.facts import Batch, NodeFacts
from backend.ingest.base import SourceError
from backend.ingest.bundle.folder import ARRIVALS, PARTS, BundleError, PartFile, described, found_parts, part_file
from backend.ingest.bundle.job_logs import JobLog, job_logs
from backend.ingest.bundle.reading import BLOCK_BYTES, BadRows, Progress, Reading
from backend.ingest.bundle.recorded import Recorded, look_at
from backend.ingest.bundle.rows import GATHER_S, RowReader, SortedRows, log_reader, read_json_rows
from backend.ingest.bundle.sacct import SortedJobs, read_jobs
from backend.ingest.bundle.spill import MAX_ROWS
from backend.ingest.bundle.telemetry import USUAL_INTERVAL_S, Telemetry, read_telemetry
from backend.ingest.bundle.training import READERS, SortedCheckpoints, SortedSteps
from backend.ingest.topology import topology_batch
from detectors.catalogue import Catalogue
from detectors.model import Need

#: A longer recording is a mistake in a clock.
MOST_DAYS = 400


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a bundle's folder says of itself. ``start`` and ``end`` are unix s, None = not said.

    parts: files by part; missing: parts without files, whose sources are dark; ignored: files that belong to no part;
    arrivals: the file that makes it a recording, None = it is none. interval_s, lateness_s: None = not said.
    """

    folder: Path
    cluster: str
    start: float | None
    end: float | None
    timezone: tzinfo
    parts: Mapping[str, tuple[PartFile, ...]]
    missing: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    arrivals: PartFile | None = None
    interval_s: float | None = None
    lateness_s: float | None = None

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(file.size for files in self.parts.values() for file in files)

    def prepare(
        self,
        work: Path,
        catalogue: Catalogue,
        needs: Set[Need] | None = None,
        progress: Progress | None = None,
        *,
        readers: Sequence[RowReader] | None = None,
        max_rows: int = MAX_ROWS,
        block_bytes: int = BLOCK_BYTES,
    ) -> Prepared:
        """Read everything once, and sort it into a new folder inside ``work``, 20 bytes a sample.

        needs: what detectors ask for, None = the whole catalogue; readers: parts of JSON rows that are understood,
        None = the logs; max_rows: rows of a part in memory at once. What ``progress`` raises stops the reading, and
        passes through. Raises BundleError. On the way out, by whatever way, the folder is gone.
        """
        try:
            work.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="bundle-", dir=work))
        except OSError as error:
            fix = "Choose another folder to work in."
            raise BundleError(f"cannot be written: {error.strerror}", work, fix) from error
        with ExitStack() as unfinished:
            unfinished.callback(shutil.rmtree, folder, ignore_errors=True)
            reading = Reading(self.size, progress, block_bytes)
            prepared = self._prepared(reading, folder, catalogue, needs, readers or (log_reader(),), max_rows)
            _within_reason(prepared)
            unfinished.pop_all()
        return prepared

    def _prepared(
        self,
        reading: Reading,
        work: Path,
        catalogue: Catalogue,
        needs: Set[Need] | None,
        readers: Sequence[RowReader],
        max_rows: int,
    ) -> Prepared:
        if self.arrivals is not None:
            files = {file.name: file for some in self.parts.values() for file in some}
            recorded = look_at(self.arrivals, files, catalogue, reading)
            return Prepared(self, work, reading.bad, (), None, (), None, recorded=recorded)
        parts, by_part = self.parts, {reader.part: reader for reader in readers}
        topology = _topology(parts["topology"][0], reading) if "topology" in parts else ()
        jobs = read_jobs(parts["jobs"], self.timezone, reading, work, max_rows) if "jobs" in parts else None
        rows = tuple(
            read_json_rows(reader, parts[part], reading, work, max_rows)
            for part, reader in sorted(by_part.items())
            if part in parts
        )
        telemetry = None
        if "telemetry" in parts:
            telemetry = read_telemetry(parts["telemetry"], reading, work, catalogue, needs, max_rows)
        ours = [part for part in READERS if part in parts and part not in by_part]
        training = tuple(READERS[part](parts[part], reading, work, max_rows) for part in ours)
        logs = job_logs(parts.get("job_logs", ()))
        return Prepared(self, work, reading.bad, topology, jobs, rows, telemetry, training, logs)


def _within_reason(prepared: Prepared) -> None:
    """Raises BundleError for a bundle that no telemetry was kept so long for: every tick of it would be judged."""
    days = (prepared.end - prepared.begin) / 86_400
    if days > MOST_DAYS:
        first, last = (datetime.fromtimestamp(at, UTC).date() for at in (prepared.begin, prepared.end))
        fix = f"A row with a wrong clock is the usual reason: correct it. More than {MOST_DAYS} days go in parts."
        raise BundleError(f"its rows reach from {first} to {last}, {days:,.0f} days", prepared.bundle.folder, fix)


def open_bundle(folder: Path) -> Bundle:
    """Look at a bundle; its rows are not read yet. Raises BundleError for what is no bundle, or a bad bundle.json."""
    parts, ignored = found_parts(folder)
    said, zone = described(folder)
    missing = tuple(part for part in PARTS if part not in parts)
    arrivals = part_file(folder, folder / ARRIVALS) if (folder / ARRIVALS).is_file() else None
    return Bundle(
        folder,
        said.cluster or "main",
        said.start,
        said.end,
        zone,
        parts,
        missing,
        ignored,
        arrivals,
        said.interval_s,
        said.lateness_s,
    )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A bundle read and sorted; close it, or use ``with``, to free the disk.

    bad: rows that were left out. training: steps, checkpoints, or both. job_logs: what jobs printed, not yet looked at.
    """

    bundle: Bundle
    work: Path
    bad: BadRows
    topology: tuple[NodeFacts, ...]
    jobs: SortedJobs | None
    rows: tuple[SortedRows, ...]
    telemetry: Telemetry | None
    training: tuple[SortedSteps | SortedCheckpoints, ...] = ()
    job_logs: tuple[JobLog, ...] = ()
    recorded: Recorded | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Delete what was sorted; batches can no longer be read."""
        shutil.rmtree(self.work, ignore_errors=True)

    @property
    def interval_s(self) -> float:
        """Distance of ticks: what the bundle says, else the median scrape gap, at least 1 s; that of the settings
        without telemetry."""
        if self.bundle.interval_s is not None:
            return self.bundle.interval_s
        return self.telemetry.interval_s if self.telemetry else USUAL_INTERVAL_S

    @property
    def samples(self) -> int:
        """Samples that were kept."""
        return self.telemetry.rows.size if self.telemetry else 0

    @property
    def left_out(self) -> Counter[str]:
        """What was let lie though it could be read, by reason."""
        counted: Counter[str] = Counter()
        for part in (self.telemetry, self.jobs, self.recorded):
            if part is not None:
                counted += part.left_out
        return counted

    @property
    def dark(self) -> tuple[str, ...]:
        """Parts that tell nothing: missing, or without a single row that can be read. A recording says itself what
        was dark."""
        if self.recorded is not None:
            return ()
        told = {
            "topology": len(self.topology),
            "telemetry": self.samples,
            "jobs": self.jobs.rows.size if self.jobs else 0,
        }
        told |= {rows.reader.part: rows.rows.size for rows in self.rows}
        told |= {rows.part: rows.rows.size for rows in self.training}
        told["job_logs"] = sum(log.file.size for log in self.job_logs)
        return tuple(part for part in PARTS if not told.get(part))

    @property
    def begin(self) -> float:
        """When the replay begins (unix s): the bundle's start, or the first sample or line if that is earlier. Jobs and
        topology from before are told then, as a watch that starts reads them. 0.0 for a bundle without any time."""
        firsts = [self.bundle.start, *(rows.rows.first for rows in self.rows)]
        firsts += [rows.rows.first for rows in self.training]
        firsts.append(self.telemetry.rows.first if self.telemetry else None)
        firsts.append(self.recorded.first if self.recorded else None)
        known = [at for at in firsts if at is not None]
        jobs = self.jobs.rows.first if self.jobs else None
        return min(known) if known else jobs or 0.0

    @property
    def end(self) -> float:
        """When the last row has arrived, or the bundle's end if that is later (unix s)."""
        lasts = [self.bundle.end, self.begin, *(rows.rows.last for rows in self.rows)]
        lasts += [part.rows.last for part in (self.telemetry, self.jobs, *self.training) if part is not None]
        lasts.append(self.recorded.last if self.recorded else None)
        return max(at for at in lasts if at is not None)

    def batches(self, *, round_s: float = 0.0, gather_s: float = GATHER_S) -> Iterator[tuple[float, Batch]]:
        """(arrival in unix s, Batch) in order of arrival, at equal times by file name; the same each time it is called.

        round_s: telemetry, steps and checkpoints of so many seconds in one batch (the ticks' distance gives what a
        pulling source brings), 0 = each instant by itself. gather_s: so with lines whose arrival was not recorded.
        Raises BundleError where the bundle or the sorted files change meanwhile.
        """
        if self.recorded is not None:
            return self.recorded.batches()
        begin = self.begin
        streams: list[Iterable[tuple[float, Batch]]] = []
        if self.topology:
            streams.append([(begin, Batch("topology", begin, begin, nodes=self.topology))])
        streams += [rows.batches(round_s) for rows in self.training if rows.part < "jobs"]
        if self.jobs is not None:
            streams.append(self.jobs.batches(begin))
        streams += [rows.batches(gather_s) for rows in self.rows if rows.reader.part < "telemetry"]
        if self.telemetry is not None:
            streams.append(self.telemetry.shaded(begin, self.end, self.dark, round_s))
        streams += [rows.batches(gather_s) for rows in self.rows if rows.reader.part > "telemetry"]
        streams += [rows.batches(round_s) for rows in self.training if rows.part > "jobs"]
        return heapq.merge(*streams, key=lambda arrived: arrived[0])


def _topology(file: PartFile, reading: Reading) -> tuple[NodeFacts, ...]:
    """The nodes of topology.json; those that cannot be read are listed, by their place in it from 1."""
    try:
        batch, rejects = topology_batch(reading.whole(file), "application/json", 0.0)
    except SourceError as error:
        reading.bad.add(file.name, 0, str(error))
        return ()
    for reject in rejects:
        reading.bad.add(file.name, reject.row + 1, f"{reject.field}: {reject.problem}")
    return batch.nodes
