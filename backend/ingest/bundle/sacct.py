"""``sacct -P -D`` text: every row becomes what was known of the attempt when it was submitted, began and ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from pydantic import ValidationError

from backend.clients.hostlist import MAX_NAME, HostlistError, expand
from backend.clients.slurm_records import HOLDING, WAITING, parse_gpus
from backend.clients.submit_line import options_of
from backend.facts import AttemptFacts, Batch
from backend.ingest.bundle.folder import PartFile
from backend.ingest.bundle.reading import Reading, Shelf
from backend.ingest.bundle.spill import MAX_ROWS, Sorted, Spill
from backend.ingest.jobs import JobRow, attempt_of
from backend.ingest.rows import is_host, problem_of

#: Columns in which people write what they like, "|" too; the likeliest first.
FREE_TEXT = ("SubmitLine", "JobName", "Comment", "AdminComment", "SystemComment", "WorkDir", "Extra", "Reason")
#: Times at which sacct says that there is none.
_NEVER = frozenset({"", "Unknown", "None", "N/A", "(null)", "NONE"})
_NO_NODES = frozenset({"", "None assigned", "None", "(null)", "N/A", "Unknown"})
_JOB = re.compile(r"[0-9][^|\s]*\|")
#: How comments of submit filters and retry scripts name nodes that were left out: a word, "=" or ":", a hostlist.
_EXCLUDE = re.compile(
    r"(?:^|[\s;,{(])[\"']?(?:(?:--exclude|-x)[=\s]|(?:excluded?(?:_?nodes?)?|exc_?node_?list)[\"']?\s*[=:])\s*[\"']?"
    r"((?:[^\s\"';\[\]})]|\[[^\]]*\])+)",
    re.IGNORECASE,
)
#: Columns that may name excluded nodes besides the submit line.
COMMENTS = ("Comment", "AdminComment", "SystemComment", "Extra")
_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
#: What of a pattern of output files (man sbatch, FILENAME PATTERN) accounting can tell.
_PATTERN = re.compile(r"%(?:\d*)([A-Za-z%])")
#: What is known at each stage of an attempt; the order in which they come.
SUBMITTED, STARTED, ENDED = range(3)
#: offset, size, restart, stage.
_COLUMNS = (np.int64, np.int32, np.int32, np.int8)
#: Most of one row, its lines together.
MAX_ROW_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class Table:
    """How one sacct file is read: its columns, and the zone of times that name none."""

    columns: tuple[str, ...]
    zone: tzinfo

    def attempt(self, text: str) -> AttemptFacts:
        """The attempt of one row. Raises ValueError that says why not."""
        problem: ValueError | None = None
        for cells in self._readings(text):
            try:
                document = self._document(cells)
                named = tuple(document.pop("outputs"))
                return replace(attempt_of(JobRow.model_validate(document)), outputs=named)
            except ValidationError as error:
                name, what = problem_of(error)
                problem = problem or ValueError(f"{name}: {what}")
            except ValueError as error:
                problem = problem or error
        raise problem or ValueError(f"has {text.count('|') + 1} columns of {len(self.columns)}")

    def is_step(self, text: str) -> bool:
        """Whether the row is a step of a job, such as 4711.batch, and no attempt."""
        at = self.columns.index("JobID" if "JobID" in self.columns else "JobIDRaw")
        cells = text.split("|", at + 1)
        return len(cells) > at and "." in cells[at]

    def _readings(self, text: str) -> Iterator[dict[str, str]]:
        """The row by column; where it has too many, what is too much belongs to one of the free texts."""
        cells = text.split("|")
        more = len(cells) - len(self.columns)
        if not more:
            yield dict(zip(self.columns, cells, strict=True))
        for name in FREE_TEXT if more > 0 else ():
            if name in self.columns:
                at = self.columns.index(name)
                whole = [*cells[:at], "|".join(cells[at : at + more + 1]), *cells[at + more + 1 :]]
                yield dict(zip(self.columns, whole, strict=True))

    def _document(self, cells: Mapping[str, str]) -> dict[str, Any]:
        """The row as the ingest route takes it."""
        said = cells.get("NodeList", "").strip()
        nodes = [] if said in _NO_NODES else expand(said)
        restarts = cells.get("Restarts", "").strip()
        options = options_of(cells.get("SubmitLine", ""))
        document = {
            "job": (cells.get("JobIDRaw") or cells.get("JobID", "")).strip(),
            "restart": int(restarts) if restarts.isascii() and restarts.isdigit() else 0,
            "run": cells.get("JobName", "").strip(),
            "user": cells.get("User", "").strip(),
            "state": cells["State"],
            "nodes": nodes,
            "gpus_per_node": _gpus(cells) // max(1, len(nodes)),
            "excluded": excluded(cells, options),
            **{name.lower(): moment(cells.get(name, ""), self.zone) for name in ("Submit", "Eligible", "Start", "End")},
        }
        return document | more_of(cells, options)


def _gpus(cells: Mapping[str, str]) -> int:
    return next((count for name in ("AllocTRES", "ReqTRES") if (count := parse_gpus(cells.get(name, ""))[0])), 0)


def moment(text: str, zone: tzinfo) -> float | None:
    """Unix s of a time of sacct: unix digits, or ISO 8601, in ``zone`` where it has no offset. Raises ValueError."""
    text = text.strip()
    if text in _NEVER:
        return None
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no time: run sacct with SLURM_TIME_FORMAT=standard") from None
    return (at if at.tzinfo else at.replace(tzinfo=zone)).timestamp()


def excluded(cells: Mapping[str, str], options: Mapping[str, str]) -> list[str]:
    """Nodes that the submit line or a comment names as left out; none where that cannot be read."""
    said = [options.get("exclude", ""), cells.get("ExcNodeList", "")]
    words = [match[1] for name in COMMENTS for match in _EXCLUDE.finditer(cells.get(name, ""))]
    said += [word for word in words if any(c.isdigit() for c in word)]  # a sentence is no list of nodes
    return list(dict.fromkeys(name for text in said for name in _hosts(text)))


def _hosts(text: str) -> list[str]:
    try:
        names = expand(text.strip(",")) if text not in _NO_NODES else []
    except HostlistError:
        return []
    return names if all(is_host(name) for name in names) else []


def more_of(cells: Mapping[str, str], options: Mapping[str, str]) -> dict[str, Any]:
    """What else accounting says of an attempt. A cell that cannot be read costs itself, never the row."""
    code, signal = _exit(cells.get("ExitCode", ""))
    job = cells.get("JobID", "").strip()
    return {
        "unit": _short(cells.get("SLUID", "")),
        "array": job if re.fullmatch(r"\d+_\d+", job) else "",
        "partition": _short(cells.get("Partition", "")),
        "account": _short(cells.get("Account", "")),
        "exit_code": code,
        "signal": signal,
        "reason": _said(cells.get("Reason", "")),
        "dependency": _said(cells.get("Dependency", "")) or options.get("dependency", ""),
        "limit_s": _limit_s(cells),
        "outputs": outputs(cells, options),
        "source": "sacct",
    }


def _said(text: str) -> str:
    return "" if text.strip() in _NEVER else text.strip()


def _short(text: str) -> str:
    """A name as the ingest route takes it; "" for what is none."""
    text = _said(text)
    return text if text.isprintable() and len(text) <= MAX_NAME else ""


def _exit(text: str) -> tuple[int | None, int | None]:
    """(exit code, signal) of sacct's ``1:0``; None for what is not said."""
    code, _, signal = text.strip().partition(":")
    told = tuple(int(one) if one.isascii() and one.isdigit() and len(one) < 4 else None for one in (code, signal))
    return told[0], told[1] if told[1] is None or told[1] < 128 else None


