"""Real journals, written by systemd-journal-remote and read by the real journalctl: nothing lost, nothing twice."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from backend.facts import Batch
from backend.ingest.journal import JournalSource
from detectors.kernel.lines import parse
from tests.services.need import need

AT = 1_754_900_000.0
BOOT = "0123456789abcdef0123456789abcdef"
XID = "NVRM: Xid (PCI:0000:5d:00): 79, pid=1, name=python, GPU has fallen off the bus."
MATCHES = ("_TRANSPORT=kernel", "SYSLOG_IDENTIFIER=nv-fabricmanager")


@pytest.fixture
def remote() -> str:
    """The program that makes journals of exports; WATCHKEEPER_JOURNAL_REMOTE may name another."""
    need("journalctl", "systemd")
    return os.environ.get("WATCHKEEPER_JOURNAL_REMOTE") or need("systemd-journal-remote", "systemd-journal-remote")


def exported(n: int, message: bytes, **more: str) -> bytes:
    """An entry as journalctl -o export prints it, binary where the message has several lines."""
    fields: Mapping[str, str] = {
        "__REALTIME_TIMESTAMP": str(int((AT - 1000 + n) * 1e6)), "__MONOTONIC_TIMESTAMP": str(n * 1_000_000),
        "_BOOT_ID": BOOT, "_MACHINE_ID": BOOT, "_HOSTNAME": "gpu-7", "_TRANSPORT": "kernel", "PRIORITY": "3",
        "SYSLOG_IDENTIFIER": "kernel", "_SOURCE_MONOTONIC_TIMESTAMP": str(n * 1_000_000), **more,
    }  # fmt: skip
    text = b"".join(f"{name}={value}\n".encode() for name, value in fields.items())
    if b"\n" in message or b"\xff" in message:
        return text + b"MESSAGE\n" + len(message).to_bytes(8, "little") + message + b"\n\n"
    return text + b"MESSAGE=" + message + b"\n\n"


def journal(remote: str, folder: Path, name: str, *entries: bytes) -> None:
    """One more journal file in a folder, as an agent that gathers them leaves it."""
    made = [remote, f"--output={folder / name}.journal", "-"]
    subprocess.run(made, input=b"".join(entries), check=True, capture_output=True, timeout=60)


def read(made: JournalSource) -> Batch:
    return made.read(frozenset(), AT - 1, AT)


def codes(batch: Batch) -> list[tuple[str, str, str]]:
    return [(event.host, event.namespace, event.code) for event in batch.events]


def test_entries_of_a_real_journal_are_events_once_and_go_on_behind_their_cursor(remote: str, tmp_path: Path) -> None:
    user = {"_TRANSPORT": "syslog", "_UID": "2044"}
    journal(
        remote, tmp_path, "a",
        exported(1, b"usb 1-1: new high-speed USB device"),
        exported(2, XID.encode()),
        exported(3, XID.encode(), SYSLOG_IDENTIFIER="kernel", **user),
        exported(4, b"first\n" + XID.replace("5d", "9b").encode(), _HOSTNAME="gpu-8"),
        exported(5, b"\xff\xfe" + XID.replace("5d", "1b").encode()),
        exported(6, b"x" * 20_000),
    )  # fmt: skip
    made = JournalSource(parse, "head", MATCHES, str(tmp_path))
    made.resume({})
    first = read(made)
    assert ("gpu-7", "xid", "79") in codes(first) and ("gpu-8", "xid", "79") in codes(first)
    assert "0000:5d:00" in {event.pci for event in first.events}
    assert len(first.events) <= 3, "a user who calls himself the kernel is none"
    assert read(made).events == () and read(made).marks == {}
    journal(remote, tmp_path, "b", exported(10, XID.replace("5d", "aa").encode()))
    again = JournalSource(parse, "head", MATCHES, str(tmp_path))
    again.resume({name: str(mark) for name, mark in first.marks.items()})
    assert [event.pci for event in read(again).events] == ["0000:aa:00"]


def test_two_thousand_entries_of_a_real_journal_are_all_read(remote: str, tmp_path: Path) -> None:
    entries = [exported(n, XID.replace("5d", f"{n % 200:02x}").encode()) for n in range(1, 1_901)]
    journal(remote, tmp_path, "a", *entries)
    made = JournalSource(parse, "head", MATCHES, str(tmp_path), timeout_s=30.0)
    made.resume({})
    found = read(made).events
    assert len({event.dedupe for event in found}) == 1_900
