"""Files are followed through everything that happens to logs: each whole line comes once, whatever crashes."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.ingest.follow import CUT, STATS, Budget
from backend.ingest.leftovers import bases, is_leftover
from backend.ingest.track import MAX_LINE_BYTES, Track, cut
from tests.backend.ingest.following import GRACE_S, Reader, T, append

# --- one thing after another ------------------------------------------------------------------------------------------


def test_lines_come_once_as_they_are_written(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    append(log, "one", "two")
    reader = Reader(log)
    assert reader.turn() == ["one", "two"]
    assert reader.turn() == []
    append(log, "three")
    assert reader.turn() == ["three"]


def test_a_line_without_its_end_waits_for_it(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    append(log, "one", "tw", end="")
    reader = Reader(log)
    assert reader.turn() == []
    append(log, "o")
    assert reader.turn() == ["onetwo"]
    append(log, "three", end="")
    assert reader.drain() == []
    append(log, "!")
    assert reader.turn() == ["three!"]


def test_a_restart_goes_on_where_the_last_commit_left_off(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    append(log, "one")
    reader = Reader(log)
    reader.turn()
    append(log, "two")
    reader.turn(crash=True)
    append(log, "three")
    reader.turn()
    reader.start()
    append(log, "four")
    reader.turn()
    assert reader.lines == ["one", "two", "three", "four"]


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_written_before_and_after_a_rename_is_read_from_both(tmp_path: Path, restarted: bool) -> None:
    log = tmp_path / "kern.log"
    append(log, "one")
    reader = Reader(log)
    reader.turn()
    append(log, "two")
    old = log.rename(tmp_path / "kern.log.1")
    append(old, "three")
    if restarted:
        reader.start()
    append(log, "new one")
    append(old, "four")
    assert sorted(reader.turn()) == ["four", "new one", "three", "two"]
    append(old, "five", end="")
    append(log, "new two")
    assert reader.turn() == ["new two"]
    assert reader.drain() == ["five"]
    assert list(reader.marks) == [str(log)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_new_file_may_come_late(tmp_path: Path, restarted: bool) -> None:
    log = tmp_path / "kern.log"
    append(log, "one")
    reader = Reader(log)
    reader.turn()
    append(log, "two")
    old = log.rename(tmp_path / "kern.log.1")
    if restarted:
        reader.start()
    assert reader.turn() == ["two"]
    append(old, "three")
    assert reader.turn() == ["three"]
    assert reader.follower.problems == {str(log): "is not there"}
    append(log, "new")
    assert reader.turn() == ["new"] and not reader.follower.problems


@pytest.mark.parametrize("restarted", [False, True])
def test_what_copytruncate_took_away_is_read_from_the_copy(tmp_path: Path, restarted: bool) -> None:
    log = tmp_path / "kern.log"
    append(log, "one")
    reader = Reader(log)
    reader.turn()
    append(log, "two", "three")
    shutil.copyfile(log, tmp_path / "kern.log.1")
    os.truncate(log, 0)
    append(log, "four", "five", "six is longer than all that was before")
    if restarted:
        reader.start()
    assert sorted(reader.drain()) == ["five", "four", "six is longer than all that was before", "three", "two"]


def test_files_that_came_and_went_in_between_are_read_too(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    append(log, "one")
    reader = Reader(log)
    reader.turn()
    for n in range(2, 5):
        append(log, f"old {n}")
        for kept in range(4, 0, -1):
            if (tmp_path / f"kern.log.{kept}").exists():
                (tmp_path / f"kern.log.{kept}").rename(tmp_path / f"kern.log.{kept + 1}")
        log.rename(tmp_path / "kern.log.1")
        os.utime(tmp_path / "kern.log.1", (T + n, T + n))
        append(log, f"new {n}")
    reader.start()
    assert sorted(reader.drain()) == sorted(["old 2", "new 2", "old 3", "new 3", "old 4", "new 4"])


def test_a_file_written_anew_at_the_same_size_is_read_anew(tmp_path: Path) -> None:
    log = tmp_path / "state.log"
    append(log, "alpha", "beta")
    reader = Reader(log)
    reader.turn()
    log.write_bytes(b"gamma\nzeta\n")
    assert log.stat().st_size == 11
    assert reader.turn() == ["gamma", "zeta"]


def test_a_copy_put_in_its_place_is_the_same_file(tmp_path: Path) -> None:
    """As editors and rsync do."""
    log = tmp_path / "kern.log"
    append(log, *(f"line {n}" for n in range(100)))
    reader = Reader(log)
    reader.turn()
    shutil.copyfile(log, tmp_path / "new")
    append(tmp_path / "new", "line 100")
    (tmp_path / "new").rename(log)
    assert reader.turn() == ["line 100"]


def test_a_link_that_points_elsewhere_is_followed_and_its_old_file_is_read_to_its_end(tmp_path: Path) -> None:
    first, second, link = tmp_path / "a" / "one.log", tmp_path / "a" / "two.log", tmp_path / "current"
    (tmp_path / "a").mkdir()
    append(first, "one")
    link.symlink_to(first)
    reader = Reader(link)
    reader.turn()
    append(first, "two")
    append(second, "three")
    link.unlink()
    link.symlink_to(second)
    reader.start()
    assert sorted(reader.turn()) == ["three", "two"]


def test_one_file_under_two_names_is_read_once(tmp_path: Path) -> None:
    log, link = tmp_path / "kern.log", tmp_path / "all.log"
    append(log, "one")
    link.symlink_to(log)
    reader = Reader(log, link)
    assert reader.turn() == ["one"]
    assert reader.follower.problems == {str(link): f"is the same file as {log}"}


def test_a_file_renamed_between_two_followed_names_is_not_read_again(tmp_path: Path) -> None:
    one, two = tmp_path / "a.log", tmp_path / "b.log"
    append(one, "one")
    reader = Reader(one, two)
    reader.turn()
    one.rename(two)
    append(two, "two")
    append(one, "fresh")
    assert sorted(reader.drain()) == ["fresh", "two"]


def test_a_file_that_vanishes_and_comes_back_is_not_read_again(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    append(log, "one", "two")
    reader = Reader(log)
    reader.turn()
    (tmp_path / "away").mkdir()
    log.rename(tmp_path / "away" / "kern.log")
    reader.drain()
    append(tmp_path / "away" / "kern.log", "three")
    (tmp_path / "away" / "kern.log").rename(log)
    assert reader.turn() == ["three"]


def test_a_line_of_100_megabytes_is_cut_and_counted_and_the_next_one_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    with log.open("wb") as file:
        file.write(b"before\n")
        for _ in range(100):
            file.write(b"x" * 1_000_000)
        file.write(b"\nafter\n")
    reader = Reader(log, budget=Budget(backlog_bytes=1 << 30))
    found = reader.drain()
    assert [len(line) for line in found] == [6, MAX_LINE_BYTES, 5]
    assert reader.follower.counts[CUT] == 1


def test_line_ends_of_windows_and_bytes_that_are_no_text_pass(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(b"one\r\n\xff\xfe two\n\0\0three\n")
    assert Reader(log).turn() == ["one\r", "\ufffd\ufffd two", "\0\0three"]


def test_the_hole_that_a_writer_leaves_after_a_truncation_is_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    with log.open("wb") as file:  # not for appending: it goes on at its own place
        file.write(b"x" * 999_999 + b"\n")
        file.flush()
        reader = Reader(log)
        reader.drain()
        os.truncate(log, 0)
        file.write(b"after\n")
        file.flush()
        assert reader.drain() == ["after"]


def test_a_long_file_is_begun_near_its_end_at_a_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "messages"
    append(log, *(f"line {n:04}" for n in range(1000)))
    found = Reader(log, budget=Budget(backlog_bytes=100)).turn()
    assert found == [f"line {n:04}" for n in range(990, 1000)]


def test_pipes_and_devices_are_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = Reader(tmp_path / "pipe", Path("/dev/zero"), tmp_path)
    assert reader.turn() == []
    assert set(reader.follower.problems.values()) == {"is no regular file"}


def test_a_file_that_may_not_be_read_is_named_and_read_once_it_may(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    log = tmp_path / "kern.log"
    append(log, "one")
    log.chmod(0)
    reader = Reader(log)
    assert reader.turn() == [] and reader.follower.problems == {str(log): "Permission denied"}
    log.chmod(stat.S_IRUSR)
    assert reader.turn() == ["one"] and not reader.follower.problems


def test_a_file_that_ended_gives_its_last_line_and_is_let_be(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    append(log, "one", "Killed", end="")
    append(log, "\nlast words", end="")
    reader = Reader(log, rotates=False)
    assert reader.turn() == ["oneKilled"]
    reader.follower.end(str(log), reader.now)
    assert reader.turn() == [] and not reader.follower.done(str(log))
    reader.now += GRACE_S
    assert reader.turn() == ["last words"]
    assert reader.follower.done(str(log))
    before = reader.follower.counts[STATS]
    reader.drain()
    assert reader.follower.counts[STATS] - before <= 1
    reader.follower.forget(str(log))
    reader.turn()
    assert reader.marks == {}


def test_a_file_that_never_came_is_done_after_the_grace(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "none.log", rotates=False)
    reader.turn()
    reader.follower.end(str(tmp_path / "none.log"), reader.now)
    reader.now += GRACE_S
    reader.turn()
    assert reader.follower.done(str(tmp_path / "none.log"))


# --- cost -------------------------------------------------------------------------------------------------------------


def test_one_busy_file_starves_no_other(tmp_path: Path) -> None:
    busy, quiet = tmp_path / "a.log", tmp_path / "b.log"
    append(busy, *("x" * 99 for _ in range(10_000)))
    append(quiet, "one")
    reader = Reader(busy, quiet, budget=Budget(bytes=200_000, chunk_bytes=100_000))
    assert "one" in reader.turn() and reader.follower.more


def test_every_file_has_its_turn_though_the_budget_serves_few(tmp_path: Path) -> None:
    logs = [tmp_path / f"{n}.log" for n in range(10)]
    reader = Reader(*logs, budget=Budget(bytes=3000, chunk_bytes=1000))
    for _ in range(3):
        for log in logs:
            append(log, *("x" * 99 for _ in range(30)))
        reader.turn()
    reader.drain()
    assert len(reader.lines) == 900
    for log in logs:
        append(log, log.name)
    assert sorted(reader.drain()) == sorted(log.name for log in logs)


def test_looks_are_bounded_a_turn_and_every_file_is_looked_at_in_its_turn(tmp_path: Path) -> None:
    logs = [tmp_path / f"{n}.log" for n in range(10)]
    for log in logs:
        append(log, log.name)
    reader = Reader(*logs, budget=Budget(stats=3))
    assert [len(reader.turn()) for _ in range(4)] == [3, 3, 3, 1]
    assert reader.follower.counts[STATS] == 12


def test_a_quiet_file_is_looked_at_less_and_less_often(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    append(log, "one")
    reader = Reader(log, budget=Budget(quiet_s=30.0))
    for _ in range(2000):
        reader.turn()
    assert reader.follower.counts[STATS] < 150
    append(log, "two")
    assert [line for _ in range(31) for line in reader.turn()] == ["two"]


def test_no_more_files_are_held_open_than_allowed(tmp_path: Path) -> None:
    logs = [tmp_path / f"{n}.log" for n in range(20)]
    for log in logs:
        append(log, "one")
    before = len(os.listdir("/proc/self/fd"))
    reader = Reader(*logs, budget=Budget(open_files=5))
    assert len(reader.turn()) == 20
    assert len(os.listdir("/proc/self/fd")) - before == 5
    for log in logs:
        append(log, "two")
        log.rename(log.with_suffix(".log.1"))
        append(log, "three")
    assert sorted(reader.turn()) == sorted(["two", "three"] * 20)
    reader.drain()
    assert len(os.listdir("/proc/self/fd")) - before <= 5
    reader.start()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([b"a", b"bc\n", b"\n", b"\0", b"\0\n", b"\xff", b"x" * 40_000]), max_size=12),
    st.booleans(),
)
def test_a_chunk_is_cut_without_loss_and_always_forward(parts: list[bytes], skips: bool) -> None:
    chunk = b"".join(parts)
    found = cut(chunk, skips)
    assert 0 <= found.start <= found.end <= found.next <= len(chunk)
    assert found.end == found.start or chunk[found.end - 1 : found.end] == b"\n" or found.too_long
    if not skips and not found.too_long and found.next:
        assert chunk[: found.start].strip(b"\0") == b""


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60) | st.builds(lambda t: Track("/x", 1, 2, 3).mark()[:t], st.integers(0, 200)))
def test_a_mark_that_is_none_makes_no_track_and_never_raises(mark: str) -> None:
    Track.from_mark("/x", mark)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("kern.log.1", "kern.log"), ("kern.log.12.gz", "kern.log"), ("messages-20260301", "messages"),
        ("messages-20260301.xz", "messages"), ("app-20260301.log", "app.log"), ("app.1.log", "app.log"),
        ("app-2026-03-01.log.gz", "app.log"), ("kern.log.old", "kern.log"), ("messages-20260301-17000000", "messages"),
    ],
)  # fmt: skip
def test_leftovers_of_rotation_are_known(name: str, base: str) -> None:
    assert is_leftover(name, base) and base in bases(name)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("kern.log", "kern.log"),
        ("kernel.log", "kern.log"),
        ("app-1.log", "app.log"),
        ("rank.out", "rank"),
        ("log-1", "log"),
    ],
)
def test_other_files_are_no_leftovers(name: str, base: str) -> None:
    assert not is_leftover(name, base)
