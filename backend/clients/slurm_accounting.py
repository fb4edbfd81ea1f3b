"""Slurm's accounting by its commands: attempts of jobs (sacct) and outages of nodes (sacctmgr), each version's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from backend.clients.sacct import Columns, attempt_of_row, rows_of
from backend.clients.slurm import SlurmCli, SlurmError
from backend.clients.slurm_values import RecordError, text_of, time_of
from backend.facts import AttemptFacts, OutageFacts

#: What is asked for, of what this version has. The first tells where a row begins; the last holds no free text.
WANTED = (
    "JobIDRaw", "JobID", "JobName", "User", "Account", "Partition", "State", "ExitCode", "Reason", "FailedNode",
    "Restarts", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "Suspended", "TimelimitRaw", "NodeList",
    "AllocTRES", "ReqTRES", "SLUID", "Comment", "WorkDir", "StdOut", "StdErr", "SubmitLine", "DBIndex", "NNodes",
)  # fmt: skip
#: Parts the cells: no name, path or comment holds the unit separator.
DELIMITER = "\x1f"
#: Jobs of one command that asks for some by their numbers.
MANY_JOBS = 200
#: A part of a resized job begins where the part before it ended; both are rounded to seconds.
SAME_S = 2.0
#: Words of a cluster that keeps no accounting: a choice, not a fault.
_NONE_KEPT = re.compile(r"accounting storage is disabled|not running a database|sacct is not installed", re.IGNORECASE)
_EVENTS = "Cluster,NodeName,Start,End,State,User,Reason"
_EVENT = re.compile(r"[^|\n]*\|[^|\n]*\|(?:\d+|Unknown|None|\d{4}-[^|\n]*)\|[^|\n]*\|")


@dataclass(frozen=True, slots=True)
class Told:
    """What one question brought: attempts by job and time, and why rows were not taken, each told once."""

    attempts: tuple[AttemptFacts, ...]
    unread: tuple[str, ...] = ()


class Accounting:
    """Reads what slurmdbd keeps. Every method raises SlurmError; ``kept`` says whether there is anything to read.

    zone: of times that name none, where a wrapper of the site prints them; we ask for unix seconds.
    """

    def __init__(self, cli: SlurmCli, timeout_s: float = 60.0, zone: tzinfo = UTC) -> None:
        self._cli = cli
        self._zone = zone
        self._timeout_s = timeout_s
        self._fields: tuple[str, ...] = ()

    def kept(self) -> bool:
        """False where this cluster keeps no accounting, or these commands are not here."""
        try:
            self.fields()
            self._cli.ask("sacctmgr", "-n", "-P", "show", "cluster", "format=Cluster", timeout_s=self._timeout_s)
        except SlurmError as error:
            if _NONE_KEPT.search(str(error)) or "not installed" in str(error):
                return False
            raise
        return True

    def fields(self) -> tuple[str, ...]:
        """Of WANTED, what this version's sacct knows; asked once."""
        if not self._fields:
            known = set(self._cli.ask("sacct", "--helpformat", timeout_s=self._timeout_s).split())
            if not {"JobIDRaw", "State", "Submit"} <= known:
                raise SlurmError("sacct --helpformat names no JobIDRaw, State and Submit", permanent=True)
            self._fields = tuple(name for name in WANTED if name in known)
        return self._fields

    def attempts(self, start: float, end: float) -> Told:
        """Every attempt that was in any state between two unix times, as the accounting knows it now.

        Asked twice: without a state sacct leaves out jobs that were cancelled before they could ever begin (held, or
        waiting for a time), as they were never eligible (seen of 22.05 and 24.11).
        """
        span = ("-S", _iso(start), "-E", _iso(end))
        return both(self._read(*span), self._read(*span, "-s", "CANCELLED"))

    def of_jobs(self, jobs: Sequence[str]) -> Told:
        """Every attempt of these jobs (raw ids), whenever it was."""
        found: list[Told] = []
        for at in range(0, len(jobs), MANY_JOBS):
            found.append(self._read("-S", _iso(0), "-j", ",".join(jobs[at : at + MANY_JOBS])))
        return Told(tuple(a for one in found for a in one.attempts), tuple(u for one in found for u in one.unread))

    def outages(self, start: float, end: float) -> list[OutageFacts]:
        """Spans in which nodes were out, of those that were so between two unix times."""
        text = self._cli.ask(
            "sacctmgr", "-n", "-P", "show", "event", "Event=Node", f"Start={_iso(start)}", f"End={_iso(end)}",
            f"format={_EVENTS}", timeout_s=self._timeout_s,
        )  # fmt: skip
        return parse_events(text)

    def _read(self, *which: str) -> Told:
        names, now = self.fields(), self._cli.now()
        text = self._cli.ask(
            "sacct", "-D", "-a", "-X", "-P", "-n", "--noconvert", f"--delimiter={DELIMITER}",
            "-o", ",".join(names), *which, timeout_s=self._timeout_s,
        )  # fmt: skip
        return parse_rows(text, Columns(names, DELIMITER, self._zone, now))


