"""What a log of a failed run says: read back within bounds of memory and time, and asked what failed first."""

from __future__ import annotations

import os
import pkgutil
import re
import time
from typing import Iterator, NamedTuple, Sequence

from detectors.joblog.rules import (
    AGAIN,
    CLEAN,
    SAYS,
    SIGNALS,
    UNKNOWN,
    Hit,
    LogClass,
    Reading,
    Table,
    read_lines,
    read_table,
    standing,
    sure_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from backend.wrap.child import Child
    from backend.wrap.streams import Log

#: Bytes at the start and at the end of a log whose every line is read; of what lies between, lines with a word of
#: trouble, until so many of them or so many seconds.
START, END = 1 << 18, 1 << 21
MOST_BETWEEN, BETWEEN_S = 4000, 4.0
#: A longer line is read in pieces that overlap.
PIECE, OVERLAP = 4096, 300
#: Lines of evidence.
MOST_EVIDENCE = 6
#: What is in nearly every line that names a failure.
TROUBLE = tuple(
    b"rror|xcept|Xid|atal|FATAL|ailed|ailure|ERROR|FAIL|illed|emory|NCCL WARN|No space|NaN|nan|bort|imeout|imed out|"
    b"anic|egfault|egmentation|refused|denied|orrupt|nvalid|assert|CANCELLED|nreachable|quota|ECC".split(b"|")
)
#: A run that ended well, told without the table.
WELL = LogClass(CLEAN, "none", "none", "good", 0, "no", "yes", "")
_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])")


class Line(NamedTuple):
    """``number`` from 1, 0 where it is not known; ``behind``: bytes of the log up to its end."""

    number: int
    behind: int
    text: str


class Found(NamedTuple):
    """``first``: the hit that is the first cause, as a place in ``lines``; None where only the end tells something.
    ``read``: bytes of the log that were looked at, of ``size``."""

    log_class: str
    known: LogClass
    confidence: float
    component: str
    first: Hit | None
    hits: Sequence[Hit]
    evidence: Sequence[Hit]
    lines: Sequence[Line]
    read: int
    size: int


def table() -> Table:
    """The rules, as they are packed beside us."""
    text = pkgutil.get_data("detectors", "tables/joblog_rules.toml")
    assert text is not None
    return read_table(text.decode("utf-8"))


def find(log: Log, path: str, child: Child, oom_kills: int) -> Found:
    """Read what was printed back, and name what failed first; nothing is read of a run that ended well."""
    if not child.code:
        return Found(CLEAN, WELL, 0.95, WELL.component, None, (), (), (), 0, log.size + log.lost)
    lines, read = lines_of(log, path)
    rules = table()
    reading = read_lines(rules, [line.text for line in lines], [line.behind for line in lines])
    first = reading.first()
    log_class, sure = class_of(first, child, oom_kills)
    named = first is not None and log_class == first.log_class
    known = rules.classes[log_class]
    size = max(log.size + log.lost, read)
    return Found(
        log_class=log_class,
        known=known,
        confidence=round(sure, 2),
        component=first.rule.component if first is not None and named else known.component,
        first=first if named else None,
        hits=reading.hits,
        evidence=_evidence(reading, first),
        lines=lines,
        read=read,
        size=size,
    )


def class_of(first: Hit | None, child: Child, oom_kills: int) -> tuple[str, float]:
    """The class and how sure: the log's own words first, how it ended where they only show what followed."""
    weak = first is None or first.level in ("echo", "symptom", "note")
    if weak and oom_kills > 0:
        return "host_oom_killed", 0.9
    if weak and child.asked_to_end:
        return "preempted_or_cancelled", 0.6
    signal = child.signal or (child.code - 128 if 128 < child.code <= 160 else 0)
    if weak and signal in SIGNALS:
        return SIGNALS[signal], 0.85
    if first is None or first.level == "echo":
        return UNKNOWN, 0.5
    return first.log_class, sure_of(first)


