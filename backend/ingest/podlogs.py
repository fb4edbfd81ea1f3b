"""Logs of pods through the API server: read on from a time stamp, each line once, bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from backend.clients.kubernetes import KubeClient, KubeError
from backend.ingest.base import SourceError
from backend.ingest.linetimes import Origin, from_iso

#: Where kubelets keep logs; such a path names namespace, pod, its uid, container and life.
FOLDER = "/var/log/pods/"
_PATH = re.compile(r"/var/log/pods/([^/_]+)_([^/_]+)_([^/_]+)/([^/]+)/(\d+)\.log")
_FRACTION = re.compile(rb"\.(\d{1,9})")
#: An answer that brings nothing new is asked for again this much longer, at most so often.
GROWTH, TRIES = 8, 4
_NS = 1_000_000_000


class PodLogs:
    """The Streams of a Kubernetes cluster. A position is the time of the last line in ns, and how many had it."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    @property
    def scheme(self) -> str:
        return FOLDER

    def place(self, output: str) -> str:
        """The container that a path belongs to, whichever pod of that name and whichever life of it."""
        found = _PATH.fullmatch(output)
        return f"{found[1]}/{found[2]}/{found[4]}" if found else output

    def read(self, output: str, after: str, most_bytes: int) -> tuple[bytes, str]:
        """Whole lines, each after its time, and the new position. Raises SourceError."""
        found = _PATH.fullmatch(output)
        if found is None:
            raise SourceError(f"{output} is no log of a pod", permanent=True)
        path = f"/api/v1/namespaces/{found[1]}/pods/{found[2]}/log"
        at, seen = _position(after)
        for turn in range(TRIES):
            limit = most_bytes * GROWTH**turn
            params = {"container": found[4], "timestamps": "true", "limitBytes": str(limit)}
            if at:
                params["sinceTime"] = datetime.fromtimestamp(at // _NS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            printed = self._ask(path, params, limit)
            full = len(printed) >= limit
            kept, position = _new(printed[: printed.rfind(b"\n") + 1] or printed if full else printed, at, seen)
            if kept or not full:
                return b"".join(kept), position or after
        return b"", json.dumps([(at // _NS + 1) * _NS, 0])  # a second that is longer than we read

    def _ask(self, path: str, params: dict[str, str], limit: int) -> bytes:
        try:
            return self._client.log(path, params, limit)
        except KubeError as error:
            if error.status == 400 and ("waiting to start" in str(error) or "ContainerCreating" in str(error)):
                return b""
            raise SourceError(str(error), permanent=error.permanent) from error


def _position(after: str) -> tuple[int, int]:
    """(ns, how many lines of it were read); (0, 0) for the beginning."""
    with suppress(ValueError, TypeError):
        at, seen = json.loads(after)
        return int(at), int(seen)
    return 0, 0


def _new(printed: bytes, at: int, seen: int) -> tuple[list[bytes], str]:
    """The lines behind a position, and the position behind them ("" = there was none)."""
    kept: list[bytes] = []
    last, count = at, 0
    for ns, line in _stamped(printed, at):
        if ns < at:
            continue
        count = count + 1 if ns == last else 1
        if ns == at and count <= seen:
            continue
        kept.append(line + b"\n")
        last = ns
    return kept, json.dumps([last, count]) if kept else ""


def _stamped(printed: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """(ns, line); a line without a time has that of the one before it."""
    origin = Origin("", 0.0, UTC)
    for line in printed.split(b"\n"):
        if not line:
            continue
        stamp = line.partition(b" ")[0]
        seconds = from_iso(_FRACTION.sub(b"", stamp, count=1).decode("ascii", "replace"), origin)
        if seconds is not None:
            found = _FRACTION.search(stamp)
            at = int(seconds) * _NS + (int(found[1].ljust(9, b"0")) if found else 0)
        yield at, line