def _limit_s(cells: Mapping[str, str]) -> float | None:
    """The time limit: minutes of TimelimitRaw, or ``7-00:00:00``. None where there is none."""
    minutes = cells.get("TimelimitRaw", "").strip()
    if minutes.isascii() and minutes.isdigit() and len(minutes) < 12:
        return 60.0 * int(minutes)
    match = _LIMIT.fullmatch(cells.get("Timelimit", "").strip())
    days, hours, mins, secs = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    return float(((days * 24 + hours) * 60 + mins) * 60 + secs) if match else None


def outputs(cells: Mapping[str, str], options: Mapping[str, str]) -> list[str]:
    """Where the job's own lines went: StdOut and StdErr, else ``--output`` and ``--error``, names filled in. A pattern
    that accounting cannot fill in (a rank, a node) is left out."""
    job = cells.get("JobID", "").strip()
    array, _, task = job.partition("_")
    known = {"j": cells.get("JobIDRaw", "").strip() or job, "A": array, "a": task, "x": cells.get("JobName", "")}
    known |= {"u": cells.get("User", ""), "%": "%"}
    found: list[str] = []
    for column, option in (("StdOut", "output"), ("StdErr", "error")):
        text = _said(cells.get(column, "")) or options.get(option, "")
        codes = set(_PATTERN.findall(text))
        if text and all(known.get(code) for code in codes):
            text = _PATTERN.sub(lambda match: known[match[1]], text)
            found.append(text if text.startswith("/") else str(PurePosixPath(_said(cells.get("WorkDir", "")), text)))
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class SortedJobs:
    """Stages of attempts by the time when they became known, ties by line. ``left_out`` counts lines, by reason."""

    table: Table
    files: tuple[PartFile, ...]
    rows: Sorted
    left_out: Counter[str]

    def batches(self, begin: float) -> Iterator[tuple[float, Batch]]:
        """(arrival, Batch), the stages of one instant together; all from before ``begin`` come then, each attempt
        once, as it stood."""
        with Shelf(self.files) as shelf:
            for arrival, group in groupby(self.rows.each(), key=lambda row: max(row[0], begin)):
                newest: dict[tuple[str, int], AttemptFacts] = {}
                for _, offset, size, restart, stage in group:
                    text = shelf.read(0, offset, size).decode(errors="replace").rstrip("\r")
                    known = as_of(replace(self.table.attempt(text), restart=restart), stage)
                    newest[known.job, restart] = known
                yield arrival, Batch("jobs", arrival, arrival, attempts=tuple(newest.values()))


