"""sacct text: every attempt is told at its time, and nothing of its future."""

from __future__ import annotations

from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.clients.submit_line import options_of
from backend.facts import AttemptFacts
from backend.ingest.bundle.folder import PartFile
from backend.ingest.bundle.reading import Reading
from backend.ingest.bundle.sacct import SortedJobs, excluded, moment, read_jobs
from tests.bundles import T, row, sacct

AT = 1_770_000_000.0  # 2026-02-02T02:40:00 UTC


def told(folder: Path, text: str | bytes, zone: tzinfo = UTC, max_rows: int = 100) -> tuple[SortedJobs, Reading]:
    path = folder / "sacct.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    reading = Reading(0)
    return read_jobs((PartFile("jobs/sacct.txt", path, 0),), zone, reading, folder, max_rows), reading


def stages(jobs: SortedJobs, begin: float = 0.0) -> list[tuple[float, str, int, str]]:
    return [(at - AT, a.job, a.restart, a.state) for at, batch in jobs.batches(begin) for a in batch.attempts]


def attempts(jobs: SortedJobs) -> list[AttemptFacts]:
    return [a for _, batch in jobs.batches(0.0) for a in batch.attempts]


def test_an_attempt_is_told_when_it_is_submitted_when_it_starts_and_when_it_ends(tmp_path: Path) -> None:
    jobs, reading = told(tmp_path, sacct(row(Eligible="2026-02-02T02:40:30")))
    waiting, running, over = attempts(jobs)
    assert stages(jobs) == [(0, "7", 0, "PENDING"), (60, "7", 0, "RUNNING"), (600, "7", 0, "COMPLETED")]
    assert (waiting.start, waiting.end, waiting.eligible, waiting.nodes) == (None, None, None, ())
    assert (running.start, running.end, running.eligible, running.nodes) == (AT + 60, None, AT + 30, ("gpu-0001",))
    assert over == AttemptFacts(
        "7", 0, "train", "ada", "COMPLETED", AT, AT + 30, AT + 60, AT + 600, ("gpu-0001",), 8, (), name="train",
        source="sacct",
    )  # fmt: skip
    assert T == AT and not reading.bad.count


def test_naive_times_are_in_the_zone_of_the_bundle_and_others_are_not(tmp_path: Path) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert moment("2026-02-02T03:40:00", berlin) == AT
    assert moment("2026-07-02T04:40:00", berlin) == moment("2026-07-02T02:40:00+00:00", UTC)
    assert moment("1770000000", berlin) == AT
    for none in ("Unknown", "None", "", "N/A"):
        assert moment(none, berlin) is None
    for bad in ("16:10:48", "yesterday", "2026-13-01T00:00:00"):
        with pytest.raises(ValueError, match="is no time"):
            moment(bad, berlin)
    jobs, _ = told(tmp_path, sacct(row()), berlin)
    assert stages(jobs)[0][0] == -3600


def test_what_has_not_happened_is_not_told(tmp_path: Path) -> None:
    pending = row(JobIDRaw=1, State="PENDING", Start="Unknown", End="Unknown", NodeList="None assigned", AllocTRES="")
    running = row(JobIDRaw=2, State="RUNNING", End="Unknown")
    cancelled = row(JobIDRaw=3, State="CANCELLED by 1000", Start="None", NodeList="None assigned")
    jobs, reading = told(tmp_path, sacct(pending, running, cancelled))
    assert sorted(stages(jobs), key=lambda one: (one[1], one[0])) == [
        (0, "1", 0, "PENDING"),
        (0, "2", 0, "PENDING"),
        (60, "2", 0, "RUNNING"),
        (0, "3", 0, "PENDING"),
        (600, "3", 0, "CANCELLED"),
    ]
    assert not reading.bad.count


def test_what_was_before_the_beginning_is_told_there_as_it_stood(tmp_path: Path) -> None:
    later = row(JobIDRaw=8, Submit="2026-02-02T02:49:00", Start="2026-02-02T02:49:30", End="2026-02-02T03:00:00")
    jobs, _ = told(tmp_path, sacct(row(), later))
    assert stages(jobs, AT + 580) == [
        (580, "7", 0, "RUNNING"),
        (580, "8", 0, "RUNNING"),
        (600, "7", 0, "COMPLETED"),
    ] + [(1200, "8", 0, "COMPLETED")]


