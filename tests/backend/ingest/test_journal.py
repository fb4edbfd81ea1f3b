"""The journal: entries once by their cursor, messages that are no text, a command that is missing, hangs or fails."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.facts import Batch
from backend.ingest.base import Follows, SourceError
from backend.ingest.journal import JournalSource, run_some
from detectors.kernel.lines import parse

AT = 1_770_000_000.0
XID = "NVRM: Xid (PCI:0000:9d:00): 79, pid=1, name=python, GPU has fallen off the bus."


def entry(n: int, message: object = XID, **more: object) -> str:
    fields = {
        "__CURSOR": f"s=1;i={n}", "__REALTIME_TIMESTAMP": str(int((AT - 100 + n) * 1e6)), "_BOOT_ID": "b00t",
        "_TRANSPORT": "kernel", "_SOURCE_MONOTONIC_TIMESTAMP": str(n * 1_000_000), "_HOSTNAME": "gpu-7",
        "SYSLOG_IDENTIFIER": "kernel", "PRIORITY": "4", "MESSAGE": message,
    }  # fmt: skip
    return json.dumps(fields | more)


class Journal:
    """Answers as journalctl does from a list of entries, and remembers what it was asked."""

    def __init__(self, *entries: str) -> None:
        self.entries = list(entries)
        self.asked: list[Sequence[str]] = []
        self.answer: tuple[bytes, str, int | None] | OSError | None = None

    def run(self, command: Sequence[str], timeout_s: float, most_bytes: int) -> tuple[bytes, str, int | None]:
        self.asked.append(command)
        answer, self.answer = self.answer, None
        if isinstance(answer, OSError):
            raise answer
        if answer is not None:
            return answer
        after = next((word.partition("=")[2] for word in command if word.startswith("--after-cursor")), "")
        known = [json.loads(one)["__CURSOR"] for one in self.entries]
        first = known.index(after) + 1 if after in known else 0
        return "".join(f"{one}\n" for one in self.entries[first:]).encode(), "", 0


def source(journal: Journal, matches: Sequence[str] = ("_TRANSPORT=kernel",), mark: str = "") -> JournalSource:
    made = JournalSource(parse, "head-1", matches, run=journal.run)
    made.resume({"journal": mark} if mark else {})
    return made


def read(made: JournalSource) -> Batch:
    return made.read(frozenset(), AT - 1, AT)


def test_entries_of_the_kernel_are_events_with_their_boot() -> None:
    (event,) = read(source(Journal(entry(1, "usb 1-1: new"), entry(2)))).events
    assert (event.at, event.host, event.code) == (AT - 98, "gpu-7", "79")
    assert event.attrs["boot"] == "b00t" and event.attrs["monotonic_us"] == "2000000"


def test_it_goes_on_behind_the_cursor_also_after_a_restart() -> None:
    journal = Journal(entry(1))
    made = source(journal)
    assert isinstance(made, Follows)
    first = read(made)
    assert first.marks == {"journal": "s=1;i=1"} and "--boot" in journal.asked[0]
    assert read(made).marks == {}
    journal.entries.append(entry(2))
    again = source(journal, mark="s=1;i=1")
    assert [event.at for event in read(again).events] == [AT - 98]
    assert "--after-cursor=s=1;i=1" in journal.asked[-1] and "--boot" not in journal.asked[-1]


def test_any_of_the_matches_suffices() -> None:
    journal = Journal()
    read(source(journal, ("_TRANSPORT=kernel", "SYSLOG_IDENTIFIER=slurmd")))
    assert list(journal.asked[0][-3:]) == ["_TRANSPORT=kernel", "+", "SYSLOG_IDENTIFIER=slurmd"]


def test_messages_that_are_bytes_or_came_twice_are_read() -> None:
    journal = Journal(
        entry(1, list(XID.encode() + b"\xff")), entry(2, ["first", XID]), entry(3, None), entry(4, [[1], 2])
    )
    found = read(source(journal)).events
    assert len(found) == 1 and found[0].text.endswith("\ufffd")


def test_a_message_of_several_lines_tells_each_code_under_its_own_key() -> None:
    two = f"{XID}\n{XID.replace('9d', '1b')}"
    found = read(source(Journal(entry(1, two)))).events
    assert [event.pci for event in found] == ["0000:9d:00", "0000:1b:00"]
    assert len({event.dedupe for event in found}) == 2


def test_what_a_service_says_is_not_the_kernels_word() -> None:
    journal = Journal(entry(1, _TRANSPORT="stdout", SYSLOG_IDENTIFIER="job"))
    assert read(source(journal)).events == ()


def test_lines_of_two_hosts_are_not_joined() -> None:
    parts = ["NVRM: The NVIDIA GPU 0000:9d:00.0", "NVRM: (PCI ID: 10de:2330) installed in this system has",
             "NVRM: fallen off the bus and is not responding to commands."]  # fmt: skip
    entries = [entry(3 * n + m, text, _HOSTNAME=f"gpu-{m}") for n, text in enumerate(parts) for m in (1, 2)]
    found = read(source(Journal(*entries))).events
    assert sorted((event.host, event.code) for event in found) == [("gpu-1", "79"), ("gpu-2", "79")]


def test_an_entry_that_was_not_printed_whole_is_read_next_time() -> None:
    journal = Journal(entry(1), entry(2))
    journal.answer = (f"{entry(1)}\n{entry(2)[:40]}".encode(), "", None)
    made = source(journal)
    first = read(made)
    assert len(first.events) == 1 and first.more
    assert [event.at for event in read(made).events] == [AT - 98]


def test_a_cursor_that_was_vacuumed_away_begins_anew() -> None:
    journal = Journal(entry(5))
    made = source(journal, mark="s=0;i=1")
    journal.answer = (b"", "Failed to seek to cursor: Invalid argument", 1)
    assert len(read(made).events) == 1
    assert made.counts()["times that the cursor was no longer known"] == 1


def test_no_entries_is_no_failure() -> None:
    journal = Journal()
    journal.answer = (b"", "", 1)
    assert read(source(journal)).events == ()


@pytest.mark.parametrize(
    ("answer", "says", "permanent"),
    [
        (FileNotFoundError(2, "x"), "there is no journalctl here", True),
        (PermissionError(13, "Permission denied"), "cannot start: Permission denied", False),
        ((b"", "No journal files were opened due to insufficient permissions.", 1), "insufficient permissions", False),
        ((b"", "", None), "nothing within 10 s", False),
    ],
)
def test_what_goes_wrong_is_said(answer: tuple[bytes, str, int | None] | OSError, says: str, permanent: bool) -> None:
    journal = Journal()
    journal.answer = answer
    with pytest.raises(SourceError, match=says) as caught:
        read(source(journal))
    assert caught.value.permanent == permanent


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80), st.lists(st.integers(0, 99), max_size=3))
def test_no_output_raises(noise: bytes, cut: list[int]) -> None:
    journal = Journal()
    text = entry(1)
    for at in cut:
        text = text[:at] + text[at + 1 :]
    journal.answer = (noise + b"\n" + text.encode() + b"\n", "", 0)
    read(source(journal))


# --- the command ---------------------------------------------------------------------------------------------------


def script(folder: Path, text: str) -> str:
    path = folder / "journalctl"
    path.write_text(f"#!{sys.executable}\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_command_gives_its_outputs_and_its_end(tmp_path: Path) -> None:
    command = script(tmp_path, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert run_some([command], 20.0, 1000) == (b"out\n", "err", 3)


def test_a_command_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = script(
        tmp_path,
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pids)!r}, 'w').write(str(child.pid))\nprint('some', flush=True)\ntime.sleep(60)",
    )
    began = time.monotonic()
    out, _, code = run_some([command], 3.0, 1000)
    assert code is None and out == b"some\n" and time.monotonic() - began < 20
    child, deadline = int(pids.read_text()), time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_command_that_prints_without_end_is_stopped(tmp_path: Path) -> None:
    command = script(tmp_path, "while True: print('x' * 1000)")
    out, _, code = run_some([command], 20.0, 1_000_000)
    assert code is None and 1_000_000 <= len(out) < 2_000_000


def test_a_missing_command_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_some([os.fspath(tmp_path / "journalctl")], 1.0, 10)
