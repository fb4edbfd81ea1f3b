"""Import of history: accounting, kernel logs, tables and bundles into the store, in portions, and never twice."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from sqlmodel import Session

from backend import pipeline
from backend.clock import unix, utc
from backend.facts import AttemptFacts, Batch, DeviceLabel, NodeFacts
from backend.ingest.base import SourceError
from backend.ingest.bundle.bundle import open_bundle
from backend.ingest.bundle.folder import BundleError, PartFile
from backend.ingest.bundle.reading import MAX_LINE_BYTES, BadRows, Progress, Reading, too_long
from backend.ingest.bundle.sacct import attempts_of, is_header
from backend.ingest.logs import LogRow, logs_batch
from backend.ingest.rows import Rows
from backend.ingest.topology import topology_batch
from backend.replay.boots import boots_in
from backend.replay.past_lines import Place, row_of
from backend.replay.past_tables import kind_of, read_table
from backend.store import cluster as cluster_rows
from backend.store import events, system
from backend.store.merging import OVER
from backend.watch import Watch
from detectors.kernel.lines import parse

#: Rows of one transaction: what a crash costs, and what is in memory.
PORTION = 2_000
#: Largest table, in bytes: some million sessions.
MOST_OF_TABLE = 256 * 1024**2
NOT_OVER = "attempts that are not over, which the scheduler tells of"
#: Cursors of files that were imported begin so.
CURSOR = "import:"

T = TypeVar("T")


@dataclass
class Told:
    """What was taken in by this run, and what was not. ``before``: bytes that an earlier run had done."""

    events: int = 0
    duplicates: int = 0
    attempts: int = 0
    nodes: int = 0
    outages: int = 0
    lines: int = 0
    before: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    bad: BadRows = field(default_factory=BadRows)


@dataclass(frozen=True, slots=True)
class Source:
    """One file, by what is in it: sacct, lines, topology or a table; times without a zone are of ``zone``."""

    kind: str
    file: PartFile
    zone: tzinfo


def sources_of(paths: Sequence[Path], zone: tzinfo) -> tuple[list[Source], Counter[str]]:
    """Every file behind the paths, and the parts of bundles that are not imported. Raises BundleError."""
    found: list[Source] = []
    left_out: Counter[str] = Counter()
    for path in paths:
        if path.is_dir():
            bundle = open_bundle(path)
            for part, files in sorted(bundle.parts.items()):
                kind = {"topology": "topology", "jobs": "sacct", "logs": "lines"}.get(part, "")
                found += [Source(kind, file, bundle.timezone) for file in files if kind]
                left_out[f"files of {part}"] += 0 if kind else len(files)
        else:
            found.append(Source(_kind(path), PartFile(str(path), path, _size(path)), zone))
    order = {"topology": 0, "nodes": 0, "fabric": 1, "lines": 3}
    return sorted(found, key=lambda source: order.get(source.kind, 2)), +left_out


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", path, "Check the path and its rights.") from error


def _kind(path: Path) -> str:
    with opened(path) as file:
        try:
            start = file.read(65_536).decode(errors="replace")
        except (OSError, EOFError, zlib.error) as error:
            raise BundleError(f"cannot be read: {error}", path, "Check the file.") from error
    first = start.partition("\n")[0].rstrip("\r")
    return "sacct" if is_header(first) else kind_of(start) or "lines"


def opened(path: Path) -> BinaryIO:
    """Raises BundleError."""
    try:
        return cast(BinaryIO, gzip.open(path)) if path.name.endswith(".gz") else path.open("rb")
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", path, "Check the path and its rights.") from error


class Past:
    """Imports files into the store of one watch; the watch lends its identities and judges nothing.

    host: whose lines are that name none; boot: when it booted (unix s), for lines that count from there. unfinished:
    attempts that are not over are taken too, as nobody else will tell of them.

    Each portion is one transaction that also moves the file's cursor: what is killed goes on behind the last one, and a
    file that has grown since goes on where it ended.
    """

    def __init__(
        self,
        watch: Watch,
        host: str = "",
        progress: Progress | None = None,
        *,
        boot: float | None = None,
        unfinished: bool = False,
    ) -> None:
        self.told = Told()
        self._boot = boot
        self._unfinished = unfinished
        self._watch = watch
        self._host = host
        self._progress = progress
        self._done, self._total = 0, 0

    def take(self, sources: Sequence[Source]) -> Told:
        """Raises BundleError for a file that cannot be read, StoreError; what ``progress`` raises passes through."""
        self._total = sum(source.file.size for source in sources)
        ways: dict[str, Callable[[Source, str, int], None]] = {
            "topology": self._topology,
            "sacct": self._sacct,
            "lines": self._lines,
        }
        tables = {source.kind for source in sources} - ways.keys()
        ways |= dict.fromkeys(tables, self._table)
        for source in sources:
            name = CURSOR + identity(source)
            with self._watch.store.read() as session:
                position = system.cursor(session, self._watch.cluster, name)
            if not source.file.name.endswith(".gz") and position > source.file.size:
                position = 0  # another file, that begins as the one before
            self.told.before += position
            ways[source.kind](source, name, position)
            self._done += source.file.size
            self._tell(0)
        return self.told

    def _tell(self, inside: int) -> None:
        if self._progress is not None:
            self._progress(self._done + inside, max(1, self._total))

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _topology(self, source: Source, name: str, position: int) -> None:
        """Nodes and GPUs that nobody knows yet: what the present says of them stands against the past."""
        if position >= source.file.size:
            return
        reading = Reading(0)
        try:
            batch, rejects = topology_batch(reading.whole(source.file), "application/json", 0.0)
        except SourceError as error:
            self.told.bad.add(source.file.name, 0, str(error))
            return
        for reject in rejects:
            self.told.bad.add(source.file.name, reject.row + 1, f"{reject.field}: {reject.problem}")
        nodes = tuple(facts for node in batch.nodes if (facts := self._unknown(node)) is not None)
        self.told.left_out["nodes that are known already"] += len(batch.nodes) - len(nodes)
        with self._watch.store.write() as session:
            self._absorb(session, replace(batch, nodes=nodes), name, source.file.size)
        self.told.nodes += len(nodes)

    def _unknown(self, node: NodeFacts) -> NodeFacts | None:
        inventory = self._watch.inventory
        if inventory.slot(DeviceLabel("node", node.name)) is not None:
            return None
        elsewhere = [gpu.uuid for gpu in node.gpus if gpu.uuid and inventory.slot(DeviceLabel("gpu", "", gpu.uuid))]
        return replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.uuid not in elsewhere))

    # --- tables -----------------------------------------------------------------------------------------------------

    def _table(self, source: Source, name: str, position: int) -> None:
        """A file that is read as a whole; killed half-way it is read anew, which tells nothing twice."""
        if position >= source.file.size:
            return
        with opened(source.file.path) as file:
            body = file.read(MOST_OF_TABLE + 1)
        if len(body) > MOST_OF_TABLE:
            self.told.bad.add(source.file.name, 0, f"is larger than {MOST_OF_TABLE} bytes: split it")
            return
        found = read_table(source.kind, body, source.file.name, source.zone, self.told.bad)
        for portion in portions(iter(found.attempts)):
            over = tuple(one for one in portion if self._unfinished or is_over(one) or one.state == "UNKNOWN")
            self.told.left_out[NOT_OVER] += len(portion) - len(over)
            self._take_attempts(over, name, 0)
        nodes = tuple(self._gaps(node) for node in found.nodes)
        now = unix(self._watch.clock.now())
        more = Batch("import", now, now, nodes=nodes, outages=tuple(found.outages), cables=tuple(found.cables))
        with self._watch.store.write() as session:
            self._absorb(session, more, name, source.file.size)
        self.told.nodes += len(nodes)
        self.told.outages += len(found.outages)

    def _gaps(self, node: NodeFacts) -> NodeFacts:
        """Of a node that is known only what nobody has said of it yet."""
        known = self._watch.inventory.place(node.name)
        if known is None:
            return self._unknown(node) or node
        return NodeFacts(
            node.name,
            rack="" if known.rack else node.rack,
            switch="" if known.switch else node.switch,
            clique="" if known.clique else node.clique,
            model="" if known.model else node.model,
            partitions=() if known.partitions else node.partitions,
        )

    # --- jobs -------------------------------------------------------------------------------------------------------

    def _sacct(self, source: Source, name: str, position: int) -> None:
        """Attempts that are over; the scheduler, where there is one, tells those that are not. The file is read from
        its beginning, as an attempt's number may depend on the rows before it."""
        reading = Reading(0)
        reading.bad = self.told.bad
        rows = attempts_of(source.file, source.zone, reading, self.told.left_out)
        ahead = ((offset + size + 1, attempt) for _, offset, size, attempt in rows if offset >= position)
        for portion in portions(ahead):
            over = tuple(attempt for _, attempt in portion if self._unfinished or is_over(attempt))
            self.told.left_out[NOT_OVER] += len(portion) - len(over)
            self._take_attempts(over, name, portion[-1][0])
            self._tell(portion[-1][0])

    def _take_attempts(self, over: tuple[AttemptFacts, ...], name: str, position: int) -> None:
        now = unix(self._watch.clock.now())
        with self._watch.store.write() as session:
            self._absorb(session, Batch("import", now, now, attempts=over), name, position)
        self.told.attempts += len(over)

    # --- lines ------------------------------------------------------------------------------------------------------

    def _lines(self, source: Source, name: str, position: int) -> None:
        place = Place(self._host, source.zone, unix(self._watch.clock.now()))
        boots = boots_in(lines_from(source.file.path, 0), self._boot)
        packed = source.file.name.endswith(".gz")
        for portion in portions(lines_from(source.file.path, position)):
            rows = []
            for number, ends, line in portion:
                row = self._row(source.file.name, number, line, replace(place, boot=boots.of(ends)))
                rows += [row] if row is not None else []
            self._take_lines(rows, name, portion[-1][1])
            self.told.lines += len(portion)
            self._tell(0 if packed else portion[-1][1])

    def _row(self, file: str, number: int, line: bytes | None, place: Place) -> LogRow | None:
        try:
            if line is None:
                raise ValueError(too_long())
            row = row_of(line.decode(errors="replace"), place) if line.strip() else None
        except ValueError as error:
            self.told.bad.add(file, number, str(error))
            return None
        self.told.left_out["lines of other programs"] += row is None and bool(line.strip())
        return row

    def _take_lines(self, rows: Sequence[LogRow], name: str, position: int) -> None:
        """Events marked as late: history opens nothing."""
        batch = logs_batch(Rows(tuple(rows)), unix(self._watch.clock.now()), parse)
        with self._watch.store.write() as session:
            self._absorb(session, replace(batch, source="import"), name, position)
            found = [pipeline.event_row(self._watch, raw, "import") for raw in batch.events]
            for row in found:
                row.late = True
            taken, duplicates = events.append_events(session, self._watch.cluster, found)
        self.told.events += taken
        self.told.duplicates += duplicates

    def _absorb(self, session: Session, batch: Batch, name: str, position: int) -> None:
        """What it names was heard of at the time of the rows, and not since."""
        now, cluster = self._watch.clock.now(), self._watch.cluster
        heard = [event.at for event in batch.events] + [attempt.end for attempt in batch.attempts if attempt.end]
        at = min(utc(max(heard)), now) if heard else now
        named = {e.host for e in batch.events} | {f.name for f in batch.nodes}
        named |= {node for attempt in batch.attempts for node in attempt.nodes}
        known = {row.name for row in cluster_rows.met(session, cluster, named)[0]}
        self._watch.inventory.absorb(session, batch, at)
        new = {row.name for row in cluster_rows.met(session, cluster, named)[0]} - known
        cluster_rows.mark_sounds(session, cluster, None, dict.fromkeys(new, at), ())
        system.set_cursor(session, cluster, name, position, now)