def both(one: Told, other: Told) -> Told:
    """Two answers as one; what stands in both counts once."""
    known = {(a.job, a.submit) for a in one.attempts}
    more = tuple(a for a in other.attempts if (a.job, a.submit) not in known)
    return Told((*one.attempts, *more), tuple(dict.fromkeys((*one.unread, *other.unread))))


def _iso(at: float) -> str:
    """A time as sacct and sacctmgr read it; our commands run in UTC."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%S")


def parse_rows(text: str, columns: Columns) -> Told:
    """Attempts of sacct's text without a header; rows that make no sense are told and left out."""
    attempts: list[AttemptFacts] = []
    unread: list[str] = []
    for _, _, row in rows_of(text.split("\n"), columns.zone, columns):
        try:
            attempt = attempt_of_row(columns, row)
        except RecordError as error:
            unread.append(f"{row.partition(columns.delimiter)[0][:40]}: {error}")
            continue
        if attempt is not None:
            attempts.append(attempt)
    return Told(tuple(joined(attempts)), tuple(unread))


def joined(attempts: Iterable[AttemptFacts]) -> list[AttemptFacts]:
    """Attempts by job and time, the parts of a resized one as one: its first start, its last nodes."""
    found: list[AttemptFacts] = []
    for one in sorted(attempts, key=lambda a: (a.job, a.submit or a.start or 0.0, a.start or 0.0)):
        last = found[-1] if found else None
        if last is not None and _resized(last, one):
            found[-1] = replace(one, submit=last.submit, eligible=last.eligible, start=last.start)
        else:
            found.append(one)
    return found


def _resized(last: AttemptFacts, one: AttemptFacts) -> bool:
    ended = last.job == one.job and last.state == "RESIZING" and last.end is not None
    return ended and one.submit is not None and abs(one.submit - (last.end or 0.0)) <= SAME_S


def parse_events(text: str) -> list[OutageFacts]:
    """Outages of nodes of ``sacctmgr -P show event`` with the columns of _EVENTS, with its header or without.

    The reason stands last: it may hold ``|`` and line ends.
    """
    whole: list[str] = []
    for line in text.split("\n"):
        if _EVENT.match(line) or not whole:
            whole.append(line)
        elif line:
            whole[-1] = f"{whole[-1]}\n{line}"
    found: list[OutageFacts] = []
    for row in whole:
        cells = row.split("|", 6)
        start = time_of(cells[2]) if len(cells) == 7 else None
        if start is None or not cells[1]:  # an event of the whole cluster has no node
            continue
        user = cells[5].partition("(")[0]
        reason = " ".join(cells[6].split())
        found.append(OutageFacts(cells[1], start, time_of(cells[3]), cells[4], reason, text_of(user), "sacctmgr"))
    return found
