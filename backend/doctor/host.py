"""What this machine must give: an account, a data folder, a port, a right clock, enough open files."""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import requests

from backend.doctor.line import Line, failed, ok, warning
from backend.settings import Server
from backend.store.filesystem import MOUNTS, network_type

#: Less free space than this is worth a word: history, database and its journal grow.
LOW_BYTES = 1_073_741_824
#: Pages that are open hold a connection each; this is what most systems start with.
FEW_FILES = 1024
#: adjtimex(2): nothing disciplines the clock.
TIME_ERROR = 5


def account() -> tuple[str, int]:
    """Name and number of the account that asks."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name, uid
    except KeyError:
        return f"uid {uid}", uid


def process() -> Iterator[Line]:
    name, _ = account()
    yield ok("account", f"asked as {name}; rights are those of this account, so ask as the one that serves")
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != files < FEW_FILES:
        fix = "Raise it: ulimit -n 65536, or LimitNOFILE=65536 in the systemd unit."
        yield warning("open files", f"this process may open {files} files at once (at most {most})", fix)
    else:
        yield ok("open files", "no limit" if files == resource.RLIM_INFINITY else f"up to {files} at once")


def folder(place: Path, mounts: Path = MOUNTS) -> Iterator[Line]:
    """Local, writable, with room. What is missing is not made: its nearest parent is looked at."""
    place = place.absolute()
    there = next(parent for parent in (place, *place.parents) if os.path.exists(parent))  # Path.exists may raise
    if kind := network_type(place, mounts):
        text = f"{place} lies on a network file system ({kind}), where locks do not hold"
        yield failed("data folder", text, "Set [store] folder to a local disk.")
        return
    try:
        with tempfile.TemporaryFile(dir=there):
            free = shutil.disk_usage(there).free
    except OSError as error:
        text = f"{place} cannot be written: {error.strerror}"
        yield failed("data folder", text, f"Give this account the right to write {there}, or set [store] folder.")
        return
    made = "" if there == place else ", will be made"
    text = f"{place}{made}, {free / 1e9:.1f} GB free"
    if free < LOW_BYTES:
        yield warning("data folder", text, "Make room: the history and the database grow.")
    else:
        yield ok("data folder", text)


def port(server: Server) -> Iterator[Line]:
    """Free, or taken by a Watchkeeper."""
    where = f"{server.host}:{server.port}"
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((server.host, server.port))
        except OSError as error:
            taken: OSError | None = error
        else:
            taken = None
    if taken is None:
        yield ok("port", f"{where} is free" if server.port else f"{server.host}, a free port is taken")
    elif answers(server):
        yield ok("port", f"a Watchkeeper answers on {where} already")
    else:
        text = f"cannot listen on {where}: {taken.strerror}"
        yield failed("port", text, "Set [server] host and port, or stop what listens there.")


def answers(server: Server) -> bool:
    """Whether what listens there says that it is well, the way we do."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # nosec B104: nothing is bound here
    address = f"[{host}]" if ":" in host else host
    try:
        answer = requests.get(f"http://{address}:{server.port}/healthz", timeout=3, allow_redirects=False)
        return bool(answer.json() == {"status": "ok"})
    except requests.RequestException:
        return False


def clock() -> Iterator[Line]:
    zone = time.localtime().tm_zone
    disciplined = synchronised()
    text = f"time zone {zone}; everything is kept in UTC"
    if disciplined is None:
        yield warning("clock", f"{text}; whether something sets the clock cannot be told", "See that NTP runs.")
    elif disciplined:
        yield ok("clock", f"set by NTP; {text}")
    else:
        fix = "Run chrony or systemd-timesyncd: late samples are dropped."
        yield warning("clock", f"the kernel says that nothing keeps the clock right; {text}", fix)


def synchronised() -> bool | None:
    """What the kernel thinks of its clock. Asked with modes = 0, which reads and sets nothing (adjtimex(2))."""
    try:
        read = ctypes.CDLL(None).adjtimex
    except (AttributeError, OSError):
        return None
    state = read(ctypes.create_string_buffer(512))
    return None if state < 0 else bool(state != TIME_ERROR)
