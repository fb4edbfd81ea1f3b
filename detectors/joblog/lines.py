"""One line of a training log without what launchers put before it: its time, rank and host, and what is left."""

from __future__ import annotations

import json
import re
from calendar import timegm
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

#: Prefixes that one line may carry, one inside the other (kubectl, then srun, then torchrun, then a logger).
MAX_PREFIXES = 7
#: A leap year that stands for "no year was said"; no job of today ran in it.
NO_YEAR = 2000
#: A JSON line longer than this is read as text.
MAX_JSON = 262_144

_MONTHS = {
    name: number
    for number, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)  # noqa: SIM905
}
_CLOCK = r"(?P<h>\d{2}):(?P<m>\d{2}):(?P<s>\d{2})(?:[.,:](?P<frac>\d{1,9}))?"
_ISO = re.compile(
    r"[\[(]?(?P<y>\d{4})[-/](?P<mo>\d{2})[-/](?P<d>\d{2})[T _]"
    + _CLOCK
    + r"\s?(?P<zone>Z(?![A-Za-z])|UTC\b|[+-]\d{2}:?\d{2})?[\])]?[:,]?\s*",
    re.ASCII,
)
_US = re.compile(r"[\[(]?(?P<mo>\d{2})/(?P<d>\d{2})/(?P<y>\d{4}|\d{2}) " + _CLOCK + r"[\])]?[:,]?\s*", re.ASCII)
_GLOG = re.compile(r"\[?(?P<level>[IWEF])(?P<mo>\d{1,2})(?P<d>\d{2}) " + _CLOCK + r"(?:\s+\d{1,12})?\s*", re.ASCII)
_SYSLOG = re.compile(r"(?P<name>[A-Z][a-z]{2}) {1,2}(?P<d>\d{1,2}) " + _CLOCK + r" (?P<host>[\w.\-]{1,253}) ", re.ASCII)
_DAY = re.compile(
    r"[\[(]?(?:[A-Z][a-z]{2} )?(?P<name>[A-Z][a-z]{2}) {1,2}(?P<d>\d{1,2}) "
    + _CLOCK
    + r"(?: \w{2,4})? (?P<y>\d{4})[\])]?\s*",
    re.ASCII,
)
_EPOCH = re.compile(r"\[?(?P<epoch>1[0-9]{9}(?:\.\d{1,9})?)\]?:?\s+", re.ASCII)
_BARE = re.compile(r"[\[(]?" + _CLOCK + r"[\])]?[:,]?\s+", re.ASCII)
_BOOT = re.compile(r"\[\s{0,8}\d{1,9}\.\d{1,6}\]\s*", re.ASCII)
#: Who speaks, by launcher.
_WHO = (
    re.compile(r"\[(?:rank|Rank |RANK )(?P<rank>\d{1,6})\]:?\s?", re.ASCII),  # torch 2.x, Megatron
    re.compile(r"\[default(?P<local>\d{1,3})\]:\s?", re.ASCII),  # torchrun --tee
    re.compile(r"\[\d{1,6},(?P<rank>\d{1,6})\]<std(?:out|err|diag)>:?\s?", re.ASCII),  # mpirun --tag-output
    re.compile(
        r"\((?P<name>[\w.:\-]{1,80}) (?:rank=(?P<rank>\d{1,6}),? )?pid=\d{1,9}(?:, ip=(?P<host>[\d.a-fA-F:]{3,"
        r"45}))?\)\s?",
        re.ASCII,
    ),
    re.compile(r"\(raylet(?:, ip=(?P<host>[\d.a-fA-F:]{3,45}))?\)\s?", re.ASCII),
    re.compile(r"\[pod/(?P<host>[\w.\-]{1,253})/[\w.\-]{1,253}\]\s", re.ASCII),  # kubectl logs --prefix
    re.compile(r"(?:std(?:out|err)) [FP] ", re.ASCII),  # CRI
    re.compile(r"\s{0,5}(?P<rank>\d{1,6}): (?!\d{1,2}:)", re.ASCII),  # srun -l
    re.compile(r"[Rr]ank[ =](?P<rank>\d{1,6})\s?[:|\]]\s?", re.ASCII),
    re.compile(r"(?P<host>[A-Za-z][\w.\-]{0,252}):\d{1,9}:\d{1,9} \[(?P<gpu>\d{1,3})\] ", re.ASCII),  # NCCL
    re.compile(r"\[(?P<host>[A-Za-z][\w.\-]{0,252}):\d{1,9}(?:\s?:\d{1,6}:\d{1,9})?\]\s", re.ASCII),  # UCX, Open MPI
)
#: What may begin with a character: most lines begin with none of these, and cost nothing.
_TIMES = {
    "[": (_ISO, _GLOG, _US, _DAY, _EPOCH, _BARE, _BOOT),
    "(": (_ISO, _US, _BARE),
    **dict.fromkeys("0123456789", (_ISO, _US, _EPOCH, _BARE)),
    **dict.fromkeys("JAOSNDMT", (_SYSLOG, _DAY)),
    **dict.fromkeys("IWEF", (_GLOG, _SYSLOG, _DAY)),
}
_SPEAKERS = {
    "[": (_WHO[0], _WHO[1], _WHO[2], _WHO[5], _WHO[10]),
    "(": (_WHO[3], _WHO[4]),
    **dict.fromkeys("0123456789 ", (_WHO[7],)),
}
_RANK_IN = re.compile(
    r"\[(?:PG [^\]\n]{0,60})?Rank (\d{1,6})\]|\bon rank:? (\d{1,6})\b|\b[Rr]ank (\d{1,6}):|\brank=(\d{1,6})\b", re.ASCII
)
_HOST_IN = re.compile(
    r"SLURMD_NODENAME[=:] ?([\w.\-]{2,253})|\b(?:[Hh]ost(?:name)?|HOSTNAME|node(?:name)?"
    r"|NODE)\s{0,6}[:=]\s?([A-Za-z][\w.\-]{0,252})"
    r"|(?:srun|salloc): error: (?!Node|Job|Task|task|Unable)([A-Za-z][\w.\-]{0,252}): task"
    r"|\bON ([A-Za-z][\w.\-]{0,252}) CANCELLED"
    r"|^([A-Za-z][\w.\-]{0,60}\d[\w.\-]{0,190})[ :,]{1,3}[Rr]ank[ =:]{0,2}\d{1,6}(?:\s?/\s?| of )\d{1,6}\b"
    r"|\b[Rr]ank[ =:]{0,2}\d{1,6}(?:(?:\s?/\s?| of )\d{1,6})? (?:is |runs |running )?on (?:node |host )?"
    r"(?![Gg][Pp][Uu]|cuda|device)([A-Za-z][\w.\-]{0,60}\d[\w.\-]{0,190})"
    r"|[Nn]ode failure on ([\w.\-]{1,253})|Abandoning IO on node ([\w.\-]{1,253})|^([A-Za-z][\w.\-]{1,252}) kernel: ",
    re.ASCII,
)
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,8}", re.ASCII)
_GPU_IN = re.compile(r"\b(?:GPU|cuda|CUDA device|gpu|Device)[ :#]?(\d{1,2})\b(?![\d.]*\s?(?:GB|GiB|%|MiB))", re.ASCII)

