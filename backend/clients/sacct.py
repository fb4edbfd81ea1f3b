"""Text of ``sacct -P -D``: any columns in any order, any delimiter, rows over several lines; each row an attempt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from itertools import combinations, islice

from backend.clients.hostlist import HostlistError
from backend.clients.sacct_times import Times, times_of
from backend.clients.slurm_gres import parse_gpus
from backend.clients.slurm_outputs import Writer, outputs_of
from backend.clients.slurm_states import HOLDING, JOB_BASES, WAITING
from backend.clients.slurm_values import RecordError, exit_of, names_of, span_of, text_of
from backend.clients.submit_line import options_of
from backend.facts import AttemptFacts

#: Columns that people fill with what they like, delimiters and line ends too; the likeliest first.
FREE_TEXT = (
    "SubmitLine", "JobName", "Comment", "AdminComment", "SystemComment", "WorkDir", "Extra", "Reason", "StdOut",
    "StdErr", "StdIn", "Container", "Constraints", "WCKey",
)  # fmt: skip
STATES = JOB_BASES | HOLDING | WAITING | {"LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED", "STAGE_OUT", "POWER_UP_NODE"}
STATES |= {"EXPEDITING", "UNKNOWN"}
#: Ways to read one row that has too many cells.
MOST_READINGS = 300
#: Most characters of one row, its lines together.
MOST_ROW = 1_048_576
_HEADER = re.compile(r"[A-Za-z]+([^A-Za-z0-9]+)[A-Za-z]")
_ID = re.compile(r"[0-9]+(?:[_+.\[][^|\x1f]*)?$")
_BY = re.compile(r"CANCELLED by (\S+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Columns:
    """What a header says: the names in order, what parts them, and the zone of times that name none.

    now: when sacct ran, where that is known (unix s): with it, elapsed time tells when a running job began.
    """

    names: tuple[str, ...]
    delimiter: str
    zone: tzinfo = UTC
    now: float | None = None

    @property
    def breaks(self) -> int:
        """Delimiters of a row."""
        return len(self.names) - 1

    @property
    def open_ended(self) -> bool:
        """The last column may go on over the next lines."""
        return self.names[-1] in FREE_TEXT

    def readings(self, text: str) -> Iterator[dict[str, str]]:
        """The row by column; where it has too many cells, what is too much belongs to one of the free texts."""
        cells = text.split(self.delimiter)
        more = len(cells) - len(self.names)
        if more <= 0:
            if not more:
                yield dict(zip(self.names, cells, strict=True))
            return
        for spread in islice(self._spreads(more), MOST_READINGS):
            whole: list[str] = []
            at = 0
            for name in self.names:
                end = at + 1 + spread.get(name, 0)
                whole.append(self.delimiter.join(cells[at:end]))
                at = end
            yield dict(zip(self.names, whole, strict=True))

    def _spreads(self, more: int) -> Iterator[dict[str, int]]:
        """Ways in which ``more`` delimiters may stand in free texts: all in one, then some in each of two."""
        free = [name for name in FREE_TEXT if name in self.names]
        yield from ({name: more} for name in free)
        for one, other in combinations(free, 2):
            yield from ({one: count, other: more - count} for count in range(1, more))


def header_of(line: str, zone: tzinfo = UTC) -> Columns | None:
    """The columns that a header line names; None for a line that is none. ``-p`` ends each line with a delimiter."""
    found = _HEADER.match(line)
    if found is None:
        return None
    delimiter = found[1]
    names = tuple(name.strip() for name in line.split(delimiter))
    if not {"JobID", "JobIDRaw"} & set(names) or "State" not in names or not all(n.isalnum() or not n for n in names):
        return None
    return Columns(names, delimiter, zone)


def rows_of(
    lines: Iterable[str], zone: tzinfo = UTC, columns: Columns | None = None
) -> Iterator[tuple[Columns, int, str]]:
    """(columns, line from 1, row) of every row of a text. Lines before a header are left out, unless ``columns`` are
    known.

    A row is whole when it has its delimiters; lines that lack some are taken together, unless the next one is whole by
    itself, or begins with a job id where that stands first. A header in the middle (files put one after the other)
    begins anew.
    """
    held, at = "", 0
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip("\r\n")
        fresh = header_of(line, zone)
        if columns is None or fresh is not None:
            if columns is not None and held:
                yield columns, at, held
            columns, held = fresh, ""
            continue
        if not line.strip() and not held:
            continue
        if held and _goes_on(columns, held, line):
            held = f"{held}\n{line}"
            continue
        if held:
            yield columns, at, held
        held, at = line, number
    if columns is not None and held.strip():
        yield columns, at, held


def _goes_on(columns: Columns, held: str, line: str) -> bool:
    """Whether ``line`` belongs to the row that ``held`` began."""
    if len(held) > MOST_ROW or line.count(columns.delimiter) >= columns.breaks:
        return False
    id_first = columns.names[0] in ("JobID", "JobIDRaw")
    begins = id_first and columns.delimiter in line and _ID.match(line.partition(columns.delimiter)[0]) is not None
    if begins:
        return False
    return id_first or held.count(columns.delimiter) < columns.breaks or columns.open_ended


def is_step(cells: Mapping[str, str]) -> bool:
    """Whether a row is a step of a job, such as 4711.batch, and no attempt."""
    return any("." in cells.get(name, "") for name in ("JobID", "JobIDRaw"))


def attempt_of_row(columns: Columns, text: str) -> AttemptFacts | None:
    """The attempt of one row; None for a step. ``restart`` is -1 where sacct does not number them.

    Raises RecordError that says why the row makes no sense.
    """
    problem: RecordError | None = None
    for cells in columns.readings(text):
        if is_step(cells):
            return None
        try:
            return _attempt(cells, columns)
        except RecordError as error:
            problem = problem or error
    have = text.count(columns.delimiter) + 1
    raise problem or RecordError(f"has {have} columns of {len(columns.names)}")


def _attempt(cells: Mapping[str, str], columns: Columns) -> AttemptFacts:
    job, array = _ids(cells)
    state = state_of(cells.get("State", ""))
    times = times_of(cells, columns.zone, columns.now)
    if not times.said and "Submit" in cells:
        raise RecordError("has no time that names its day: run sacct with SLURM_TIME_FORMAT=standard")
    nodes = _nodes(cells.get("NodeList", ""))
    options = options_of(cells.get("SubmitLine", ""))
    restarts = cells.get("Restarts", "").strip()
    waits = state in WAITING and times.end is None
    code, signal = exit_of(cells.get("ExitCode", "").strip()) if times.end is not None else (None, None)
    return AttemptFacts(
        job=job,
        restart=int(restarts) if restarts.isascii() and restarts.isdigit() else -1,
        run=_shown(cells.get("JobName", "")),
        user=text_of(cells.get("User")),
        state=state,
        submit=times.submit,
        eligible=times.eligible,
        start=None if waits else times.start,
        end=times.end,
        nodes=() if waits else nodes,
        gpus_per_node=_gpus(cells) // max(1, len(nodes)),
        excluded=excluded_by(options),
        unit=text_of(cells.get("SLUID")),
        name=_shown(cells.get("JobName", "")),
        array=array,
        partition=text_of(cells.get("Partition")),
        account=text_of(cells.get("Account")),
        exit_code=code,
        signal=signal,
        reason=_reason(cells),
        dependency=text_of(options.get("dependency")),
        limit_s=_limit(cells),
        outputs=_outputs(cells, job, array, nodes, options) if times.start is not None and not waits else (),
        source="sacct",
    )


def _ids(cells: Mapping[str, str]) -> tuple[str, str]:
    """(raw id, ``1200_7`` or ``1200+1`` where it is a part of something)."""
    shown, raw = cells.get("JobID", "").strip(), cells.get("JobIDRaw", "").strip()
    job = raw or shown
    if not job or _ID.match(job) is None or len(job) > 64:
        raise RecordError(f"job: {job[:40]!r} is no job id")
    return job, shown if "_" in shown or "+" in shown else ""


def state_of(text: str) -> str:
    """One of STATES: of ``CANCELLED by 1000``, ``COMPLETED``, or ``OUT_OF_ME+`` as narrow columns cut it."""
    word = (text.split() or [""])[0].upper()
    if word.endswith("+"):
        full = [state for state in STATES if state.startswith(word.rstrip("+"))]
        word = full[0] if len(full) == 1 else word.rstrip("+")
    if word not in STATES:
        raise RecordError(f"state: {text[:40]!r} is no job state of Slurm")
    return word


def _nodes(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names_of(text.strip())))


def _gpus(cells: Mapping[str, str]) -> int:
    for name in ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES"):
        if count := parse_gpus(cells.get(name, ""))[0]:
            return count
    return 0


def excluded_by(options: Mapping[str, str]) -> tuple[str, ...]:
    """Nodes that ``--exclude`` of a submit line names; none where it cannot be read (a file, a variable)."""
    try:
        return tuple(dict.fromkeys(names_of(options.get("exclude", "").strip("\"'"))))
    except (RecordError, HostlistError):
        return ()


def _limit(cells: Mapping[str, str]) -> float | None:
    minutes = cells.get("TimelimitRaw", "").strip()
    if minutes.isascii() and minutes.isdigit():
        return int(minutes) * 60.0
    return span_of(cells.get("Timelimit", ""))


def _reason(cells: Mapping[str, str]) -> str:
    """Why it waits or waited; for a job that somebody ended, who; for one whose node failed, which."""
    by, failed = _BY.match(cells.get("State", "").strip()), text_of(cells.get("FailedNode"))
    said = text_of(cells.get("Reason"))
    more = [f"cancelled by uid {by[1]}" if by else "", f"failed node {failed}" if failed else ""]
    return "; ".join(part for part in (said, *more) if part)


def _outputs(
    cells: Mapping[str, str], job: str, array: str, nodes: Sequence[str], options: Mapping[str, str]
) -> tuple[str, ...]:
    """Log files of a batch job; none where neither a column nor a submit line of sbatch tells them."""
    line = cells.get("SubmitLine", "").strip()
    out, error = text_of(cells.get("StdOut")), text_of(cells.get("StdErr"))
    if not out and not line.startswith("sbatch"):
        return ()
    whole, _, task = array.partition("_")
    writer = Writer(
        job,
        user=text_of(cells.get("User")),
        name=cells.get("JobName", ""),
        array=whole if task else "",
        task_id=task if task.isdigit() else "",
        node=nodes[0] if nodes else "",
    )
    folder = text_of(cells.get("WorkDir"))
    return outputs_of(writer, out or options.get("output", ""), error or options.get("error", ""), folder)


def _shown(text: str) -> str:
    """One printable line of a name that may hold anything."""
    return "".join(c if c.isprintable() else " " for c in text).strip()


__all__ = ["Columns", "Times", "attempt_of_row", "excluded_by", "header_of", "is_step", "rows_of", "state_of"]
