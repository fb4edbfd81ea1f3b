"""Which rank and which host a log file's name gives away."""

from __future__ import annotations

import re

_RANK = re.compile(
    r"(?:global_?|g)?rank[_.\-=]?(\d{1,6})(?!\d)|(?:^|[_.\-/])(?:r|task|proc|worker|trainer|pe)[_.\-]?(\d{1,6})(?=[_.\-/]|$)",
    re.ASCII,
)
_TORCHRUN = re.compile(r"attempt_\d{1,4}/(\d{1,6})/(?:std(?:out|err)\.log|error\.json)$", re.ASCII)
_TAIL = re.compile(
    r"(?:^|[_.\-/])(?:std(?:out|err)|log|out|err|output)?[_.\-]?(\d{1,5})(?:\.(?:log|out|err|txt|json|jsonl))*(?:\.gz)?$",
    re.ASCII,
)
_HOST = re.compile(
    r"(?<![A-Za-z0-9])((?=[A-Za-z0-9.\-]*\d)[A-Za-z]{2}[A-Za-z0-9]*(?:-[A-Za-z0-9]+|\.(?=[A-Za-z0-9]*[A-Za-z])"
    r"[A-Za-z0-9]+)*?)(?=[_/]|\.(?:log|out|err|txt|json|gz)|\.\d{1,6}\.|-(?:rank|task)|$)",
    re.ASCII,
)
#: ``job-77.5.gn222.out``: the rank stands before the host (srun --output=%j.%t.%N.out).
_BEFORE_HOST = re.compile(r"\d[._\-](\d{1,5})[._](?=[A-Za-z][\w\-]*\d[\w\-]*\.(?:log|out|err|txt)(?:\.gz)?$)", re.ASCII)
_JOB = re.compile(r"^(?:job|slurm|run|log)?[_.\-]?\d{1,12}\.\w{1,6}(?:\.gz)?$", re.ASCII)
#: A folder is a host only where its whole name looks like one.
_FOLDER = re.compile(r"[A-Za-z]{2,20}\d{0,4}(?:-[A-Za-z0-9]{1,20}){0,4}-?\d{1,5}", re.ASCII)
#: Words with a number behind them that name no host.
_NO_HOST = re.compile(
    r"(?:global)?rank|^r\d|task|proc|worker|trainer|attempt|job|slurm|log|std(?:out|err)|out|err|output|run|step|part|local|epoch|none|default|test|exp|case|v\d|pe\d|gpu\d?$"
)


def rank_of(path: str) -> int | None:
    """``rank_3.log``, ``attempt_0/3/stderr.log``, ``node1-rank12.txt``, ``job-991_3.out``; None where it says none."""
    path = path.replace("\\", "/")[-400:]
    found = (
        _TORCHRUN.search(path) or _RANK.search(path.rsplit("/", 1)[-1]) or _RANK.search("/".join(path.split("/")[-2:]))
    )
    if found is None:
        name = path.rsplit("/", 1)[-1]
        found = None if _JOB.search(name) else _BEFORE_HOST.search(name) or _TAIL.search(name)
        if found and (host := host_of(path)) and name[: found.end(1)].endswith(host):
            found = None
    return next((int(word) for word in found.groups() if word), None) if found else None


def host_of(path: str) -> str:
    """``gpu-0412_rank3.log`` and ``gpu-0412/rank3.log`` name a host; "" where nothing looks like one."""
    folder, _, name = path.replace("\\", "/")[-400:].rpartition("/")
    for found in _HOST.finditer(name):
        if not _NO_HOST.search(found[1]):
            return found[1]
    above = folder.rpartition("/")[2]
    return above if _FOLDER.fullmatch(above) and not _NO_HOST.search(above) else ""