def test_a_requeued_job_has_attempts_numbered_by_sacct_or_in_their_order(tmp_path: Path) -> None:
    first = row(State="NODE_FAIL")
    again = row(Restarts=1, Submit="2026-02-02T02:50:01", Start="2026-02-02T02:51:00", End="2026-02-02T02:55:00")
    numbered, _ = told(tmp_path, sacct(first, again))
    bare = sacct(first, again).replace("Restarts", "Whatever").replace("|1|2026", "|0|2026")
    counted, _ = told(tmp_path, bare)
    for jobs in (numbered, counted):
        assert [(n, state) for _, _, n, state in stages(jobs)] == [
            (0, "PENDING"),
            (0, "RUNNING"),
            (0, "NODE_FAIL"),
            (1, "PENDING"),
            (1, "RUNNING"),
            (1, "COMPLETED"),
        ]
    assert [restart for _, _, restart, _ in stages(told(tmp_path, sacct(row(Restarts=3)))[0])] == [3, 3, 3]


def test_a_row_that_is_told_again_is_the_same_attempt(tmp_path: Path) -> None:
    """Two dumps, one after the other, in one file."""
    jobs, _ = told(tmp_path, sacct(row(State="RUNNING", End="Unknown"), row()))
    assert {restart for _, _, restart, _ in stages(jobs)} == {0}
    assert stages(jobs)[-1][3] == "COMPLETED"


def test_free_text_may_hold_what_parts_columns_and_lines(tmp_path: Path) -> None:
    text = sacct(
        row(JobIDRaw=1, SubmitLine="sbatch --wrap a | b | c"),
        row(JobIDRaw=2, JobName="a|b"),
        row(JobIDRaw=3, SubmitLine="sbatch --wrap 'one\n two | three\n\n 4' --exclude=gpu-[1-2]"),
        row(JobIDRaw=4),
    )
    jobs, reading = told(tmp_path, text)
    over = {a.job: a for a in attempts(jobs) if a.state == "COMPLETED"}
    assert sorted(over) == ["1", "2", "3", "4"] and not reading.bad.count
    assert over["2"].run == "a|b" and over["3"].excluded == ("gpu-1", "gpu-2")
    assert jobs.left_out == {"lines that go on with the row before": 2}


def test_steps_are_no_attempts_and_bad_rows_are_listed_by_line(tmp_path: Path) -> None:
    rows = [
        row(JobIDRaw="7.batch"),
        row(State="WHATEVER"),
        row(End="16:10:48"),
        row(End="2026-02-02T02:40:30"),
        row(NodeList="gpu-[1-"),
        row(End="Unknown"),
        row(State="RUNNING", Start="Unknown"),
        "7|7|half",
        row(JobName="a\0b"),
        row(JobIDRaw=""),
        row(JobIDRaw=9, JobName="\xe9 \ufffd"),
    ]
    jobs, reading = told(tmp_path, sacct(*rows).encode("utf-8").replace("\xe9".encode(), b"\xe9"))
    assert jobs.left_out == {"job steps": 1}
    assert [bad.line for bad in reading.bad.told] == list(range(3, 12))
    assert {a.job for a in attempts(jobs)} == {"9"}
    why = [bad.why for bad in reading.bad.told]
    assert "WHATEVER" in why[0] and "SLURM_TIME_FORMAT" in why[1] and "ends before it starts" in why[2]


def test_without_a_header_nothing_is_guessed(tmp_path: Path) -> None:
    for text in (row() + "\n", "", "\n\n", "\xff\x00"):
        jobs, reading = told(tmp_path, text)
        assert jobs.rows.size == 0
        assert reading.bad.count == bool(text.strip())


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("sbatch --exclude=gpu-[1-2] a.sh", ["gpu-1", "gpu-2"]),
        ("sbatch --exclude gpu-1,gpu-7 a.sh", ["gpu-1", "gpu-7"]),
        ("srun -x gpu-1 a.sh", ["gpu-1"]),
        ("sbatch -xgpu-1 a.sh", ["gpu-1"]),
        ("sbatch --exclude='gpu-1' a.sh", ["gpu-1"]),
        ("sbatch --exclude=$BAD a.sh", []),
        ("sbatch --exclude=/home/a/bad.txt a.sh", []),
        ("sbatch --exclusive --max-x 3 a.sh", []),
        ("sbatch -N 4 -J my-x --requeue -x gpu-3 --mem 8G a.sh -x gpu-9 --exclude=gpu-8", ["gpu-3"]),
        ("sbatch --exclude=gpu-1 --exclude=gpu-2 a.sh", ["gpu-2"]),
        ("sbatch --wrap python train.py -x 3 --exclude=gpu-1", ["gpu-1"]),
        ("sbatch -H --exclude=gpu-1 'a b.sh", ["gpu-1"]),
        ("srun --pty -x gpu-1 bash", ["gpu-1"]),
        ("", []),
    ],
)
def test_the_nodes_that_a_submit_line_excludes(line: str, names: list[str]) -> None:
    assert excluded({}, options_of(line)) == names


