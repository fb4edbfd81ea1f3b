"""Pushed entries of journals: systemd's export format and ``journalctl -o json``, as curl sends what it prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from backend.clients.hostlist import is_host
from backend.facts import Batch, RawEvent
from backend.ingest.base import SourceError
from backend.ingest.heard import Line, Parse, events, spoken
from backend.ingest.jsonforms import entry

#: Longest name of a field (systemd: 64 characters).
MOST_NAME = 256
UNREADABLE, NO_HOST = "entries that could not be read", "entries that name no host"

Fields = Mapping[str, Any]


def from_export(body: bytes) -> Iterator[Fields | None]:
    """Entries of the export format (systemd.io/JOURNAL_EXPORT_FORMATS): lines of NAME=value, or NAME alone and then the
    length as 64 bits, the bytes and a newline; an empty line ends an entry. None for one that is broken, after which
    the next one is looked for. Never raises."""
    at, fields = 0, dict[str, Any]()
    while at < len(body):
        end = body.find(b"\n", at)
        end = len(body) if end < 0 else end
        line = body[at:end]
        at = end + 1
        if not line:
            if fields:
                yield fields
            fields = {}
            continue
        name, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(body[at : at + 8], "little")
            if len(name) > MOST_NAME or at + 8 + size > len(body):
                yield None
                fields, at = {}, _next_entry(body, at)
                continue
            value = body[at + 8 : at + 8 + size]
            at += 8 + size + 1
        fields[name.decode("ascii", "replace")] = value.decode("utf-8", "replace")
    if fields:
        yield fields


def _next_entry(body: bytes, at: int) -> int:
    found = body.find(b"\n\n__CURSOR=", max(0, at - 1))
    return len(body) if found < 0 else found + 2


def from_json(body: bytes) -> Iterator[Fields | None]:
    """Entries of ``journalctl -o json``, one a line; None for a line that is none."""
    for raw in body.split(b"\n"):
        if raw.strip():
            try:
                found = orjson.loads(raw)
            except orjson.JSONDecodeError:
                found = None
            yield found if isinstance(found, dict) else None


def journal_batch(body: bytes, now: float, parse: Parse) -> tuple[Batch, int]:
    """The events of one push, and how many entries no rule hits. ``now`` in unix s.

    Raises SourceError(permanent=True) where nothing of the body can be read.
    """
    dropped: Counter[str] = Counter()
    by_host: dict[str, list[Line]] = {}
    read = from_json if body.lstrip()[:1] == b"{" else from_export
    for fields in read(body):
        said = entry(fields) if fields is not None else None
        if said is None or fields is None or "__REALTIME_TIMESTAMP" not in fields:
            dropped[UNREADABLE] += 1
        elif not is_host(said.host):
            dropped[NO_HOST] += 1
        else:
            by_host.setdefault(said.host, []).append(Line(said, spoken(said), str(fields.get("__CURSOR", ""))))
    lines = sum(map(len, by_host.values()))
    if not lines:
        raise SourceError(
            "The body holds no entry of a journal with its host. Send journalctl -o export, or -o json.", permanent=True
        )
    found: list[RawEvent] = []
    for host, said_here in by_host.items():
        found += events(said_here, parse, host, now)
    return Batch("journal push", now, now, events=tuple(found), dropped=dropped), max(0, lines - len(found))
