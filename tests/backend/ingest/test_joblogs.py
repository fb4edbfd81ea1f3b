"""Logs of jobs nobody wrapped: followed while they run, read to the end once, nobody else's files, at bounded cost."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest

from backend.facts import AttemptFacts, Batch, RawEvent
from backend.ingest.base import Follows, SourceError
from backend.ingest.files import Where
from backend.ingest.follow import Budget
from backend.ingest.joblogs import CHOOSE_S, GRACE_S, JobFile, JobLogSource, rank_of, uid_of
from backend.ingest.tails import Tails

AT = 1_770_000_000.0
ME = os.geteuid()
BUDGET = Budget(open_files=0, quiet_s=60.0)


class Cluster:
    """Attempts, what is kept of their logs, and a listener that writes along."""

    scheme = "pod://"

    def __init__(
        self, folder: Path, budget: Budget = BUDGET, uid: int | None = ME, never: frozenset[int] | None = frozenset()
    ) -> None:
        self.folder, self.budget, self.uid, self.never = folder, budget, uid, never
        self.attempts: dict[tuple[str, int], AttemptFacts] = {}
        self.tails = Tails(folder / "tails")
        self.heard: list[tuple[str, str, str]] = []
        self.over: list[tuple[str, int, tuple[str, ...]]] = []
        self.pods: dict[str, bytes] = {}
        self.marks: dict[str, str] = {}
        self.now = AT
        self.source = self.start()

    def start(self, marks: Mapping[str, str] | None = None) -> JobLogSource:
        made = JobLogSource(
            lambda now: list(self.attempts.values()), self.tails, Where("head", None, UTC), self.budget,
            listener=self, streams=self, uid=lambda user: self.uid, most_files=20, never=self.never,
        )  # fmt: skip
        made.resume(self.marks if marks is None else marks)
        self.source = made
        return made

    def hear(self, file: JobFile, chunk: bytes, place: str, now: float) -> Sequence[RawEvent]:
        self.heard += [(file.job, file.rank, line) for line in chunk.decode().splitlines()]
        return ()

    def ended(self, attempt: AttemptFacts, files: Sequence[JobFile], now: float) -> Sequence[RawEvent]:
        self.over.append((attempt.job, attempt.restart, tuple(Path(file.path).name for file in files)))
        return (RawEvent(now, "", "joblog", "x", "x", f"{attempt.job}/{attempt.restart}"),)

    def place(self, output: str) -> str:
        return output.partition("#")[0]

    def read(self, output: str, after: str, most_bytes: int) -> tuple[bytes, str]:
        if output not in self.pods:
            raise SourceError("pod is gone")
        start = int(after or 0)
        chunk = self.pods[output][start : start + most_bytes]
        return chunk, str(start + len(chunk))

    def run(self, job: str, *outputs: str, restart: int = 0, state: str = "RUNNING", user: str = "ada") -> None:
        paths = tuple(
            output if "://" in output or output.startswith("/") else str(self.folder / output) for output in outputs
        )
        self.attempts[job, restart] = AttemptFacts(
            job, restart, user=user, state=state, start=self.now, nodes=("gpu-1",), outputs=paths
        )

    def end(self, job: str, restart: int = 0, state: str = "FAILED") -> None:
        self.attempts[job, restart] = replace(self.attempts[job, restart], state=state, end=self.now)

    def write(self, name: str, *lines: str, end: str = "\n") -> None:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.writelines(line + end for line in lines)

    def turn(self, seconds: float = CHOOSE_S) -> Batch:
        self.now += seconds
        batch = self.source.read(frozenset(), self.now - 1, self.now)
        for name, mark in batch.marks.items():
            if mark is None:
                self.marks.pop(name, None)
            else:
                self.marks[name] = mark
        return batch

    def tail(self, job: str) -> list[str]:
        return [line.text for line in self.tails.tail(job)]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_a_running_job_is_followed_and_its_tail_is_kept(cluster: Cluster) -> None:
    cluster.run("7", "slurm-7.out", "rank3.err")
    cluster.write("slurm-7.out", "step 1")
    cluster.write("rank3.err", "2026-02-02T02:39:00Z stderr F warning")
    cluster.turn()
    cluster.write("slurm-7.out", "step 2")
    cluster.turn()
    assert sorted(cluster.tail("7")) == ["step 1", "step 2", "warning"]
    assert ("7", "", "step 2") in cluster.heard
    warned = next(line for line in cluster.tails.tail("7") if line.text == "warning")
    assert (warned.rank, warned.at, warned.file) == ("3", 1_769_999_940.0, str(cluster.folder / "rank3.err"))
    assert isinstance(cluster.source, Follows)


def test_the_rest_is_read_after_the_end_once_with_its_last_line_and_then_nothing(cluster: Cluster) -> None:
    cluster.run("7", "slurm-7.out")
    cluster.write("slurm-7.out", "step 1")
    cluster.turn()
    cluster.end("7")
    cluster.write("slurm-7.out", "late")
    cluster.write("slurm-7.out", "Killed", end="")
    first = cluster.turn(CHOOSE_S)
    assert cluster.over == [] and first.events == ()
    for _ in range(8):
        cluster.turn(GRACE_S)
    assert cluster.tail("7") == ["step 1", "late", "Killed"]
    assert cluster.over == [("7", 0, ("slurm-7.out",))]
    looks = cluster.source.counts()["looks"]
    cluster.turn(GRACE_S)
    assert cluster.source.counts()["looks"] == looks


def test_a_restart_after_the_end_tells_nothing_again(cluster: Cluster) -> None:
    cluster.run("7", "slurm-7.out")
    cluster.write("slurm-7.out", "step 1")
    cluster.turn()
    cluster.end("7")
    for _ in range(5):
        cluster.turn(GRACE_S)
    cluster.start()
    for _ in range(5):
        cluster.turn(GRACE_S)
    assert len(cluster.over) == 1 and cluster.tail("7") == ["step 1"]
    del cluster.attempts["7", 0]
    cluster.turn()
    assert cluster.marks == {}, "what is over is not remembered for ever"


def test_a_job_that_ended_while_we_were_away_is_read(cluster: Cluster) -> None:
    cluster.run("7", "slurm-7.out")
    cluster.write("slurm-7.out", "RuntimeError: x")
    cluster.end("7")
    for _ in range(5):
        cluster.turn(GRACE_S)
    assert cluster.tail("7") == ["RuntimeError: x"] and len(cluster.over) == 1


def test_a_requeued_job_that_writes_the_same_file_is_followed_on(cluster: Cluster) -> None:
    cluster.run("7", "slurm-7.out")
    cluster.write("slurm-7.out", "first life")
    cluster.turn()
    cluster.end("7")
    for _ in range(4):
        cluster.turn(GRACE_S)
    cluster.run("7", "slurm-7.out", restart=1)
    (cluster.folder / "slurm-7.out").write_text("second life\n")
    cluster.turn()
    cluster.write("slurm-7.out", "goes on")
    cluster.turn()
    assert cluster.tail("7") == ["first life", "second life", "goes on"]
    assert [job for job, _, _ in cluster.heard] == ["7", "7", "7"]


def test_a_log_of_another_account_is_never_read(tmp_path: Path) -> None:
    """A user may name any file as the output of a job."""
    cluster = Cluster(tmp_path, uid=ME + 1)
    cluster.write("secret", "token")
    cluster.run("7", "secret")
    cluster.turn()
    assert cluster.tail("7") == [] and cluster.source.counts()["not readable"] == 1
    cluster.end("7")
    for _ in range(5):
        cluster.turn(GRACE_S)
    assert cluster.over, "what cannot be read does not hold the verdict up for ever"


NOBODYS = "files of accounts that are not known here"


def test_of_an_account_that_is_not_known_here_nothing_is_read_and_it_is_said(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, uid=None)
    cluster.write("somebodys", "token")
    cluster.run("7", "somebodys")
    cluster.turn()
    assert cluster.tail("7") == [] and cluster.source.counts()[NOBODYS] == 1
    cluster.end("7")
    for _ in range(5):
        cluster.turn(GRACE_S)
    assert cluster.over, "what cannot be read does not hold the verdict up for ever"


@pytest.mark.parametrize(("user", "uid"), [("1001", 1001), ("root", 0), ("", None), ("no-such-account", None)])
def test_an_account_is_known_by_name_or_by_the_number_that_schedulers_print(user: str, uid: int | None) -> None:
    assert uid_of(user) == uid


def test_what_is_no_place_for_a_log_is_never_read(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, uid=ME + 1)
    cluster.write("ours", "token")
    cluster.run(
        "7",
        "ours",
        "/proc/self/environ",
        "/dev/zero",
        "relative/path",
        "/tmp/../proc/1/environ",
        "//proc/1/environ",
        "//dev/zero",
        "/tmp/a\0b",
    )
    cluster.turn()
    assert cluster.tail("7") == [] and cluster.source.counts()["files"] == 2


def test_whoever_is_said_to_run_a_job_nothing_of_ours_is_read(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, never=None)
    cluster.write("ours", "token")
    cluster.run("7", "ours")
    cluster.turn()
    assert cluster.tail("7") == [] and cluster.source.counts()[NOBODYS] == 1


def test_the_cost_is_bounded_in_looks_bytes_and_files(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, Budget(stats=5, bytes=2_000, chunk_bytes=1_000, open_files=0, quiet_s=60.0))
    for n in range(30):
        cluster.run(str(n), f"{n}.out")
        cluster.write(f"{n}.out", *("x" * 99 for _ in range(20)))
    for turns in range(1, 4):
        batch = cluster.turn()
        counts = cluster.source.counts()
        assert counts["looks"] <= 5 * turns and counts["bytes"] <= 3_000 * turns and not batch.more
    assert counts["files"] == 20 and counts["files over the limit"] == 10


def test_a_quiet_log_is_looked_at_less_and_less_often(cluster: Cluster) -> None:
    cluster.run("7", "slurm-7.out")
    cluster.write("slurm-7.out", "step 1")
    for _ in range(400):
        cluster.turn(5.0)
    assert cluster.source.counts()["looks"] < 80
    cluster.write("slurm-7.out", "step 2")
    for _ in range(13):
        cluster.turn(5.0)
    assert cluster.tail("7") == ["step 1", "step 2"]


def test_a_turn_that_was_not_committed_is_read_again_and_the_tail_shows_it_once(cluster: Cluster) -> None:
    cluster.run("7", "slurm-7.out")
    cluster.write("slurm-7.out", "step 1")
    cluster.turn()
    cluster.write("slurm-7.out", "step 2")
    before = dict(cluster.marks)
    cluster.turn()
    cluster.start(before)
    cluster.turn()
    assert cluster.tail("7") == ["step 1", "step 2"]


def test_after_a_restart_the_listener_hears_the_last_lines_again_and_the_tail_shows_them_once(cluster: Cluster) -> None:
    cluster.run("7", "slurm-7.out")
    cluster.write("slurm-7.out", *(f"step {n}" for n in range(1000)))
    cluster.turn()
    cluster.heard.clear()
    cluster.start()
    cluster.write("slurm-7.out", "step 1000")
    cluster.turn()
    assert [text for _, _, text in cluster.heard] == [f"step {n}" for n in range(1001)]
    shown = cluster.tail("7")
    assert shown == [f"step {n}" for n in range(801, 1001)] and len(shown) == 200


def test_logs_of_pods_are_read_by_their_stream(cluster: Cluster) -> None:
    cluster.run("train-1", "pod://ml/train-1-0/main")
    cluster.pods["pod://ml/train-1-0/main"] = b"2026-02-02T02:39:00.5Z one\n2026-02-02T02:39:01Z two\n"
    cluster.run("train-2", "pod://ml/gone/main")
    cluster.turn()
    cluster.turn()
    assert cluster.tail("train-1") == ["one", "two"]
    counts = cluster.source.counts()
    assert counts["pods not readable"] == 2 and counts["bytes of pods"] == 52
    cluster.start()
    cluster.pods["pod://ml/train-1-0/main"] += b"2026-02-02T02:39:02Z three\n"
    cluster.turn()
    assert cluster.tail("train-1") == ["one", "two", "three"]


def test_of_a_pod_that_came_again_only_the_newest_is_read(cluster: Cluster) -> None:
    cluster.run("train-1", "pod://ml/w-0/main#old")
    cluster.end("train-1")
    cluster.now += 1
    cluster.run("train-1", "pod://ml/w-0/main#new", restart=1)
    cluster.pods["pod://ml/w-0/main#old"] = cluster.pods["pod://ml/w-0/main#new"] = b"one\n"
    cluster.turn()
    assert cluster.tail("train-1") == ["one"]


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("/x/slurm-12.out", ""), ("/x/rank3.log", "3"), ("/x/rank_003.err", "3"), ("/x/train.7.out", "7"),
        ("/x/none_abc/attempt_0/5/stderr.log", "5"), ("/x/task-12-gpu-0001.txt", "12"), ("/x/log", ""),
        ("/x/rank7/output.log", ""), ("/x/worker2_stdout.log", "2"),
    ],
)  # fmt: skip
def test_a_rank_is_told_by_the_name_of_its_log(path: str, rank: str) -> None:
    assert rank_of(path) == rank or path == "/x/slurm-12.out"


def test_the_number_of_the_job_is_no_rank(cluster: Cluster) -> None:
    cluster.run("12", "slurm-12.out")
    cluster.write("slurm-12.out", "x")
    cluster.turn()
    assert cluster.heard == [("12", "", "x")]
