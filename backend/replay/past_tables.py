"""History as tables: sessions of a training (CSV), events of nodes (sacctmgr -P), or one JSON document of all of it."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from pathlib import PurePath
from typing import Any, Self, TypeVar

from pydantic import ValidationError, model_validator
from pydantic_core import PydanticCustomError

from backend.clients.hostlist import HostlistError, expand
from backend.clients.slurm_values import text_of
from backend.facts import AttemptFacts, Batch, CableFacts, NodeFacts, OutageFacts
from backend.ingest.base import SourceError
from backend.ingest.bundle.reading import BadRows
from backend.ingest.bundle.sacct import moment
from backend.ingest.infiniband import infiniband_batch
from backend.ingest.jobs import STATES, Hosts, JobRow, Words, attempt_of
from backend.ingest.rows import MaybeMoment, Moment, Name, Reject, Row, object_of, problem_of
from backend.ingest.topology import topology_batch
from backend.ingest.topology_csv import csv_batch

R = TypeVar("R", bound=Row)

#: What heads of a table of sessions are called, in lower case and with one space between words.
HEADS: Mapping[str, str] = {
    **dict.fromkeys(("session", "session id", "attempt"), "session"),
    **dict.fromkeys(("run", "name", "task", "training"), "run"),
    **dict.fromkeys(("user", "owner"), "user"),
    **dict.fromkeys(("nodes", "node list", "nodelist", "hosts"), "nodes"),
    **dict.fromkeys(("excluded nodes", "excluded", "exclude", "exclusions"), "excluded"),
    **dict.fromkeys(("start", "started", "start time", "begin"), "start"),
    **dict.fromkeys(("end", "ended", "end time", "finish"), "end"),
    **dict.fromkeys(("outcome", "result", "state", "status", "reason"), "outcome"),
    **dict.fromkeys(("auto or manual", "auto/manual", "auto manual", "restart", "restarted by", "mode"), "by"),
    **dict.fromkeys(("gpus per node", "gpus/node"), "gpus"),
}
#: Heads without which a table is no table of sessions.
NEEDED = frozenset({"session", "nodes", "start"})
#: Outcomes as people write them; a state of Slurm is itself. Any other word is kept, and how it ended is not known.
OUTCOMES: Mapping[str, str] = {
    **dict.fromkeys(("success", "succeeded", "ok", "done", "complete", "finished", "stopped"), "COMPLETED"),
    **dict.fromkeys(("failure", "fail", "error", "crash", "crashed", "hang", "hung"), "FAILED"),
    **dict.fromkeys(("node failure", "node fail", "hardware", "hardware failure"), "NODE_FAIL"),
    **dict.fromkeys(("oom", "out of memory"), "OUT_OF_MEMORY"),
    **dict.fromkeys(("time limit", "timed out"), "TIMEOUT"),
    **dict.fromkeys(("canceled", "killed", "aborted", "manual stop"), "CANCELLED"),
}
#: Who asked for a restart, where a table says only that somebody, or nobody, did.
AUTO, MANUAL = "system", "manual"
_DOCUMENT = re.compile(r'\s*\{\s*"(?:attempts|outages|nodes)"\s*:')
#: How ibnetdiscover begins.
_FABRIC = re.compile(r"(?:#\s*\n)*#\s*Topology file", re.IGNORECASE)
_NO_NODES = frozenset({"", "-", "none", "n/a", "null"})
#: Columns of ``sacctmgr -P show event``; the first of each pair with ``format=``, the second without.
_EVENT_HEADS = {"TimeStart": "Start", "TimeEnd": "End"}


@dataclass
class Found:
    """What one table holds."""

    attempts: list[AttemptFacts] = field(default_factory=list)
    outages: list[OutageFacts] = field(default_factory=list)
    nodes: list[NodeFacts] = field(default_factory=list)
    cables: list[CableFacts] = field(default_factory=list)


def kind_of(start: str) -> str:
    """What a file is by how it begins: sessions, events, nodes, fabric, document; "" for none of these."""
    if _DOCUMENT.match(start):
        return "document"
    if _FABRIC.match(start):
        return "fabric"
    start = start.partition("\n")[0].rstrip("\r").removeprefix("\ufeff")
    heads = start.split("|")
    if {"NodeName", "State"} <= set(heads) and {"Start", "TimeStart"} & set(heads):
        return "events"
    if set(_columns(start).values()) >= NEEDED:
        return "sessions"
    first, comma, _ = start.replace(";", ",").replace("\t", ",").partition(",")
    named = first.strip(' "').lower() in ("node", "nodes", "name", "host", "hostname")
    return "nodes" if comma and named and "|" not in start else ""


def read_table(kind: str, body: bytes, name: str, zone: tzinfo, bad: BadRows) -> Found:
    """One file of a ``kind`` of ``kind_of``, or "document". ``zone``: of times that name none. Rows that cannot be read
    are added to ``bad``; so is a file that cannot be read at all."""
    readers: Mapping[str, Callable[[bytes, str, tzinfo, BadRows], Found]] = {
        "sessions": _sessions,
        "events": _events,
        "document": _document,
        "nodes": lambda body, name, _, bad: _of_topology(csv_batch(body, 0.0), name, bad),
        "fabric": lambda body, name, _, bad: _of_topology((infiniband_batch(body, 0.0), ()), name, bad),
    }
    try:
        return readers[kind](body.removeprefix(b"\xef\xbb\xbf"), name, zone, bad)
    except (SourceError, csv.Error) as error:
        bad.add(name, 0, str(error))
        return Found()


def _of_topology(read: tuple[Batch, Sequence[Reject]], name: str, bad: BadRows) -> Found:
    batch, rejects = read
    for reject in rejects:
        bad.add(name, reject.row + 1, f"{reject.field}: {reject.problem}")
    return Found(nodes=list(batch.nodes), cables=list(batch.cables))


# --- sessions -------------------------------------------------------------------------------------------------------


def _columns(head: str) -> dict[int, str]:
    heads = next(csv.reader([head], delimiter=_delimiter(head)), [])
    plain = (" ".join(one.lower().replace("_", " ").replace("-", " ").split()) for one in heads)
    return {place: HEADS[one] for place, one in enumerate(plain) if one in HEADS}


def _delimiter(head: str) -> str:
    return max(",;\t", key=head.count)


def _sessions(body: bytes, name: str, zone: tzinfo, bad: BadRows) -> Found:
    """A row is an attempt; a session that stands there again was restarted. Without a column run, all are one run,
    called as the file."""
    text = body.decode(errors="replace")
    head = text.partition("\n")[0].rstrip("\r")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(head))
    columns, found, often = _columns(head), Found(), Counter[str]()
    next(rows, None)
    for row in rows:
        cells = {columns[place]: cell.strip() for place, cell in enumerate(row) if place in columns}
        if not any(cells.values()):
            continue
        try:
            attempt = _session(cells, PurePath(name).stem, zone)
        except (ValueError, HostlistError) as error:
            bad.add(name, rows.line_num, str(error))
            continue
        found.attempts.append(replace(attempt, restart=often[attempt.job]))
        often[attempt.job] += 1
    return found


def _session(cells: Mapping[str, str], run: str, zone: tzinfo) -> AttemptFacts:
    """Raises ValueError, HostlistError."""
    outcome = " ".join(cells.get("outcome", "").lower().replace("_", " ").replace("-", " ").split())
    slurm = outcome.upper().replace(" ", "_")
    start, end = (_time(cells.get(name, ""), zone) for name in ("start", "end"))
    state = slurm if slurm in STATES else OUTCOMES.get(outcome, "RUNNING" if end is None else "UNKNOWN")
    document = {
        "job": cells["session"],
        "run": cells.get("run") or run[:255],
        "user": cells.get("user", ""),
        "state": state,
        "start": start,
        "submit": start,
        "end": end,
        "nodes": _hosts(cells.get("nodes", "")),
        "excluded": _hosts(cells.get("excluded", "")),
        "gpus_per_node": int(gpus) if (gpus := cells.get("gpus", "")).isascii() and gpus.isdigit() else 0,
        "reason": cells.get("outcome", "") if slurm not in STATES else "",
        "requeued_by": _asked_by(cells.get("by", "")),
        "source": "sessions",
    }
    try:
        return attempt_of(JobRow.model_validate(document))
    except ValidationError as error:
        raise ValueError(": ".join(problem_of(error))) from None


def _time(cell: str, zone: tzinfo) -> float | None:
    try:
        return None if cell in _NO_NODES else moment(cell, zone)
    except (ValueError, OverflowError):
        raise ValueError(f"{cell[:40]!r} is no time: write it as 2026-02-03T11:38:06 or in unix seconds") from None


def _hosts(cell: str) -> list[str]:
    """A hostlist; between names also ";" or spaces."""
    return [] if cell.lower() in _NO_NODES else expand(",".join(cell.replace(";", " ").split()).replace(",,", ","))


def _asked_by(cell: str) -> str:
    """``auto`` is a system that asked, ``manual`` a person; a name is a name."""
    word = cell.lower()
    if word in ("", "-", "first", "initial"):
        return ""
    return (
        AUTO if word in ("auto", "automatic", "system", "false", "0") else cell if word not in ("true", "1") else MANUAL
    )


# --- events of nodes ------------------------------------------------------------------------------------------------


def _events(body: bytes, name: str, zone: tzinfo, bad: BadRows) -> Found:
    """Text of ``sacctmgr -P show event``, of any columns that hold NodeName, a start and a state. What a row has too
    much belongs to its reason."""
    lines = body.decode(errors="replace").splitlines()
    heads = [_EVENT_HEADS.get(head, head) for head in lines[0].split("|")] if lines else []
    found = Found()
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        cells = _cells(line, heads)
        try:
            start, end = (moment(cells.get(one, ""), zone) for one in ("Start", "End"))
        except (ValueError, OverflowError) as error:
            bad.add(name, number, str(error))
            continue
        if not cells or start is None or (end is not None and end < start):
            bad.add(name, number, "is no event of a node: write it with sacctmgr -P show event")
        elif cells["NodeName"].strip():  # an event of the whole cluster has no node
            user = text_of(cells.get("User", "").partition("(")[0])
            reason = " ".join(cells.get("Reason", "").split())
            found.outages.append(
                OutageFacts(cells["NodeName"].strip(), start, end or None, cells["State"], reason, user, "sacctmgr")
            )
    return found


def _cells(line: str, heads: Sequence[str]) -> dict[str, str]:
    cells = line.split("|")
    more = len(cells) - len(heads)
    if more > 0 and "Reason" in heads:
        at = heads.index("Reason")
        cells = [*cells[:at], "|".join(cells[at : at + more + 1]), *cells[at + more + 1 :]]
    return dict(zip(heads, cells, strict=False)) if len(cells) >= len(heads) else {}


# --- one document ---------------------------------------------------------------------------------------------------


class OutageRow(Row):
    """When nodes were out: ``nodes`` is a list or hostlist, ``end`` null where they still are."""

    nodes: Hosts
    start: Moment
    end: MaybeMoment = None
    state: Name = "DOWN"
    reason: Words = ""
    user: Name = ""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end is not None and self.end < self.start:
            raise PydanticCustomError("order", "it ends before it starts")
        return self


def _document(body: bytes, name: str, _: tzinfo, bad: BadRows) -> Found:
    """``{"attempts": [...], "outages": [...], "nodes": [...]}``: attempts as POST ingest/jobs takes them, nodes as in
    topology.json."""
    whole = object_of(body)
    if whole is None:
        raise SourceError('is no JSON object: {"attempts": [...], "outages": [...], "nodes": [...]}', permanent=True)
    found = Found()
    for row in _rows(whole, "attempts", JobRow, name, bad):
        found.attempts.append(replace(attempt_of(row), source=row.source or "import"))
    for one in _rows(whole, "outages", OutageRow, name, bad):
        spans = (OutageFacts(node, one.start, one.end, one.state, one.reason, one.user, "import") for node in one.nodes)
        found.outages += spans
    if "nodes" in whole:
        found.nodes = _of_topology(topology_batch(body, "application/json", 0.0), name, bad).nodes
    return found


def _rows(whole: Mapping[str, Any], part: str, model: type[R], name: str, bad: BadRows) -> Iterator[R]:
    listed = whole.get(part, [])
    if not isinstance(listed, list):
        bad.add(name, 0, f"{part} is no list")
        return
    for place, one in enumerate(listed):
        try:
            yield model.model_validate(one)
        except ValidationError as error:
            bad.add(name, place + 1, f"{part}: {': '.join(problem_of(error))}")
