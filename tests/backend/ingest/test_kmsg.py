"""The kernel's ring: each record once, over restarts, overwritten records and boots."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from pathlib import Path

import pytest

from backend.ingest.base import Follows, SourceError
from backend.ingest.files import Where
from backend.ingest.heard import Boot
from backend.ingest.kmsg import KmsgSource
from detectors.kernel.lines import parse

AT = 1_770_000_000.0
XID = "NVRM: Xid (PCI:0000:9d:00): 79, pid=1, name=python, GPU has fallen off the bus."


class Ring:
    """Records, and what else a read may meet."""

    def __init__(self, *left: bytes | OSError) -> None:
        self.left = list(left)

    def read(self, fd: int) -> bytes:
        if not self.left:
            raise BlockingIOError
        found = self.left.pop(0)
        if isinstance(found, OSError):
            raise found
        return found


def record(seq: int, text: str = XID) -> bytes:
    return f"4,{seq},{seq * 1_000_000},-;{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:9d:00.0\n".encode()


def source(ring: Ring, marks: Mapping[str, str] | None = None, boot: str = "b00t") -> KmsgSource:
    made = KmsgSource(parse, Where("gpu-7", Boot(AT - 100, boot), UTC), "/dev/null", ring.read)
    made.resume(marks or {})
    return made


def test_records_are_events_timed_by_the_boot() -> None:
    made = source(Ring(record(1, "usb 1-1: new"), record(2)))
    batch = made.read(frozenset(), AT - 1, AT)
    (event,) = batch.events
    assert isinstance(made, Follows)
    assert (event.at, event.host, event.code, event.attrs["seq"], event.attrs["boot"]) == (
        AT - 98,
        "gpu-7",
        "79",
        "2",
        "b00t",
    )
    assert made.counts()["lines"] == 2


def test_a_restart_reads_the_ring_again_and_tells_only_what_is_new() -> None:
    first = source(Ring(record(1), record(2))).read(frozenset(), AT - 1, AT)
    kept = {name: mark for name, mark in first.marks.items() if mark is not None}
    second = source(Ring(record(1), record(2), record(3)), kept).read(frozenset(), AT, AT + 1)
    assert [event.attrs["seq"] for event in second.events] == ["3"]
    other = source(Ring(record(1)), kept, boot="other").read(frozenset(), AT, AT + 1)
    assert len(other.events) == 1


def test_overwritten_and_broken_records_are_counted_and_the_rest_is_read() -> None:
    made = source(Ring(BrokenPipeError(), b"nonsense", b"\xff\xfe", record(9)))
    assert len(made.read(frozenset(), AT - 1, AT).events) == 1
    assert made.counts() == {
        "times that records were overwritten before they were read": 1,
        "records that could not be read": 2,
        "lines": 1,
    }


def test_nothing_new_moves_no_mark() -> None:
    assert source(Ring()).read(frozenset(), AT - 1, AT).marks == {}


def test_a_device_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    made = KmsgSource(parse, Where("gpu-7"), str(tmp_path / "kmsg"))
    made.resume({"kmsg": "nonsense"})
    with pytest.raises(SourceError, match="kmsg: No such file"):
        made.read(frozenset(), AT - 1, AT)
    refused = source(Ring(PermissionError(1, "Operation not permitted")))
    with pytest.raises(SourceError, match="Operation not permitted") as caught:
        refused.read(frozenset(), AT - 1, AT)
    assert caught.value.permanent