def sentence(found: Found, where: str) -> str:
    """For a tired person. ``where``: " (rank 3 on gpu-12)" or ""."""
    known, name = found.known, found.known.name.replace("_", " ")
    if known.name == CLEAN:
        return f"It ended well{where}."
    head = f"{SAYS[known.whose]}: {name}{where}"
    if known.name == UNKNOWN:
        head = f"{SAYS['unknown']}: they only show what followed{where}"
    elif known.whose == "unknown":
        head = f"{name[0].upper()}{name[1:]}{where}; this log does not show why"
    return f"{head}; {AGAIN[known.resubmit]}: {known.advice}."


def _evidence(reading: Reading, first: Hit | None) -> list[Hit]:
    """The first cause, and one hit of each other rule that stands."""
    found = [first] if first is not None else []
    seen = {hit.rule.name for hit in found}
    for hit in standing(*reading):
        if hit.rule.name not in seen and len(found) < MOST_EVIDENCE:
            seen.add(hit.rule.name)
            found.append(hit)
    return found


def lines_of(log: Log, path: str) -> tuple[list[Line], int]:
    """Lines in order, and how many bytes were looked at. What the disk did not take comes from memory."""
    lines: list[Line] = []
    read = 0
    try:
        with open(path or os.devnull, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            cut = START if size > START + END else size
            start = file.read(cut)
            lines += _lines(start, 1, 0)
            number, at, read = start.count(b"\n"), len(start), len(start)
            if size > cut:
                end_at, between, number = _between(file, at, number, size - END)
                lines += between
                file.seek(end_at)
                lines += _lines(file.read(), number + 1, end_at)
                read = size
    except OSError:
        pass
    if log.lost or not path:
        tail = b"".join(text for _, text in log.tail)
        head = b"" if path or len(tail) >= log.size + log.lost else bytes(log.head)
        lines += _lines(head + b"\n" + tail if head else tail, 0, log.size + log.lost - len(tail) - len(head))
    return lines, read


def _lines(text: bytes, number: int, at: int) -> list[Line]:
    """Every line; what a carriage return overwrote is one too, under the same number. ``number`` 0: not known."""
    found: list[Line] = []
    for raw in text.split(b"\n"):
        at += len(raw) + 1
        if raw:
            plain = _ANSI.sub("", raw.replace(b"\0", b"").decode("utf-8", "replace"))
            found.extend(Line(number, at, piece) for part in plain.split("\r") for piece in _pieces(part))
        number += 1 if number else 0
    return found


def _pieces(line: str) -> Iterator[str]:
    if len(line) <= 2 * PIECE:
        if line:
            yield line
        return
    for start in range(0, len(line), PIECE):
        yield line[start : start + PIECE + OVERLAP]


def _between(file: object, at: int, number: int, end: int) -> tuple[int, list[Line], int]:
    """(where the end begins, lines with a word of trouble and what surrounds them, lines passed). Time-bounded: what
    is not looked at for that is passed over."""
    found: list[Line] = []
    until, kept = time.monotonic() + BETWEEN_S, b""
    while at < end:
        chunk = kept + file.read(min(1 << 20, end - at))  # type: ignore[attr-defined]
        at += len(chunk) - len(kept)
        cut = chunk.rfind(b"\n") + 1 or len(chunk)
        block, kept = chunk[:cut], chunk[cut:] if at < end else b""
        if at >= end:
            block, kept = chunk, b""
        if len(found) < MOST_BETWEEN and time.monotonic() < until:
            found += _troubled(block, number + 1, at - len(kept) - len(block))
        number += block.count(b"\n")
        if not chunk:
            break
    return at, found, number


def _troubled(block: bytes, number: int, at: int) -> list[Line]:
    """The lines of a block with a word of trouble in them, and the one before each."""
    places: set[int] = set()
    for word in TROUBLE:
        found = block.find(word)
        while found >= 0 and len(places) < MOST_BETWEEN:
            start = block.rfind(b"\n", 0, found) + 1
            places.update((start, block.rfind(b"\n", 0, max(0, start - 1)) + 1))
            end = block.find(b"\n", found)
            found = block.find(word, end) if end >= 0 else -1
    lines: list[Line] = []
    counted = 0
    for start in sorted(places):
        number += block.count(b"\n", counted, start)
        counted = start
        end = block.find(b"\n", start)
        lines += _lines(block[start : end if end >= 0 else len(block)], number, at + start)
    return lines
