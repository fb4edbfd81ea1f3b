"""Tails of jobs: the last lines, bounded, over restarts and processes, each line once."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.ingest.tails import TailLine, Tails


def texts(tails: Tails, job: str, most: int = 200) -> list[str]:
    return [line.text for line in tails.tail(job, most)]


def test_lines_of_a_job_are_kept_in_order_and_those_without_a_job_are_counted(tmp_path: Path) -> None:
    tails = Tails(tmp_path / "tails")
    tails.keep("7", TailLine(1.0, "one", "/home/a/slurm-7.out", "gpu-1", "3"))
    tails.keep("7", TailLine(2.0, "two"))
    tails.keep("", TailLine(3.0, "nobody's"))
    assert texts(tails, "7") == ["one", "two"] and texts(tails, "8") == [] and tails.lines == 3
    assert tails.tail("7")[0] == TailLine(1.0, "one", "/home/a/slurm-7.out", "gpu-1", "3")
    assert texts(tails, "7", 1) == ["two"] and texts(tails, "7", 0) == []


def test_another_process_and_a_restart_see_what_was_written(tmp_path: Path) -> None:
    tails = Tails(tmp_path)
    tails.keep("7", TailLine(1.0, "one"))
    tails.flush()
    again = Tails(tmp_path)
    assert texts(again, "7") == ["one"]
    again.keep("7", TailLine(2.0, "two"))
    assert texts(again, "7") == ["one", "two"]


def test_a_line_that_was_read_twice_is_shown_once(tmp_path: Path) -> None:
    tails = Tails(tmp_path)
    for text in ("one", "two", "one", "two", "three"):
        tails.keep("7", TailLine(1.0, text, place=f"file:{text}"))
    assert texts(tails, "7") == ["one", "two", "three"]


def test_they_are_bounded_in_bytes_and_jobs_and_the_newest_stay(tmp_path: Path) -> None:
    tails = Tails(tmp_path, most_bytes=10_000, most_jobs=3)
    for n in range(1000):
        tails.keep("7", TailLine(1.0, f"line {n}"))
        if n % 50 == 0:
            tails.flush()
    assert texts(tails, "7", 5)[-1] == "line 999"
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10_000
    for n, job in enumerate(("8", "9", "10")):
        tails.keep(job, TailLine(1.0, "x"))
        tails.flush()
        os.utime(tmp_path / f"{job}.jsonl", (2_000_000_000 + n, 2_000_000_000 + n))
    assert texts(tails, "7") == [] and texts(tails, "8") == ["x"]
    assert len({path.name.partition(".")[0] for path in tmp_path.iterdir()}) == 3


def test_names_of_jobs_are_no_paths(tmp_path: Path) -> None:
    tails = Tails(tmp_path / "tails")
    for job in ("../../etc/passwd", ".", "..", "a/b", "j" * 300, "\u00e9\udc80", "12_[3-4]", "12.jsonl", "12.old"):
        tails.keep(job, TailLine(1.0, job))
        assert len(tails.tail(job)) == 1, job
    assert {path.name for path in tmp_path.iterdir()} == {"tails"} and not tails.failed


def test_a_torn_row_costs_only_itself(tmp_path: Path) -> None:
    tails = Tails(tmp_path)
    tails.keep("7", TailLine(1.0, "one"))
    tails.flush()
    with (tmp_path / "7.jsonl").open("ab") as file:
        file.write(b'{"at": 1.0, "te\n[]\n{"x": 1}\n\xff\xfe\n')
    tails.keep("7", TailLine(2.0, "two"))
    assert texts(tails, "7") == ["one", "two"]


def test_a_disk_that_takes_nothing_costs_the_lines_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    tails = Tails(tmp_path / "file")
    tails.keep("7", TailLine(1.0, "one"))
    tails.flush()
    assert tails.failed and texts(tails, "7") == []


def test_they_are_nobody_elses_to_read(tmp_path: Path) -> None:
    tails = Tails(tmp_path)
    tails.keep("7", TailLine(1.0, "secret"))
    tails.flush()
    assert (tmp_path / "7.jsonl").stat().st_mode & 0o077 == 0


def test_threads_may_share_them(tmp_path: Path) -> None:
    tails = Tails(tmp_path)

    def write(name: int) -> None:
        for n in range(100):
            tails.keep("7", TailLine(1.0, f"{name}:{n}"))
            tails.flush()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(texts(tails, "7", 1000)) == 400


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(job=st.text(min_size=1, max_size=20), lines=st.lists(st.text(max_size=30), max_size=5))
@pytest.mark.filterwarnings("error")
def test_any_text_of_any_job_is_kept(tmp_path: Path, job: str, lines: list[str]) -> None:
    tails = Tails(tmp_path / str(abs(hash((job, *lines)))))
    for line in lines:
        tails.keep(job, TailLine(1.0, line))
    assert len(tails.tail(job)) == len(lines) and not tails.failed
