"""The report of one process: what it was, how it ended, what failed first and the lines that show it. All redacted."""

from __future__ import annotations

import json
import os
import platform
from typing import Any

from backend.security.redact import redact
from backend.wrap.artifacts import collect
from backend.wrap.evidence import Found, Line, sentence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from backend.wrap.child import Child
    from backend.wrap.place import Place
    from backend.wrap.streams import Log
    from backend.wrap.words import Options

VERSION = 1
#: Bytes of the start and of the end of the log in a report; of one rank of many; of one that was told to end, which
#: mostly shows what followed; and lines around what a rule names.
ROOM, ROOM_OF_MANY, ROOM_OF_VICTIM = (6_000, 48_000), (4_000, 12_000), (1_000, 6_000)
MANY = 64
BEFORE, AFTER = 1, 3
#: Places of the log that are quoted between.
MOST_PLACES = 60
#: Lines of the tail with their stream, for a person.
TAIL_LINES, LINE = 60, 400


def report_of(
    options: Options, place: Place, child: Child, log: Log, path: str, oom_kills: int, found: Found
) -> dict[str, Any]:
    """What is written beside the log, and sent."""
    taken, left = collect(options.artifacts, options.artifact_bytes)
    where = where_of(place)
    return {
        "version": VERSION,
        "id": f"{place.job or 'none'}/{place.restart}/{place.task}/{place.node}/{child.pid}/{child.began:.3f}",
        "ts": round(child.ended, 3),
        "host": place.node,
        "job": place.job,
        "restart": place.restart,
        "relaunch": place.relaunch,
        "task": place.task,
        "tasks": place.tasks,
        "rank": place.rank,
        "name": place.name,
        "command": redact(" ".join(child.command))[:2000],
        "start": round(child.began, 3),
        "end": round(child.ended, 3),
        "duration_s": round(child.ended - child.began, 3),
        "exit_code": child.code,
        "signal": child.signal or None,
        "ran": child.ran,
        "asked_to_end": child.asked_to_end,
        "signals": [{"ts": round(at, 3), "signal": name} for at, name in child.told],
        "oom_kills": max(0, oom_kills),
        "class": found.log_class,
        "confidence": found.confidence,
        "component": found.component,
        "sentence": sentence(found, where),
        "evidence": [
            {"what": "first cause" if hit is found.first else "also seen", **_quoted(found, hit.line, hit.text)}
            for hit in found.evidence
        ],
        "excerpt": excerpt(found, room_of(place, child)),
        "tail": tail_of(log),
        "log": {
            "path": os.path.join(here(), path) if path else "",
            "bytes": log.size,
            "lost_bytes": log.lost,
            "trouble": log.trouble,
            "read_bytes": found.read,
        },
        "artifacts": taken,
        "left_out": left,
        "environment": {**{name: redact(text) for name, text in place.facts().items()}, **_here()},
    }


def _here() -> dict[str, str]:
    return {"python": platform.python_version(), "kernel": os.uname().release, "folder": redact(here())}


