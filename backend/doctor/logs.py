"""What is read of logs: each pattern of files, /dev/kmsg, the journal, Loki; who may read them, and what mends it."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterator

from backend.clients.loki import LokiError, LokiReader
from backend.doctor.line import Line, failed, ok, warning
from backend.ingest.journal import Run
from backend.ingest.loki import DEFAULT_QUERY
from backend.ingest.patterns import Pattern

#: Files of one pattern that are looked at.
LOOKED_AT = 1_000

May = Callable[[str, int], bool]


def files(name: str, pattern: str, user: str, may: May = os.access) -> Iterator[Line]:
    """How many files a pattern means, and which of them this account may not read. ``may`` as os.access."""
    try:
        found = [path for path, _ in zip(Pattern(pattern).paths(), range(LOOKED_AT), strict=False)]
    except ValueError as error:
        yield failed(name, str(error), "Write an absolute path in files of [cluster.logs].")
        return
    there = [path for path in found if os.path.lexists(path)]
    closed = [path for path in there if not may(path, os.R_OK)]
    if not there:
        shut = _shut_folder(pattern)
        text = f"{pattern}: {f'{shut} may not be entered' if shut else 'no such file yet'}"
        yield warning(name, text, _fix(shut, user) if shut else "Check the path in files of [cluster.logs].")
    elif closed:
        text = f"{pattern}: {len(closed)} of {len(there)} files may not be read, as {closed[0]}"
        yield failed(name, text, _fix(closed[0], user))
    else:
        yield ok(name, f"{pattern}: {len(there)} files may be read")


def _shut_folder(pattern: str) -> str:
    """The first folder on the way to a pattern that this account may not enter; "" where there is none."""
    place = "/"
    for part in pattern.split("/")[1:-1]:
        if any(mark in part for mark in "*?[{"):
            break
        place = os.path.join(place, part)
        if os.path.isdir(place) and not os.access(place, os.R_OK | os.X_OK):
            return place
    return ""


def _fix(path: str, user: str) -> str:
    """Which group opens it, or that none does."""
    try:
        found = os.stat(path)
    except OSError:
        return f"Give {user} the right to enter the folders above {path}."
    needs = stat.S_IRGRP | (stat.S_IXGRP if stat.S_ISDIR(found.st_mode) else 0)
    group = _group(found.st_gid)
    if found.st_mode & needs == needs and found.st_gid != 0:
        return f"Add {user} to the group {group}: usermod -aG {group} {user}, then restart."
    rights = "rX" if stat.S_ISDIR(found.st_mode) else "r"
    return f"It is {_account(found.st_uid)}'s alone: setfacl -m u:{user}:{rights} {path}, and create 0640 in logrotate."


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def kmsg(name: str, device: str) -> Iterator[Line]:
    """Opened, and one record read."""
    try:
        fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.read(fd, 8192)
        finally:
            os.close(fd)
    except BlockingIOError:
        yield ok(name, f"{device} may be read")
    except OSError as error:
        fix = "Set AmbientCapabilities=CAP_SYSLOG in the systemd unit, or read the journal instead."
        yield failed(name, f"{device}: {error.strerror}", fix)
    else:
        yield ok(name, f"{device} may be read")


def journal(name: str, run: Run, directory: str, user: str, timeout_s: float) -> Iterator[Line]:
    """One entry of it."""
    command = ["journalctl", "--lines=1", "--output=json", "--no-pager", "--quiet"]
    try:
        out, err, code = run([*command, *((f"--directory={directory}",) if directory else ())], timeout_s, 1_000_000)
    except FileNotFoundError:
        yield failed(name, "there is no journalctl here", "Set journal = false, and name files in [cluster.logs].")
        return
    except OSError as error:
        yield failed(name, f"journalctl cannot start: {error.strerror}", "See that it works here by hand.")
        return
    said = err.splitlines()[-1] if err else ""
    if "permission" in said.lower() or "not seeing messages" in said.lower():
        yield failed(name, said, f"Add {user} to the group systemd-journal: usermod -aG systemd-journal {user}.")
    elif code not in (0, 1):
        yield failed(name, said or f"no answer within {timeout_s:g} s", "See that journalctl works here by hand.")
    elif out.strip():
        yield ok(name, "it may be read")
    else:
        fix = f"Where it should hold some: usermod -aG systemd-journal {user}; Storage=persistent in journald.conf."
        yield warning(name, "it holds no entry that this account may see", fix)


def loki(name: str, reader: LokiReader, queries: tuple[str, ...]) -> Iterator[Line]:
    """Each query, over the last five minutes."""
    end = time.time_ns()
    for query in queries or (DEFAULT_QUERY,):
        try:
            found = reader.query_range(query, end - 300 * 10**9, end, 10)
        except LokiError as error:
            yield failed(name, str(error), "Check the keys that begin with loki in [cluster.logs].")
            return
        text = f"{reader.where} answers; {query}: {'lines' if found else 'no line'} in the last 5 minutes"
        yield ok(name, text) if found else warning(name, text, "Check loki_queries; on a quiet cluster this is right.")


def job_logs(name: str, uid: int) -> Iterator[Line]:
    """Rights on logs of jobs are those of the files; as root, all of them."""
    if uid == 0:
        fix = "Run as an account of its own that may read the logs, or set job_logs = false."
        yield warning(name, "followed as root, which may read every file that a job names as its log", fix)
    else:
        yield ok(name, "followed where this account may read them; System counts those that it may not")
