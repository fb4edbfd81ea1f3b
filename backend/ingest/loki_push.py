"""Lines that a collector pushes as it would to Loki: promtail, Alloy, Fluent Bit, Vector; as JSON or as protobuf."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cramjam
import orjson

from backend.clients.hostlist import is_host
from backend.clients.loki import Entry
from backend.facts import Batch
from backend.ingest import protobuf
from backend.ingest.base import SourceError
from backend.ingest.loki_lines import LokiLines, host_of
from backend.ingest.rows import MAX_AHEAD_S
from backend.ingest.tails import Tails

#: Entries of one push; collectors send a few thousand.
MOST_ENTRIES = 500_000
PROTOBUF = "application/x-protobuf"
NO_HOST = "lines whose stream names no host"
AHEAD = "lines from more than a few minutes ahead"
UNREADABLE = "entries that could not be read"
_NS = 1_000_000_000
#: ``{job="x", host="gpu-7"}``, with escapes as in Go.
_LABEL = re.compile(r'([A-Za-z_][\w.:]{0,127})\s{0,4}=\s{0,4}"((?:[^"\\]|\\.){0,4096})"')
_ESCAPE = re.compile(r"\\(.)")
_MEANS = {"n": "\n", "t": "\t"}


def is_loki(body: bytes, content_type: str) -> bool:
    """Whether a push speaks Loki's language: by its type, or as an object of streams."""
    if content_type.partition(";")[0].strip().lower() == PROTOBUF:
        return True
    return body[:200].lstrip().startswith(b"{") and b'"streams"' in body[:200]


def entries_of(body: bytes, content_type: str, most_bytes: int) -> tuple[list[Entry], Counter[str]]:
    """The lines of one push in the order of their streams, and what was left out, by reason. Protobuf comes as a snappy
    block that may unpack to ``most_bytes``.

    Raises SourceError(permanent=True) where the body as a whole cannot be read.
    """
    binary = content_type.partition(";")[0].strip().lower() == PROTOBUF
    streams = _packed(body, most_bytes) if binary else _written(body)
    found: list[Entry] = []
    dropped: Counter[str] = Counter()
    for entry in streams:
        if entry is None:
            dropped[UNREADABLE] += 1
        elif not is_host(host_of(entry.labels)):
            dropped[NO_HOST] += 1
        elif len(found) >= MOST_ENTRIES:
            raise SourceError(f"The body holds over {MOST_ENTRIES:,} lines. Send less at once.", permanent=True)
        else:
            found.append(entry)
    return found, dropped


def loki_batch(
    entries: Sequence[Entry], dropped: Mapping[str, int], now: float, lines: LokiLines, tails: Tails | None = None
) -> Batch:
    """Events of the lines; those of a job go into its tail. ``now`` in unix s. A line far ahead of it is left out."""
    latest = int((now + MAX_AHEAD_S) * _NS)
    taken = [entry for entry in entries if entry.ns <= latest]
    left = Counter(dropped)
    left[AHEAD] += len(entries) - len(taken)
    return Batch("loki push", now, now, events=tuple(lines.heard(taken, now, tails)), dropped=+left)


# --- JSON -----------------------------------------------------------------------------------------------------------


def _written(body: bytes) -> Iterator[Entry | None]:
    """``{"streams": [{"stream": {...}, "values": [["<ns>", "line", {...}?], ...]}]}``."""
    try:
        streams = orjson.loads(body)["streams"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise _no("it is no JSON object with streams") from error
    if not isinstance(streams, list):
        raise _no("its streams are no list")
    for stream in streams:
        labels = stream.get("stream") if isinstance(stream, dict) else None
        values = stream.get("values") if isinstance(stream, dict) else None
        if not isinstance(labels, dict) or not isinstance(values, list):
            yield None
            continue
        said = {str(name): str(value) for name, value in labels.items()}
        for value in values:
            yield _value(value, said)


def _value(value: Any, labels: Mapping[str, str]) -> Entry | None:
    if not isinstance(value, list) or len(value) < 2 or not isinstance(value[1], str):
        return None
    at, more = str(value[0]), value[2] if len(value) > 2 and isinstance(value[2], dict) else {}
    if not (at.isascii() and at.isdigit() and len(at) < 20):
        return None
    return Entry(int(at), {**labels, **{str(name): str(text) for name, text in more.items()}}, value[1])


# --- protobuf -------------------------------------------------------------------------------------------------------


def _packed(body: bytes, most_bytes: int) -> Iterator[Entry | None]:
    """logproto.PushRequest: streams = 1; of a stream labels = 1, entries = 2; of an entry timestamp = 1, line = 2,
    structured metadata = 3."""
    for number, stream in protobuf.fields(memoryview(_unpacked(body, most_bytes))):
        if number != 1:
            continue
        labels: Mapping[str, str] = {}
        entries: list[memoryview] = []
        for part, value in protobuf.fields(protobuf.message(stream)):
            if part == 1:
                labels = labels_of(protobuf.text(value))
            elif part == 2:
                entries.append(protobuf.message(value))
        for entry in entries:
            yield _entry(entry, labels)


def _entry(raw: memoryview, labels: Mapping[str, str]) -> Entry:
    ns, line, more = 0, "", {}
    for number, value in protobuf.fields(raw):
        if number == 1:
            parts = {part: protobuf.whole(many) for part, many in protobuf.fields(protobuf.message(value))}
            ns = parts.get(1, 0) * _NS + parts.get(2, 0)
        elif number == 2:
            line = protobuf.text(value)
        elif number == 3:
            pair = {part: protobuf.text(text) for part, text in protobuf.fields(protobuf.message(value))}
            more[pair.get(1, "")] = pair.get(2, "")
    return Entry(max(0, ns), {**labels, **more}, line)


def _unpacked(body: bytes, most_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(body)
        if size > most_bytes:
            raise SourceError(f"The body would unpack to {size:,} bytes, the limit is {most_bytes:,}.", permanent=True)
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise _no("it is no snappy block") from error


def labels_of(text: str) -> dict[str, str]:
    """``{job="x", host="gpu-7"}`` as pairs; what cannot be read of it is left out."""
    return {name: _ESCAPE.sub(lambda one: _MEANS.get(one[1], one[1]), value) for name, value in _LABEL.findall(text)}


def _no(why: str) -> SourceError:
    return SourceError(
        f'The body is no push of Loki: {why}. Send {{"streams": [{{"stream": {{"host": ...}}, "values": [["<ns>", '
        '"line"]]}]} as JSON, or protobuf in a snappy block.',
        permanent=True,
    )