_TEXT_KEYS = ("message", "msg", "log", "text", "body", "event", "line", "MESSAGE")
_STACK_KEYS = ("exc_info", "exception", "stack_trace", "stacktrace", "stack", "traceback", "error", "exc")
_TIME_KEYS = ("timestamp", "@timestamp", "time", "ts", "asctime", "datetime", "date")
_RANK_KEYS = ("rank", "global_rank", "RANK", "process_index", "task_id")
_HOST_KEYS = ("host", "hostname", "node", "node_name", "nodename", "_HOSTNAME")


@dataclass(frozen=True, slots=True)
class Line:
    """at: unix s, or seconds of an unknown day (below 86,400), or None. local: the rank on its node."""

    text: str
    at: float | None = None
    rank: int | None = None
    local: int | None = None
    host: str = ""
    gpu: int | None = None


def read_line(text: str, year: int = NO_YEAR) -> Line:
    """Take the prefixes off. ``year``: for times that name none. Never raises; linear in the line."""
    line = Line(text)
    for _ in range(MAX_PREFIXES):
        shorter = _timed(line, year) or _spoken(line)
        if shorter is None:
            break
        line = shorter
    return line


def expanded(text: str, year: int = NO_YEAR) -> Iterator[Line]:
    """The lines that one raw line holds: itself, or of a JSON record its message and its stack, line by line."""
    record = _record(text)
    if record is None:
        yield read_line(text, year)
        return
    at, rank, host = _time_of(record), _int(record, _RANK_KEYS), _word(record, _HOST_KEYS)
    said = [_word(record, (key,)) for key in (*_TEXT_KEYS, *_STACK_KEYS)]
    for part in "\n".join(word for word in said if word).splitlines()[:400]:
        line = read_line(part, year)
        yield replace(
            line,
            at=line.at if at is None else at,
            rank=line.rank if line.rank is not None else rank,
            host=line.host or host,
        )


