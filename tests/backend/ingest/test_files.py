"""Log files as a source: which files are meant, what their lines say, and nothing twice over restarts and sources."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path

import pytest

from backend.clock import ManualClock, unix
from backend.facts import Batch
from backend.ingest.base import Follows, SourceError
from backend.ingest.files import MOST_EVENTS, OLD_BYTES, RESCAN_S, WAIT_S, FileSource, Where
from backend.ingest.follow import Budget
from backend.ingest.heard import Boot, this_boot
from backend.ingest.patterns import Pattern
from backend.loops import Pull
from backend.store.engine import Store
from backend.store.marks import marks
from detectors.kernel.lines import parse, scanner
from tests.backend.bench import Bench
from tests.conftest import NOW

AT = unix(NOW)
HERE = Where("head-1", Boot(AT - 1000.0, "b00t"), UTC)
LOST = "GPU has fallen off the bus."


def xid(n: int = 79, host: str = "gpu-7", at: str = "Mar  1 11:59:00", bus: str = "9d") -> str:
    return f"{at} {host} kernel: NVRM: Xid (PCI:0000:{bus}:00): {n}, pid=1, name=python, {LOST}"


def source(*patterns: str | Path, budget: Budget | None = None, where: Where = HERE) -> FileSource:
    made = FileSource([str(one) for one in patterns], parse, scanner().hits, where, budget)
    made.resume({})
    return made


def codes(batch: Batch) -> list[tuple[str, str]]:
    return [(event.host, event.code) for event in batch.events]


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


def read(made: FileSource, at: float = AT) -> Batch:
    return made.read(frozenset(), at - 1, at)


def test_it_is_a_source_that_follows(tmp_path: Path) -> None:
    assert isinstance(source(tmp_path / "x"), Follows)


def test_a_kernel_line_of_a_file_is_an_event_of_its_host_and_time(tmp_path: Path) -> None:
    write(tmp_path / "messages", "Mar  1 11:58:59 gpu-7 sshd[1]: hello", xid())
    (event,) = read(source(tmp_path / "messages")).events
    assert (event.at, event.host, event.namespace, event.code) == (AT - 60, "gpu-7", "xid", "79")
    assert event.pci == "0000:9d:00" and event.attrs["source"] == "kernel"


def test_what_a_program_quotes_is_not_the_kernels_word(tmp_path: Path) -> None:
    quoted = xid().replace("kernel:", "sshd[7]:")
    entry = {"__REALTIME_TIMESTAMP": str(int(AT * 1e6)), "MESSAGE": xid()[29:], "SYSLOG_IDENTIFIER": "bash"}
    printed = f"2026-03-01T11:59:00Z stdout F {xid()[29:]}"
    write(tmp_path / "a", quoted)
    write(tmp_path / "b", json.dumps(entry))
    write(tmp_path / "c", printed)
    assert read(source(*(tmp_path / name for name in "abc"))).events == ()


def test_the_host_may_stand_in_the_path(tmp_path: Path) -> None:
    write(tmp_path / "gpu-1" / "kmsg.log", "4,1,2000000,-;" + xid()[29:])
    write(tmp_path / "gpu-2" / "kmsg.log", "4,1,2000000,-;" + xid()[29:])
    batch = read(source(f"{tmp_path}/{{host}}/*.log"))
    assert codes(batch) == [("gpu-1", "79"), ("gpu-2", "79")]
    assert {event.at for event in batch.events} == {AT}, "their boots are not ours: the time of reading stands"
    assert len({event.dedupe for event in batch.events}) == 2


def test_records_of_this_host_are_timed_by_its_boot_and_the_journal_gives_the_same_key(tmp_path: Path) -> None:
    write(tmp_path / "kmsg", "4,1,2000000,-;" + xid()[29:])
    entry = {
        "__REALTIME_TIMESTAMP": str(int(AT * 1e6)), "MESSAGE": xid()[29:], "_TRANSPORT": "kernel", "_BOOT_ID": "b00t",
        "_HOSTNAME": "head-1", "_SOURCE_MONOTONIC_TIMESTAMP": "2000000",
    }  # fmt: skip
    write(tmp_path / "journal.json", json.dumps(entry))
    one, two = read(source(tmp_path / "kmsg", tmp_path / "journal.json")).events
    assert one.at == AT - 998.0 and one.dedupe == two.dedupe
    assert one.attrs["boot"] == "b00t" and one.attrs["seq"] == "1"


def test_a_time_ahead_of_ours_is_taken_as_now(tmp_path: Path) -> None:
    write(tmp_path / "log", xid(at="Mar  1 13:59:00"))
    assert read(source(tmp_path / "log")).events[0].at == AT


def test_a_message_of_three_lines_that_comes_in_parts_is_one_event(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    head = "Mar  1 11:59:00 gpu-7 kernel: NVRM: The NVIDIA GPU 0000:9d:00.0"
    tail = ["Mar  1 11:59:00 gpu-7 kernel: NVRM: (PCI ID: 10de:2330) installed in this system has"]
    tail.append(f"Mar  1 11:59:00 gpu-7 kernel: NVRM: {LOST[4:]}")
    write(log, "Mar  1 11:59:00 gpu-7 kernel: usb 1-1: new device", xid(bus="11"), head)
    made = source(log)
    first = read(made)
    write(log, *tail)
    second = read(made, AT + WAIT_S + 1)
    third = read(made, AT + 2 * WAIT_S + 2)
    found = [(event.code, event.pci) for batch in (first, second, third) for event in batch.events]
    assert ("79", "0000:9d:00") in found and found.count(("79", "0000:9d:00")) == 1
    assert found.count(("79", "0000:11:00")) == 1


def test_files_of_a_pattern_are_found_as_they_come_and_leftovers_are_left(tmp_path: Path) -> None:
    write(tmp_path / "a.log", xid())
    write(tmp_path / "a.log.1", xid(13))
    (tmp_path / "a.log.2.gz").write_bytes(b"\x1f\x8b" + xid(13).encode())
    made = source(f"{tmp_path}/*")
    assert codes(read(made)) == [("gpu-7", "79")]
    write(tmp_path / "b.log", xid(48))
    assert codes(read(made, AT + 1)) == []
    assert codes(read(made, AT + RESCAN_S + 1)) == [("gpu-7", "48")]


def test_of_old_files_only_the_end_is_read_and_of_new_ones_everything(tmp_path: Path) -> None:
    filler = "Mar  1 11:00:00 gpu-7 kernel: usb 1-1: reset\n" * (OLD_BYTES // 40)
    (tmp_path / "old.log").write_text(xid(13) + "\n" + filler + xid(79) + "\n", encoding="utf-8")
    made = source(f"{tmp_path}/*.log")
    assert codes(read(made)) == [("gpu-7", "79")]
    (tmp_path / "new.log").write_text(xid(13) + "\n" + filler + xid(48) + "\n", encoding="utf-8")
    assert codes(read(made, AT + RESCAN_S + 1)) == [("gpu-7", "13"), ("gpu-7", "48")]


def test_where_no_file_can_be_read_the_source_is_dark_and_says_why(tmp_path: Path) -> None:
    made = source(tmp_path / "none.log", tmp_path / "other.log")
    with pytest.raises(SourceError, match=r"none.log: is not there, and 1 more"):
        read(made)
    write(tmp_path / "none.log", xid())
    assert codes(read(made)) == [("gpu-7", "79")]
    assert read(source(f"{tmp_path}/nothing/*.log")).events == ()


def test_a_storm_comes_in_turns_and_nothing_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "log", *(xid(at=f"2026-03-01T11:00:00.{n:06}+00:00") for n in range(MOST_EVENTS + 999)))
    made = source(tmp_path / "log", budget=Budget(chunk_bytes=65_536))
    first = read(made)
    assert first.more and len(first.events) >= MOST_EVENTS
    assert len(first.events) + len(read(made).events) == MOST_EVENTS + 999


def test_files_that_nobody_asks_for_any_more_are_forgotten(tmp_path: Path) -> None:
    write(tmp_path / "a.log", xid())
    write(tmp_path / "b.log", xid())
    before = read(source(f"{tmp_path}/*.log"))
    made = source(tmp_path / "a.log")
    made.resume({name: mark for name, mark in before.marks.items() if mark is not None})
    after = read(made)
    assert after.marks[str(tmp_path / "b.log")] is None
    assert after.events == () and made.counts()["files"] == 1


@pytest.mark.parametrize("text", ["relative.log", "/a/{host}/{host}.log", ""])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="absolute path"):
        Pattern(text)


def test_patterns_mean_what_a_shell_means(tmp_path: Path) -> None:
    assert Pattern("/var/log/{host}/kern.log").host("/var/log/gpu-7/kern.log") == "gpu-7"
    assert Pattern("/var/log/{host}/kern.log").host("/var/log/a/b/kern.log") is None
    assert Pattern("/var/log/**/*.log").host("/var/log/a/b/x.log") == ""
    assert Pattern("/var/log/x[0-9].log").host("/var/log/x5.log") == ""
    assert Pattern("/var/log/x[!0-9].log").host("/var/log/x5.log") is None


def test_the_boot_of_this_host_is_known(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("11d2-aa\n")
    (tmp_path / "stat").write_text("cpu 1 2\nbtime 1772360000\n")
    assert this_boot(tmp_path) == Boot(1772360000.0, "11d2aa")
    assert this_boot(tmp_path / "none") is None


# --- in the loop ------------------------------------------------------------------------------------------------------


class Dies(Exception):
    """The process ends here."""


def events_in(store: Store) -> list[str]:
    with store.engine.connect() as connection:
        return [
            row[0] for row in connection.exec_driver_sql("select text from event where namespace = 'xid' order by id")
        ]


def test_a_crash_before_or_after_the_commit_loses_and_doubles_nothing(tmp_path: Path, sqlite_store: Store) -> None:
    log = tmp_path / "kern.log"
    clock = ManualClock(NOW)
    bench = Bench(sqlite_store, clock)
    lines = [xid(host="gpu-001", at=f"2026-03-01T11:00:{n:02}+00:00") for n in range(6)]

    def pull() -> Pull:
        made = source(log)
        return Pull(bench.watch, made, 1.0)

    write(log, lines[0])
    loop = pull()
    loop()
    write(log, lines[1])
    bench.watch.reached = _dying
    with pytest.raises(Dies):  # committed, but the loop never heard of it
        loop()
    bench.restart()
    write(log, lines[2])
    pull()()
    log.rename(tmp_path / "kern.log.1")
    write(tmp_path / "kern.log.1", lines[3])
    write(log, lines[4])
    loop = pull()
    loop()
    loop()
    write(log, lines[5])
    loop()
    assert sorted(events_in(sqlite_store)) == sorted(lines)
    with sqlite_store.read() as session:
        kept = marks(session, "main", "files")
    assert json.loads(kept[str(log)])["offset"] == log.stat().st_size


def _dying(point: str) -> None:
    raise Dies(point)


def test_a_batch_that_was_not_taken_is_read_again(tmp_path: Path, sqlite_store: Store) -> None:
    bench = Bench(sqlite_store, ManualClock(NOW))
    log = tmp_path / "kern.log"
    write(log, xid(host="gpu-001"))
    made = source(log)
    loop = Pull(bench.watch, made, 1.0)
    right, bench.watch.store = bench.watch.store, None  # type: ignore[assignment]  # the database is away
    with pytest.raises(AttributeError):
        loop()
    bench.watch.store = right
    loop()
    loop()
    assert len(events_in(sqlite_store)) == 1


def test_a_turn_that_brought_nothing_writes_nothing(tmp_path: Path, sqlite_store: Store) -> None:
    bench = Bench(sqlite_store, ManualClock(NOW))
    write(tmp_path / "kern.log", xid(host="gpu-001"))
    loop = Pull(bench.watch, source(tmp_path / "kern.log"), 1.0)
    loop()
    before = bench.watch.store
    bench.watch.store = None  # type: ignore[assignment]  # a write would fail
    assert loop() is False
    bench.watch.store = before


@pytest.mark.parametrize(
    ("name", "line", "unproven"),
    [
        ("messages", xid(), True),
        ("syslog", xid(), True),
        ("kern.log", xid(), False),
        ("dmesg", f"[  12.345678] NVRM: Xid (PCI:0000:9d:00): 79, {LOST}", False),
        ("messages", f"<3>{xid()}", False),
        ("messages", f"<11>{xid()}", True),
        ("all.json", '{"ts": 1772366340, "host": "gpu-7", "line": "NVRM: Xid (PCI:0000:9d:00): 79, x"}', False),
        (
            "all.json",
            '{"time": "2026-03-01T11:59:00Z", "host": "gpu-7", "msg": "NVRM: Xid (PCI:0000:9d:00): 79"}',
            True,
        ),
    ],
)
def test_a_line_where_anybody_may_be_called_the_kernel_is_marked(
    tmp_path: Path, name: str, line: str, unproven: bool
) -> None:
    """logger -t kernel writes into syslog what the kernel would; loggers keep its facility and its own files for it."""
    write(tmp_path / name, line)
    (event,) = read(source(tmp_path / name)).events
    assert ("unproven" in event.attrs) == unproven
    trusting = FileSource([str(tmp_path / name)], parse, scanner().hits, HERE, trusted=True)
    trusting.resume({})
    assert "unproven" not in read(trusting).events[0].attrs