def is_over(attempt: AttemptFacts) -> bool:
    return attempt.state in OVER and attempt.end is not None


def identity(source: Source) -> str:
    """What a file is known by: where it lies and how it begins; a log that has grown is the same, a rotated one is not.
    Accounting is written anew each time, with the same beginning: all of it counts."""
    digest = hashlib.sha256(os.fsencode(source.file.path.resolve()))
    with opened(source.file.path) as file:
        digest.update(b"\0" + file.readline(4_096))
        while source.kind != "lines" and (block := file.read(1_048_576)):
            digest.update(block)
    return digest.hexdigest()[:40]


def lines_from(path: Path, position: int) -> Iterator[tuple[int, int, bytes | None]]:
    """(line from 1, counted from ``position``; where the next begins; line, None = too long) of a file, from a byte on.

    A last line without its end is read, and read again by the next run: it may grow. Raises BundleError.
    """
    with opened(path) as file:
        try:
            file.seek(position)
            for number in range(1, 2**62):
                line = file.readline(MAX_LINE_BYTES + 1)
                if not line:
                    return
                long = len(line) > MAX_LINE_BYTES
                while long and not line.endswith(b"\n") and (more := file.readline(MAX_LINE_BYTES)):
                    position += len(line)
                    line = more
                position += len(line) if line.endswith(b"\n") else 0
                yield number, position, None if long else line.rstrip(b"\r\n")
        except (OSError, EOFError, gzip.BadGzipFile) as error:
            raise BundleError(f"cannot be read: {error}", path, "Check the file and the disk.") from error


def portions(rows: Iterator[T]) -> Iterator[list[T]]:
    for first in rows:
        yield [first, *islice(rows, PORTION - 1)]