def rank_in(text: str) -> int | None:
    """The rank that a line names somewhere inside."""
    found = _RANK_IN.search(text[:2000])
    return next((int(word) for word in found.groups() if word), 0) if found else None


def host_in(text: str) -> str:
    """The host that a line names somewhere inside, or ""."""
    found = _HOST_IN.search(text[:2000])
    return next((word for word in found.groups() if word), "") if found else ""


def is_address(host: str) -> bool:
    """Is a host named by its address, and not by its name?"""
    return bool(_ADDRESS.fullmatch(host))


def gpu_in(text: str) -> int | None:
    """The GPU index that a line names, as its process counts them."""
    found = _GPU_IN.search(text[:2000])
    return int(found[1]) if found else None


def _timed(line: Line, year: int) -> Line | None:
    for pattern in _TIMES.get(line.text[:1], ()):
        found = pattern.match(line.text)
        if found and found.end():
            at = line.at if line.at is not None and line.at > 1e6 else _seconds(found.groupdict(), year)
            host = found.groupdict().get("host") or line.host
            return replace(line, text=line.text[found.end() :], at=at, host=host)
    return None


def _seconds(parts: Mapping[str, str | None], year: int) -> float | None:
    if parts.get("epoch"):
        return float(parts["epoch"] or 0)
    if not parts.get("h"):
        return None
    of_day = (
        int(parts["h"] or 0) * 3600
        + int(parts["m"] or 0) * 60
        + int(parts["s"] or 0)
        + float("0." + (parts["frac"] or "0"))
    )
    month = _MONTHS.get(parts.get("name") or "", 0) or int(parts.get("mo") or 0)
    if not month:
        return of_day
    years = int(parts.get("y") or year)
    day = int(parts["d"] or 1)
    if not (1 <= month <= 12 and 1 <= day <= 31 and of_day < 86_401):
        return None
    return timegm((years + 2000 if years < 100 else years, month, day, 0, 0, 0)) + of_day - _offset(parts.get("zone"))


def _offset(zone: str | None) -> int:
    """Seconds east of UTC."""
    if not zone or zone in ("Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "")
    return (int(digits[:2]) * 3600 + int(digits[2:]) * 60) * (-1 if zone[0] == "-" else 1)


def _spoken(line: Line) -> Line | None:
    first = line.text[:1]
    for pattern in _SPEAKERS.get(first, (_WHO[6], _WHO[8], _WHO[9]) if first.isalpha() else ()):
        found = pattern.match(line.text)
        if found and found.end():
            said = found.groupdict()
            return replace(
                line,
                text=line.text[found.end() :],
                rank=int(said["rank"]) if said.get("rank") else line.rank,
                local=int(said["local"]) if said.get("local") else line.local,
                host=said.get("host") or line.host,
                gpu=int(said["gpu"]) if said.get("gpu") else line.gpu,
            )
    return None


def _record(text: str) -> dict[str, Any] | None:
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}") and len(text) < MAX_JSON):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and any(isinstance(record.get(k), str) for k in _TEXT_KEYS) else None


def _word(record: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((value for key in keys if isinstance(value := record.get(key), str) and value), "")


def _int(record: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = record.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**6:
            return value
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 7:
            return int(value)
    return None


def _time_of(record: Mapping[str, Any]) -> float | None:
    for key in _TIME_KEYS:
        value = record.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return next((value / scale for scale in (1.0, 1e3, 1e6, 1e9) if 1e9 <= value / scale < 1e10), None)
        if isinstance(value, str) and (at := read_line(value + " ").at) is not None:
            return at
    return None