def as_of(attempt: AttemptFacts, stage: int) -> AttemptFacts:
    """What was known of an attempt at a stage: nothing of its future."""
    if stage == ENDED:
        return attempt
    if stage == STARTED:
        return replace(attempt, state="RUNNING", end=None)
    known = attempt.eligible is not None and attempt.eligible <= (attempt.submit or attempt.eligible)
    eligible = attempt.eligible if known else None
    return replace(attempt, state="PENDING", eligible=eligible, start=None, end=None, nodes=())


def stages(attempt: AttemptFacts) -> list[tuple[float, int]]:
    """(unix s, stage) of an attempt, times not falling. Raises ValueError where its times make no sense."""
    over = attempt.state not in HOLDING | WAITING or (attempt.state in WAITING and attempt.state != "PENDING")
    start = attempt.start if attempt.state != "PENDING" else None
    end = attempt.end if over else None
    if over and end is None and attempt.state not in WAITING:
        raise ValueError(f"end: a job that is {attempt.state} has one")
    if attempt.state in HOLDING and start is None:
        raise ValueError(f"start: a job that is {attempt.state} has one")
    submit = min((at for at in (attempt.submit, start, end) if at is not None), default=None)
    found = [(at, stage) for stage, at in enumerate((submit, start, end)) if at is not None]
    if not found:
        raise ValueError("has no time at all")
    return found


def read_jobs(
    files: tuple[PartFile, ...], zone: tzinfo, reading: Reading, work: Path, max_rows: int = MAX_ROWS
) -> SortedJobs:
    """One pass over the file: every row checked, its stages sorted by time. Raises BundleError."""
    spill = Spill(work, "jobs", _COLUMNS, max_rows)
    left_out: Counter[str] = Counter()
    table = Table((), zone)
    for known, offset, size, attempt in attempts_of(files[0], zone, reading, left_out):
        table = known
        spill.add_rows([(at, offset, size, attempt.restart, stage) for at, stage in stages(attempt)])
    return SortedJobs(table, files, spill.finish(), left_out)


def attempts_of(
    file: PartFile, zone: tzinfo, reading: Reading, left_out: Counter[str]
) -> Iterator[tuple[Table, int, int, AttemptFacts]]:
    """(table, offset, size, attempt) of each row that makes sense, in the order of the file; the others are listed.
    Raises BundleError."""
    restarts = _Restarts()
    table = Table((), zone)
    for line, offset, size, text in _rows(file, reading, left_out):
        if not table.columns:
            table = Table(tuple(text.split("|")), zone)
            if not is_header(text):
                reading.bad.add(file.name, line, "is no header with JobID and State: write it with sacct -P -D")
                break
            continue
        if table.is_step(text):
            left_out["job steps"] += 1
            continue
        try:
            attempt = table.attempt(text)
            stages(attempt)
        except ValueError as error:
            reading.bad.add(file.name, line, str(error))
            continue
        restart = restarts.number(attempt, told="Restarts" in table.columns)
        yield table, offset, size, replace(attempt, restart=restart)


def is_header(text: str) -> bool:
    """Whether a line names the columns of attempts."""
    columns = set(text.split("|"))
    return bool({"JobID", "JobIDRaw"} & columns) and "State" in columns


class _Restarts:
    """Which attempt of its job a row is, where sacct does not number them: the rows of a job stand in order."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, float | None, float | None]] = {}

    def number(self, attempt: AttemptFacts, *, told: bool) -> int:
        """``told``: the row numbers it itself. A row with the submit and start of the last one is the same attempt,
        told again."""
        number, submit, start = self._last.get(attempt.job, (attempt.restart, attempt.submit, None))
        same = attempt.submit == submit and (start is None or attempt.start in (None, start))
        if told and attempt.restart != number:
            number, start = attempt.restart, None
        elif not same:
            number, start = number + 1, None
        self._last[attempt.job] = (number, attempt.submit, attempt.start or start)
        return number


def _rows(file: PartFile, reading: Reading, left_out: Counter[str]) -> Iterator[tuple[int, int, int, str]]:
    """(line from 1, offset, size, text) of each row. A submit line may go on over several lines."""
    width, open_ended, id_first = -1, False, False
    held: tuple[int, int, int, str] | None = None
    for line, offset, raw in reading.lines(file):
        text = raw.decode(errors="replace").rstrip("\r")
        if not text.strip():
            continue
        whole = text.count("|") >= width or (id_first and _JOB.match(text) is not None)
        if held is not None and not whole and open_ended and held[2] < MAX_ROW_BYTES:
            left_out["lines that go on with the row before"] += 1
            held = (held[0], held[1], offset + len(raw) - held[1], f"{held[3]}\n{text}")
            continue
        if held is not None:
            yield held
        held = (line, offset, len(raw), text)
        if width < 0:
            width, open_ended, id_first = (
                text.count("|"),
                text.rpartition("|")[2] in FREE_TEXT,
                text.startswith("JobID"),
            )
            yield held
            held = None
    if held is not None:
        yield held
