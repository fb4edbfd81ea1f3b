"""Reports of job wrappers: each row checked, and its excerpt read as the log that it was cut from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator

from backend.facts import Batch
from backend.ingest.jobs import Words
from backend.ingest.rows import (
    MAX_AHEAD_S,
    Host,
    Moment,
    Name,
    Reject,
    Row,
    clean,
    counted,
    read,
    sifted,
)
from backend.ingest.steps import Member, Whole
from backend.reported import ReportFacts
from backend.security.redact import redact
from detectors.joblog.reading import LogReader, Rules, Sheet

#: Spans and characters of one excerpt; lines of evidence and of the tail; names and characters of the environment.
MOST_SPANS, MOST_CHARS = 400, 400_000
MOST_LINES, MOST_NAMES = 400, 200
MAX_COUNT = 2**53
Count = Annotated[Whole, Field(ge=0, le=MAX_COUNT)]


class Span(Row):
    """Whole lines of a log: the number of the first one (0 = not known) and the bytes before it."""

    line: Count = 0
    at: Count = 0
    text: str

    @field_validator("text")
    @classmethod
    def _clean(cls, value: str) -> str:
        return clean(value)


class WrapRow(Row):
    """One process that ended, as ``watchkeeper wrap`` reports it; times are unix s or RFC 3339. ``task`` of ``tasks``:
    its place among the wrappers of its attempt. ``rank``: the rank that it was, if it was one."""

    id: Annotated[str, Field(min_length=1, max_length=800)]
    ts: Moment
    host: Host
    job: Name = ""
    restart: Whole = Field(0, ge=0, le=2_147_483_647)
    relaunch: Whole = Field(0, ge=0, le=2_147_483_647)
    task: Member = None
    tasks: Member = None
    rank: Member = None
    name: Name = ""
    command: Words = ""
    start: Moment
    exit_code: Whole = Field(ge=0, le=255)
    signal: Annotated[int, Field(ge=0, le=127)] | None = None
    ran: bool = True
    asked_to_end: bool = False
    oom_kills: Count = 0
    log_class: Name = Field("", alias="class")
    confidence: float = Field(0.0, ge=0, le=1)
    sentence: Words = ""
    excerpt: list[Span] = Field(default_factory=list, max_length=MOST_SPANS)
    evidence: list[dict[str, Any]] = Field(default_factory=list, max_length=MOST_LINES)
    tail: list[dict[str, Any]] = Field(default_factory=list, max_length=MOST_LINES)
    signals: list[dict[str, Any]] = Field(default_factory=list, max_length=MOST_LINES)
    artifacts: list[dict[str, Any]] = Field(default_factory=list, max_length=2000)
    left_out: list[dict[str, Any]] = Field(default_factory=list, max_length=2000)
    log: dict[str, Any] = Field(default_factory=dict)
    environment: dict[str, Words] = Field(default_factory=dict, max_length=MOST_NAMES)

    @field_validator("id")
    @classmethod
    def _printable(cls, value: str) -> str:
        return clean("".join(c for c in value if c.isprintable()))

    @field_validator("excerpt")
    @classmethod
    def _bounded(cls, value: list[Span]) -> list[Span]:
        if sum(len(span.text) for span in value) > MOST_CHARS:
            raise ValueError(f"holds more than {MOST_CHARS:,} characters; send what surrounds the failure")
        return value


def wrap_batch(body: bytes, content_type: str, now: float) -> tuple[Batch, tuple[Reject, ...]]:
    """Reports of one push and the rows that were not taken. ``now`` in unix s.

    Raises SourceError(permanent=True) where the body as a whole cannot be read.
    """

    def wrong(row: WrapRow) -> tuple[str, str] | None:
        if max(row.ts, row.start) > now + MAX_AHEAD_S:
            return "ts", f"lies in the future: is the clock of {row.host} right?"
        return ("start", "lies after ts, when it ended") if row.start > row.ts + MAX_AHEAD_S else None

    good = sifted(read(body, content_type, WrapRow), wrong)
    return Batch("wrap", now, now, reports=tuple(map(facts_of, good.rows)), dropped=counted(good)), good.rejects


def facts_of(row: WrapRow) -> ReportFacts:
    whole = _texts_clean(row.model_dump(by_alias=True))
    assert isinstance(whole, dict)
    return _facts(row, whole)


def facts_from(whole: Mapping[str, Any]) -> ReportFacts:
    """A stored report as facts."""
    return _facts(WrapRow.model_validate(whole), whole)


def _facts(row: WrapRow, whole: Mapping[str, Any]) -> ReportFacts:
    most = row.environment.get("TORCHELASTIC_MAX_RESTARTS", "")
    more = most.isascii() and most.isdigit() and len(most) < 10 and int(most) > row.relaunch
    return ReportFacts(
        id=row.id,
        at=row.ts,
        host=row.host,
        job=row.job,
        restart=row.restart,
        start=row.start,
        exit_code=row.exit_code,
        signal=row.signal or None,
        relaunch=row.relaunch,
        more_launches=more,
        task=row.task,
        tasks=row.tasks,
        rank=row.rank,
        name=row.name,
        log_class=row.log_class,
        asked_to_end=row.asked_to_end,
        oom_kills=row.oom_kills,
        path=str(row.log.get("path", ""))[:4096],
        excerpt=tuple((span.line, span.at, span.text) for span in row.excerpt),
        whole=whole,
    )


def _texts_clean(value: Any, depth: int = 0) -> Any:
    """Every text masked and such as every database takes; what is nested too deep is left out."""
    if isinstance(value, str):
        return redact(clean(value))
    if depth > 6:
        return None
    if isinstance(value, dict):
        return {clean(str(key)): _texts_clean(one, depth + 1) for key, one in value.items()}
    return [_texts_clean(one, depth + 1) for one in value] if isinstance(value, list | tuple) else value


def sheet_of(rules: Rules, report: ReportFacts) -> Sheet:
    """The excerpt read as its log: lines and bytes are numbered as they stood there."""
    reader = LogReader(rules, report.path or report.name, excerpt=True)
    lines: list[tuple[int, int]] = []  # by line of the excerpt: its number in the log, the bytes before it
    starts: list[int] = []  # by line of the excerpt: the bytes of the excerpt before it
    text, size = [], 0
    for number, at, span in report.excerpt:
        for offset, line in enumerate(span.split("\n")):
            raw = line.encode(errors="replace") + b"\n"
            lines.append((number + offset if number else 0, at))
            starts.append(size)
            text.append(raw)
            size, at = size + len(raw), at + len(raw)
    reader.feed(b"".join(text))
    sheet = reader.close()

    def moved(behind: int) -> int:
        place = max(0, bisect_right(starts, max(0, behind - 1)) - 1)
        return lines[place][1] + behind - starts[place] if lines else behind

    sheet.hits = [
        hit._replace(line=lines[hit.line - 1][0] if 0 < hit.line <= len(lines) else 0, behind=moved(hit.behind))
        for hit in sheet.hits
    ]
    sheet.progress = [one._replace(behind=moved(one.behind)) for one in sheet.progress]
    sheet.done = moved(sheet.done) if sheet.done is not None else None
    sheet.rank = report.rank
    if report.rank is not None or not sheet.host:
        sheet.host = report.host
    return sheet
