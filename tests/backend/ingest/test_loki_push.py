"""What collectors push to Loki: read alike as JSON and as protobuf, believed as far as it can be, never raising."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from pathlib import Path

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.clients.loki import Entry
from backend.ingest.base import SourceError
from backend.ingest.files import Where
from backend.ingest.loki_lines import LokiLines
from backend.ingest.loki_push import AHEAD, NO_HOST, UNREADABLE, entries_of, is_loki, labels_of, loki_batch
from backend.ingest.tails import Tails
from detectors.kernel.lines import parse

AT = 1_770_000_000.0
NS = 1_000_000_000
XID = "NVRM: Xid (PCI:0000:9d:00): 79, pid=1, name=python, GPU has fallen off the bus."
KERNEL = {"job": "systemd-journal", "transport": "kernel", "hostname": "gpu-7"}
PROTOBUF = "application/x-protobuf"


def written(labels: Mapping[str, str], *lines: str, at: float = AT) -> bytes:
    values = [[str(int(at * NS) + n), line] for n, line in enumerate(lines)]
    return json.dumps({"streams": [{"stream": labels, "values": values}]}).encode()


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def _chunk(number: int, raw: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def packed(labels: Mapping[str, str], *lines: str, at: float = AT, more: Mapping[str, str] | None = None) -> bytes:
    """As promtail sends it."""
    text = "{" + ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"
    stream = _chunk(1, text.encode())
    for n, line in enumerate(lines):
        stamp = b"\x08" + _varint(int(at)) + b"\x10" + _varint(n)
        pairs = b"".join(
            _chunk(3, _chunk(1, name.encode()) + _chunk(2, value.encode())) for name, value in (more or {}).items()
        )
        stream += _chunk(2, _chunk(1, stamp) + _chunk(2, line.encode()) + pairs)
    return bytes(cramjam.snappy.compress_raw(_chunk(1, stream + b"\x18\x07")))


def read(body: bytes, kind: str = "application/json") -> Sequence[Entry]:
    return entries_of(body, kind, 1_000_000)[0]


def codes(entries: Sequence[Entry], *, trusted: bool = False) -> list[tuple[str, str, bool]]:
    lines = LokiLines(parse, Where("head", None, UTC), trusted=trusted)
    batch = loki_batch(entries, {}, AT + 1, lines)
    return [(event.host, event.code, "unproven" in event.attrs) for event in batch.events]


def test_json_and_protobuf_say_the_same() -> None:
    lines = ("hello", XID, 'with "quotes"')
    assert read(written(KERNEL, *lines)) == read(packed(KERNEL, *lines), PROTOBUF)
    assert codes(read(packed(KERNEL, *lines), PROTOBUF)) == [("gpu-7", "79", False)]


def test_structured_metadata_counts_as_labels() -> None:
    (entry,) = read(packed({"app": "x"}, XID, more={"host": "gpu-9", "transport": "kernel"}), PROTOBUF)
    assert codes([entry]) == [("gpu-9", "79", False)]
    body = json.dumps({"streams": [{"stream": {"app": "x"}, "values": [["1", XID, {"host": "gpu-9"}]]}]}).encode()
    assert read(body)[0].labels == {"app": "x", "host": "gpu-9"}


@pytest.mark.parametrize(
    ("labels", "unproven"),
    [
        ({"transport": "kernel"}, False),
        ({}, True),
        ({"syslog_identifier": "kernel"}, True),
        ({"filename": "/var/log/syslog"}, True),
        ({"filename": "/var/log/kern.log"}, False),
        ({"facility": "kern"}, False),
    ],
)
def test_without_a_transport_only_the_facility_or_the_file_proves_the_kernel(
    labels: dict[str, str], unproven: bool
) -> None:
    line = f"Feb  2 02:40:00 gpu-7 kernel: {XID}"
    entries = read(written({"host": "gpu-7", **labels}, line))
    assert codes(entries) == [("gpu-7", "79", unproven)]
    assert codes(entries, trusted=True) == [("gpu-7", "79", False)]


def test_containers_and_programs_are_never_the_kernel() -> None:
    assert codes(read(written({"host": "gpu-7", "pod": "train-0"}, XID))) == []
    assert codes(read(written({"host": "gpu-7", "transport": "stdout", "unit": "x.service"}, XID))) == []


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    body = json.dumps(
        {
            "streams": [
                {"stream": {"app": "x"}, "values": [["1", XID]]},
                {
                    "stream": KERNEL,
                    "values": [["1"], ["x", XID], [str(int((AT + 9e5) * NS)), XID], [str(int(AT * NS)), XID]],
                },
                "no stream",
            ]
        }
    ).encode()
    entries, dropped = entries_of(body, "application/json", 1_000)
    batch = loki_batch(entries, dropped, AT + 1, LokiLines(parse, Where("head", None, UTC)), Tails(tmp_path))
    assert dict(batch.dropped) == {NO_HOST: 1, UNREADABLE: 3, AHEAD: 1}
    assert len(batch.events) == 1


def test_lines_of_a_job_go_into_its_tail(tmp_path: Path) -> None:
    tails = Tails(tmp_path)
    lines = LokiLines(parse, Where("head", None, UTC), "slurm_job")
    entries = read(written({"host": "gpu-7", "slurm_job": "48213"}, "step 1", XID))
    batch = loki_batch(entries, {}, AT + 1, lines, tails)
    tails.flush()
    assert batch.events == () and [line.text for line in tails.tail("48213")] == ["step 1", XID]


def test_labels_are_read_with_their_escapes() -> None:
    assert labels_of(r'{host="gpu-7", app="a\"b\\c", x=""}') == {"host": "gpu-7", "app": 'a"b\\c', "x": ""}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"),
        (b"[]", "application/json"),
        (b'{"streams": 3}', "application/json"),
        (b"\xff\xff", PROTOBUF),
        (bytes(cramjam.snappy.compress_raw(b"\x07\x07\x07")), PROTOBUF),
        (bytes(cramjam.snappy.compress_raw(b"\0" * 10_000_000)), PROTOBUF),
    ],
)
def test_what_is_no_push_is_refused_with_the_reason(body: bytes, kind: str) -> None:
    with pytest.raises(SourceError) as caught:
        entries_of(body, kind, 1_000_000)
    assert caught.value.permanent


def test_rows_of_our_own_are_not_taken_for_lokis() -> None:
    row = b'{"ts": 1, "host": "a", "source": "kernel", "line": "the word \\"streams\\""}'
    assert not is_loki(row, "application/json") and is_loki(written(KERNEL), "") and is_loki(b"", PROTOBUF)


@settings(max_examples=150, deadline=1000)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(some: bytes) -> None:
    for body, kind in ((some, PROTOBUF), (bytes(cramjam.snappy.compress_raw(some)), PROTOBUF), (some, "")):
        with suppress(SourceError):
            entries_of(body, kind, 10_000)