@pytest.mark.parametrize(
    ("comment", "names"),
    [
        ("retry 2; exclude=gpu-[1-2],gpu-7", ["gpu-1", "gpu-2", "gpu-7"]),
        ('{"excluded_nodes": "gpu-3", "by": "autorestart"}', ["gpu-3"]),
        ("resubmitted with --exclude=gpu-4", ["gpu-4"]),
        ("ExcNodeList=gpu-5", ["gpu-5"]),
        ("excluded: none", []),
        ("nodes were excluded by an admin", []),
        ("exclude: the broken ones", []),
        ("", []),
    ],
)
def test_the_nodes_that_a_comment_names_as_excluded(comment: str, names: list[str]) -> None:
    assert excluded({"Comment": comment}, {"exclude": "gpu-3"} if "gpu-3" in names else {}) == names


@settings(max_examples=100, deadline=None)
@given(st.text("-x=exclude gpu1[]'\"\n\\w", max_size=80))
def test_no_submit_line_breaks_its_reading(line: str) -> None:
    assert all(name for name in excluded({"Comment": line}, options_of(line)))


def test_what_else_accounting_says_of_an_attempt(tmp_path: Path) -> None:
    header = "JobID|JobIDRaw|JobName|Partition|Account|State|ExitCode|Reason|Restarts|Submit|Start|End|TimelimitRaw|"
    header += "NodeList|WorkDir|SLUID|SubmitLine"
    times = "2026-02-02T02:40:00|2026-02-02T02:41:00|2026-02-02T02:50:00"
    rows = [
        f"1200_7|1207|train|gpu|team|FAILED|1:9|NonZeroExitCode|0|{times}|90|gpu-1|/home/a|s2A|"
        "sbatch -o logs/%A_%a-%x.out -e /tmp/%j.err --dependency=afterany:1199 t.sh",
        f"1300|1300|train|gpu|team|CANCELLED by 7|0:0|None|0|{times}|UNLIMITED|gpu-1|/home/a||sbatch -o %N.out t.sh",
        f"1400+1|1401|train|gpu|team|TIMEOUT|x|None|0|{times}|Partition_Limit|gpu-1||" + "\0|sbatch t.sh",
    ]
    jobs, reading = told(tmp_path, "\n".join([header, *rows]))
    task, cancelled, odd = (a for a in attempts(jobs) if a.end is not None)
    assert not reading.bad.count
    assert (task.array, task.unit, task.partition, task.account) == ("1200_7", "s2A", "gpu", "team")
    assert (task.exit_code, task.signal, task.reason, task.limit_s) == (1, 9, "NonZeroExitCode", 5400.0)
    assert (task.dependency, task.source, task.name) == ("afterany:1199", "sacct", "train")
    assert task.outputs == ("/home/a/logs/1200_7-train.out", "/tmp/1207.err")
    assert (cancelled.array, cancelled.exit_code, cancelled.signal, cancelled.reason) == ("", 0, None, "")
    assert (cancelled.limit_s, cancelled.outputs, cancelled.unit) == (None, (), "")
    assert (odd.array, odd.exit_code, odd.signal, odd.unit, odd.outputs) == ("", None, None, "", ())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400) | st.text("7|.\n-:TU2026aN ", max_size=400).map(str.encode), st.integers(1, 5))
def test_no_text_breaks_the_reading(tmp_path_factory: pytest.TempPathFactory, junk: bytes, max_rows: int) -> None:
    text = sacct(row()).encode() + b"\n" + junk + b"\n" + row(JobIDRaw=8).encode()
    jobs, _ = told(tmp_path_factory.mktemp("sacct"), text, max_rows=max_rows)
    assert {"7", "8"} <= {a.job for a in attempts(jobs)}
    assert [at for at, *_ in stages(jobs)] == sorted(at for at, *_ in stages(jobs))
