"""Thirty hand-written histories of jobs: which attempts are one run, and what its retry chain is.

A row of a story is (job, restart, state, submit, start, end) in minutes, then what differs from the usual: user "u",
name "train-a", one node. A run is written as the (job, restart) of its attempts; a chain as hand, success, attempts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from backend.facts import AttemptFacts, StepFacts
from backend.reliability.retries import chains_of, gaps
from tests.backend.reliability.facts import accounted, save

Row = tuple[Any, ...]
END = 2000.0


@dataclass
class Story:
    what: str
    rows: list[Row]
    runs: list[list[str]]
    chains: list[tuple[str, bool | None, int]] = field(default_factory=list)
    failed: int = 0
    trained: dict[str, str] = field(default_factory=dict)


def facts(row: Row) -> AttemptFacts:
    job, restart, state, submit, start, end, *rest = row
    more: dict[str, Any] = rest[0] if rest else {}
    at = [None if t is None else 60.0 * t for t in (submit, start, end)]
    eligible = at[0] if start is not None else None
    fields = {"user": "u", "name": "train-a", "nodes": () if start is None else ("n1",), **more}
    return AttemptFacts(
        job=job, restart=restart, state=state, submit=at[0], eligible=eligible, start=at[1], end=at[2], **fields
    )


SHARD = {"array": "50_1"}
OTHER = {"array": "50_2"}
BIG = {"nodes": tuple(f"n{i}" for i in range(64))}
STORIES = [
    Story("one job that completed", [("1", 0, "COMPLETED", 0, 1, 9)], [["1/0"]]),
    Story("one job that failed and was left", [("1", 0, "FAILED", 0, 1, 9)], [["1/0"]], failed=1),
    Story(
        "a node failed, the requeue completed",
        [("1", 0, "NODE_FAIL", 0, 1, 9), ("1", 1, "COMPLETED", 9, 11, 20)],
        [["1/0", "1/1"]],
        [("auto", True, 2)],
        1,
    ),
    Story(
        "requeued three times, then out of time: TIMEOUT is no success and no failure",
        [
            ("1", 0, "NODE_FAIL", 0, 1, 9),
            ("1", 1, "REQUEUED", 9, 11, 20),
            ("1", 2, "NODE_FAIL", 20, 22, 30),
            ("1", 3, "TIMEOUT", 30, 32, 90),
        ],
        [["1/0", "1/1", "1/2", "1/3"]],
        [("auto", False, 4)],
        3,
    ),
    Story(
        "failed and submitted again by hand",
        [("1", 0, "FAILED", 0, 1, 9), ("2", 0, "COMPLETED", 40, 41, 60)],
        [["1/0", "2/0"]],
        [("manual", True, 2)],
        1,
    ),
    Story(
        "a requeue, then by hand",
        [("1", 0, "NODE_FAIL", 0, 1, 9), ("1", 1, "FAILED", 9, 11, 20), ("2", 0, "FAILED", 50, 51, 60)],
        [["1/0", "1/1", "2/0"]],
        [("mixed", False, 3)],
        3,
    ),
    Story(
        "the last attempt still runs: an open chain",
        [("1", 0, "NODE_FAIL", 0, 1, 9), ("1", 1, "RUNNING", 9, 11, None)],
        [["1/0", "1/1"]],
        [("auto", None, 2)],
        1,
    ),
    Story(
        "the requeue still waits: an open chain",
        [("1", 0, "NODE_FAIL", 0, 1, 9), ("1", 1, "PENDING", 9, None, None)],
        [["1/0", "1/1"]],
        [("auto", None, 2)],
        1,
    ),
    Story(
        "preempted and requeued: no failure, no chain",
        [("1", 0, "PREEMPTED", 0, 1, 9), ("1", 1, "COMPLETED", 9, 30, 60)],
        [["1/0", "1/1"]],
    ),
    Story(
        "preempted, then failed, then through: every link a requeue",
        [("1", 0, "PREEMPTED", 0, 1, 9), ("1", 1, "NODE_FAIL", 9, 30, 60), ("1", 2, "COMPLETED", 60, 62, 80)],
        [["1/0", "1/1", "1/2"]],
        [("auto", True, 3)],
        1,
    ),
    Story(
        "a person asked for the requeue: not failed",
        [("1", 0, "REQUEUED", 0, 1, 9), ("1", 1, "COMPLETED", 9, 11, 20, {"requeued_by": "hana"})],
        [["1/0", "1/1"]],
    ),
    Story(
        "the scheduler asked for the requeue: failed",
        [("1", 0, "REQUEUED", 0, 1, 9), ("1", 1, "COMPLETED", 9, 11, 20, {"requeued_by": "slurm"})],
        [["1/0", "1/1"]],
        [("auto", True, 2)],
        1,
    ),
    Story(
        "job ids began again: another user's job 1",
        [("1", 0, "FAILED", 0, 1, 9), ("1", 0, "COMPLETED", 500, 501, 600, {"user": "v", "name": "x-b"})],
        [["1/0"], ["1/0"]],
        failed=1,
    ),
    Story(
        "job ids began again: the same user's next task under the id, days later",
        [("1", 0, "FAILED", 0, 1, 9), ("1", 0, "COMPLETED", 1500, 1501, 1600, {"name": "eval-b"})],
        [["1/0"], ["1/0"]],
        failed=1,
    ),
    Story(
        "completed, then the same name again: a new run",
        [("1", 0, "COMPLETED", 0, 1, 9), ("2", 0, "FAILED", 40, 41, 60)],
        [["1/0"], ["2/0"]],
        failed=1,
    ),
    Story(
        "segments of one training, each waiting for the one before",
        [
            ("1", 0, "TIMEOUT", 0, 1, 60),
            ("2", 0, "COMPLETED", 0, 61, 120, {"dependency": "afterany:1"}),
            ("3", 0, "COMPLETED", 0, 121, 180, {"dependency": "afterany:2(unfulfilled)"}),
        ],
        [["1/0", "2/0", "3/0"]],
    ),
    Story(
        "singletons of one name run after one another",
        [("1", 0, "FAILED", 0, 1, 60)]
        + [("2", 0, "COMPLETED", 1, 61, 120, {"dependency": "singleton"})]
        + [("3", 0, "COMPLETED", 2, 121, 180, {"dependency": "singleton"})],
        [["1/0", "2/0", "3/0"]],
        [("manual", True, 3)],
        1,
    ),
    Story(
        "a retry armed beforehand under another name",
        [
            ("1", 0, "FAILED", 0, 1, 60),
            ("2", 0, "COMPLETED", 0, 61, 120, {"dependency": "afternotok:1", "name": "train-a-second"}),
        ],
        [["1/0", "2/0"]],
        [("manual", True, 2)],
        1,
    ),
    Story(
        "a report that waits for the training is no retry of it",
        [
            ("1", 0, "FAILED", 0, 1, 60),
            ("2", 0, "COMPLETED", 0, 61, 62, {"dependency": "afterany:1", "name": "report"}),
        ],
        [["1/0"], ["2/0"]],
        failed=1,
    ),
    Story(
        "a pipeline: evaluation after success is another run",
        [
            ("1", 0, "COMPLETED", 0, 1, 60),
            ("2", 0, "COMPLETED", 0, 61, 90, {"dependency": "afterok:1", "name": "eval-a"}),
        ],
        [["1/0"], ["2/0"]],
    ),
    Story(
        "a sweep: one name side by side",
        [("1", 0, "FAILED", 0, 1, 60), ("2", 0, "FAILED", 0, 1, 50), ("3", 0, "COMPLETED", 0, 61, 90)],
        [["1/0"], ["2/0"], ["3/0"]],
        failed=2,
    ),
    Story(
        "tasks of an array are runs of their own; a task's requeue is its own",
        [
            ("51", 0, "NODE_FAIL", 0, 1, 9, SHARD),
            ("52", 0, "COMPLETED", 0, 1, 9, OTHER),
            ("51", 1, "COMPLETED", 9, 11, 20, SHARD),
        ],
        [["51/0", "51/1"], ["52/0"]],
        [("auto", True, 2)],
        1,
    ),
    Story(
        "an array submitted again: each task follows its like",
        [
            ("51", 0, "FAILED", 0, 1, 9, SHARD),
            ("52", 0, "FAILED", 0, 1, 8, OTHER),
            ("61", 0, "COMPLETED", 30, 31, 40, {"array": "60_1"}),
            ("62", 0, "FAILED", 30, 31, 40, {"array": "60_2"}),
        ],
        [["51/0", "61/0"], ["52/0", "62/0"]],
        [("manual", True, 2), ("manual", False, 2)],
        3,
    ),
    Story(
        "a shell's name says nothing",
        [("1", 0, "FAILED", 0, 1, 9, {"name": "bash"}), ("2", 0, "COMPLETED", 10, 11, 20, {"name": "bash"})],
        [["1/0"], ["2/0"]],
        failed=1,
    ),
    Story(
        "another person's job of that name is another run",
        [("1", 0, "FAILED", 0, 1, 9), ("2", 0, "COMPLETED", 10, 11, 20, {"user": "v"})],
        [["1/0"], ["2/0"]],
        failed=1,
    ),
    Story(
        "a small trial under the name of a large run is another run",
        [("1", 0, "FAILED", 0, 1, 9, BIG), ("2", 0, "COMPLETED", 10, 11, 20)],
        [["1/0"], ["2/0"]],
        failed=1,
    ),
    Story(
        "the same restart, with a number behind the name",
        [("1", 0, "FAILED", 0, 1, 9), ("2", 0, "CANCELLED", 10, 11, 20, {"name": "train-a_retry1"})],
        [["1/0", "2/0"]],
        [("manual", False, 2)],
        1,
    ),
    Story(
        "cancelled by its owner and started again: one run, no chain",
        [("1", 0, "CANCELLED", 0, 1, 9), ("2", 0, "COMPLETED", 10, 11, 20)],
        [["1/0", "2/0"]],
    ),
    Story(
        "two jobs of other names, joined by the run that their training names; later than any habit",
        [("1", 0, "FAILED", 0, 1, 9, {"name": "x"}), ("2", 0, "COMPLETED", 1900, 1901, 1990, {"name": "y"})],
        [["1/0", "2/0"]],
        [("manual", True, 2)],
        1,
        {"1": "llm", "2": "llm"},
    ),
    Story(
        "one name, two runs by the word of their training",
        [("1", 0, "FAILED", 0, 1, 9), ("2", 0, "COMPLETED", 10, 11, 20)],
        [["1/0"], ["2/0"]],
        failed=1,
        trained={"1": "llm-a", "2": "llm-b"},
    ),
    Story(
        "trainer and sampler side by side are one run in two lanes",
        [
            ("1", 0, "NODE_FAIL", 0, 1, 9, {"name": "t"}),
            ("2", 0, "COMPLETED", 0, 1, 60, {"name": "s"}),
            ("1", 1, "COMPLETED", 9, 11, 60, {"name": "t"}),
        ],
        [["1/0", "2/0", "1/1"]],
        [("auto", True, 2)],
        1,
        {"1": "rl", "2": "rl"},
    ),
    Story(
        "never started, cancelled while it waited, submitted again",
        [("1", 0, "CANCELLED", 0, None, 5), ("2", 0, "COMPLETED", 6, 7, 20)],
        [["1/0", "2/0"]],
    ),
    Story(
        "LAUNCH_FAILED, BOOT_FAIL and OUT_OF_MEMORY are failures; DEADLINE is none",
        [
            ("1", 0, "LAUNCH_FAILED", 0, 1, 2),
            ("1", 1, "BOOT_FAIL", 2, 3, 4),
            ("2", 0, "OUT_OF_MEMORY", 5, 6, 7),
            ("3", 0, "DEADLINE", 8, 9, 10),
        ],
        [["1/0", "1/1", "2/0", "3/0"]],
        [("mixed", False, 4)],
        3,
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=[story.what for story in STORIES])
def test_attempts_are_the_runs_and_chains_that_people_see(story: Story) -> None:
    rows = [facts(row) for row in story.rows]
    trained = [
        StepFacts(at=row.start + 30, run=story.trained[row.job], job=row.job, step=1)
        for row in rows
        if row.job in story.trained and row.start is not None
    ]
    for attempts in (rows, rows[::-1]):
        told = accounted(attempts, 60 * END, steps=trained)
        found = [[f"{a.attempt.job}/{a.attempt.restart}" for a in run.accounts] for run in told.runs]
        assert sorted(found) == sorted(story.runs)
        assert [(c.hand, c.success, c.attempts) for c in chains_of(told)] == story.chains
        assert sum(a.failed for a in told.attempts) == story.failed


def test_there_are_thirty_stories() -> None:
    assert len(STORIES) >= 30


def test_intervals_run_from_the_end_of_the_failed_to_the_start_of_the_next() -> None:
    rows = [
        ("1", 0, "NODE_FAIL", 0, 1, 9),
        ("1", 1, "PREEMPTED", 9, 20, 30),
        ("1", 2, "FAILED", 30, 55, 60),
        ("2", 0, "RUNNING", 70, 90, None),
    ]
    told = accounted([facts(row) for row in rows], 60 * END)
    assert gaps(told, "requeue") == [660.0]
    assert gaps(told, "resubmit") == [1800.0]


@pytest.mark.parametrize(
    ("end_min", "saved_at_min", "whole", "recovered"),
    [(60.0, 30, False, True), (40.0, 30, False, False), (60.0, None, False, None), (60.0, None, True, False)],
)
def test_an_open_chain_has_recovered_after_a_save_and_half_an_hour(
    end_min: float, saved_at_min: float | None, whole: bool, recovered: bool | None
) -> None:
    rows = [facts(("1", 0, "NODE_FAIL", 0, 1, 9)), facts(("1", 1, "RUNNING", 9, 20, None))]
    saves = [] if saved_at_min is None else [save(60 * saved_at_min, 10, run="x", job="1")]
    (chain,) = chains_of(accounted(rows, 60 * end_min, checkpoints=saves, checkpoints_whole=whole))
    assert chain.success is None
    assert chain.recovered is recovered
