"""Log lines that are JSON objects: docker's, the journal's, our own rows, and what collectors write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from backend.ingest.linetimes import Origin, from_iso, from_seconds
from backend.ingest.said import Said

#: Names under which collectors keep the same thing, in order of trust.
TIMES = ("ts", "timestamp", "@timestamp", "time", "date")
TEXTS = ("line", "message", "msg", "log", "MESSAGE", "text")
HOSTS = ("host", "hostname", "node", "nodename", "_HOSTNAME", "host.name")
SOURCES = ("source", "program", "appname", "ident", "SYSLOG_IDENTIFIER", "unit", "logger")
#: A program's name, in characters, and what cannot stand in one.
MOST_NAME = 60
_NO_NAME = re.compile(r"[^A-Za-z0-9_.@/\-]")
#: Fields of the journal and the attribute that each becomes.
_KEPT = {"_BOOT_ID": "boot", "__SEQNUM": "seq", "PRIORITY": "level", "_SYSTEMD_UNIT": "unit"}


def object_of(line: str) -> Mapping[str, Any] | None:
    """The JSON object that a line is; None for anything else."""
    if not line.startswith("{"):
        return None
    try:
        found = orjson.loads(line)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return None
    return found if isinstance(found, dict) else None


def docker(line: str, origin: Origin) -> Said | None:
    """``{"log": "text\\n", "stream": "stdout", "time": "..."}``: docker's json-file."""
    found = object_of(line)
    if found is None or not (isinstance(found.get("log"), str) and isinstance(found.get("time"), str)):
        return None
    text, stream = found["log"], str(found.get("stream", "stdout"))
    attrs = {"stream": stream} | ({} if text.endswith("\n") else {"part": "1"})
    return Said(from_iso(found["time"], origin), text.rstrip("\r\n"), "", stream, attrs)


def journal(line: str, origin: Origin) -> Said | None:
    """An entry of ``journalctl -o json``."""
    found = object_of(line)
    return entry(found) if found is not None and "__REALTIME_TIMESTAMP" in found else None


def entry(fields: Mapping[str, Any]) -> Said | None:
    """What an entry of the journal says, from its fields; None for one without a message.

    The kernel's own time is kept beside that of the journal: equal lines of /dev/kmsg have the same.
    """
    text = text_of(fields.get("MESSAGE"))
    at = from_seconds(one(fields.get("_SOURCE_REALTIME_TIMESTAMP")) or one(fields.get("__REALTIME_TIMESTAMP")))
    if text is None:
        return None
    transport = one(fields.get("_TRANSPORT"))
    kernel = transport == "kernel"
    tag = one(fields.get("SYSLOG_IDENTIFIER")) or one(fields.get("_COMM"))
    tag = program(tag) if transport else tag
    attrs = {name: said for field, name in _KEPT.items() if (said := one(fields.get(field)))}
    if transport and not kernel and one(fields.get("_UID")) != "0":
        attrs["unproven"] = "1"  # anybody may take any name; only whose account it was stands fast
    if kernel and (since := one(fields.get("_SOURCE_MONOTONIC_TIMESTAMP"))):
        attrs["monotonic_us"] = since
    return Said(at, text, one(fields.get("_HOSTNAME")), "kernel" if kernel else tag, attrs)


def program(tag: str) -> str:
    """The name that a program gives itself, as one word that is never the kernel's: anybody may choose any text."""
    word = _NO_NAME.sub("_", tag.strip())[:MOST_NAME]
    return word if word[:1].isalpha() and word.lower() != "kernel" else f"_{word}"


def one(value: Any) -> str:
    """A field as text; of one that came several times, the first."""
    if isinstance(value, list) and value and not isinstance(value[0], int):
        value = value[0]
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def text_of(value: Any) -> str | None:
    """A message: text, a list of bytes where it is none, or a list of several; None where it was too long to print."""
    if isinstance(value, list):
        if value and all(isinstance(part, int) and 0 <= part < 256 for part in value):
            return bytes(value).decode(errors="replace")
        return next((text for part in value if (text := text_of(part)) is not None), None)
    return value if isinstance(value, str) else None


def bundle(line: str, origin: Origin) -> Said | None:
    """``{"ts", "host", "source", "line", "job"?, "rank"?}``: the rows of a bundle and of ingest/logs."""
    found = object_of(line)
    if found is None or not isinstance(found.get("line"), str) or "ts" not in found:
        return None
    attrs = {name: one(found.get(name)) for name in ("job", "rank") if one(found.get(name))}
    return Said(_time(found["ts"], origin), found["line"], one(found.get("host")), one(found.get("source")), attrs)


def anything(line: str, origin: Origin) -> Said | None:
    """An object with a time and a text under one of the names that collectors use."""
    found = object_of(line)
    text = _first(found, TEXTS) if found is not None else None
    if found is None or not isinstance(text, str):
        return None
    at = _time(_first(found, TIMES), origin)
    return Said(at, text.rstrip("\r\n"), one(_first(found, HOSTS)), one(_first(found, SOURCES)))


def _first(found: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((found[name] for name in names if found.get(name)), None)


def _time(value: Any, origin: Origin) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return from_seconds(repr(value))
    return (from_iso(value, origin) or from_seconds(value)) if isinstance(value, str) else None