def here() -> str:
    """The working folder; "" where it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def where_of(place: Place) -> str:
    rank = f"rank {place.rank} " if place.rank is not None else ""
    return f" ({rank}on {place.node})"


def _quoted(found: Found, place: int, text: str) -> dict[str, Any]:
    line = found.lines[place - 1] if 0 < place <= len(found.lines) else Line(0, 0, "")
    return {"line": line.number, "text": redact(text)[:LINE]}


def room_of(place: Place, child: Child) -> tuple[int, int]:
    """A job of thousands of ranks must not bury its server."""
    if child.asked_to_end:
        return ROOM_OF_VICTIM
    return ROOM_OF_MANY if (place.tasks or 1) > MANY else ROOM


def excerpt(found: Found, room: tuple[int, int]) -> list[dict[str, Any]]:
    """Spans of whole lines in order, each with the number of its first line and the bytes of the log before it: the
    start, what surrounds each hit, the end. The server reads them as the log."""
    lines = found.lines
    chosen: set[int] = set()
    for places, most in ((range(len(lines)), room[0]), (range(len(lines) - 1, -1, -1), room[1])):
        for place in places:
            most -= len(lines[place].text) + 1
            if most < 0:
                break
            chosen.add(place)
    for hit in (*found.hits[: MOST_PLACES // 2], *found.hits[-MOST_PLACES // 2 :]):
        chosen.update(place for place in range(hit.line - 1 - BEFORE, hit.line + AFTER) if 0 <= place < len(lines))
    spans: list[dict[str, Any]] = []
    before = -2
    for place in sorted(chosen):
        line = lines[place]
        joined = place == before + 1 and line.number in (lines[before].number, lines[before].number + 1)
        if joined and spans:
            spans[-1]["text"] += "\n" + line.text
        else:
            spans.append({"line": line.number, "at": max(0, line.behind - len(line.text) - 1), "text": line.text})
        before = place
    for span in spans:
        span["text"] = redact(span["text"])
    return spans


def tail_of(log: Log) -> list[dict[str, str]]:
    """The last lines with the stream of each."""
    found: list[dict[str, str]] = []
    for stream, text in log.tail[-400:]:
        name = ("stdout", "stderr")[stream]
        for raw in text[-64_000:].split(b"\n"):
            line = raw.rpartition(b"\r")[2] or raw
            if line:
                found.append({"stream": name, "text": line[: 4 * LINE].decode("utf-8", "replace")[:LINE]})
    return [{"stream": row["stream"], "text": redact(row["text"])} for row in found[-TAIL_LINES:]]


def encoded(report: dict[str, Any]) -> bytes:
    return json.dumps(report, ensure_ascii=True).encode("ascii")


def person_text(report: dict[str, Any]) -> str:
    """The report as a person reads it in a mail."""
    job = f"job {report['job']}, attempt {report['restart']}" if report["job"] else "no scheduler's job"
    ended = f"signal {report['signal']}" if report["signal"] else f"exit code {report['exit_code']}"
    if not report["ran"]:
        ended += ", it could not be run"
    rank = f"rank {report['rank']} on " if report["rank"] is not None else ""
    rows = [
        report["sentence"],
        "",
        f"  {report['name']}, {job}, {rank}{report['host']}",
        f"  {ended} after {_span(report['duration_s'])}",
        f"  class {report['class']}, {report['confidence']:.0%} sure",
        f"  log {report['log']['path'] or 'none'}",
    ]
    if report["signals"]:
        rows.append("  was sent " + ", ".join(row["signal"] for row in report["signals"][:8]))
    if report["log"]["lost_bytes"]:
        rows.append(f"  {report['log']['lost_bytes']} bytes are not in the log: {report['log']['trouble']}")
    rows += ["", "What shows it:"] if report["evidence"] else []
    rows += [f"  {row['what']}, line {row['line']}: {row['text']}" for row in report["evidence"]]
    rows += ["", "The last lines:"] + [f"  {row['text']}" for row in report["tail"][-30:]]
    if report["artifacts"]:
        rows += ["", "Attached:"] + [f"  {one['path']}, {one['bytes']} bytes" for one in report["artifacts"]]
    if report["left_out"]:
        rows += ["", "Left out:"] + [f"  {one['path']}: {one['why']}" for one in report["left_out"]]
    return "\n".join(rows) + "\n"


def headline(report: dict[str, Any]) -> str:
    """One line: what, and where."""
    job = f" (job {report['job']})" if report["job"] else ""
    what = report["class"].replace("_", " ") if report["exit_code"] else "ended well"
    rank = f"rank {report['rank']} on " if report["rank"] is not None else "on "
    return " ".join(f"{report['name']}{job}: {what}, {rank}{report['host']}".split())


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
