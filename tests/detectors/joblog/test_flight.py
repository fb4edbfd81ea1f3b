"""Flight-recorder dumps and stacks: who holds the others up, and files that pretend to be dumps."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.cli import main
from detectors.joblog.flight import FlightError, Held, dump_of, held, load, ranks_of
from detectors.joblog.stacks import compare, looks_like_stacks, main_stack

GROUPS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "0": ("WORLD", (0, 1, 2, 3, 4, 5, 6, 7)),
    "1": ("TENSOR", (0, 1, 2, 3)),
    "2": ("TENSOR", (4, 5, 6, 7)),
    "3": ("DATA", (0, 4)),
    "4": ("DATA", (1, 5)),
    "5": ("DATA", (2, 6)),
    "6": ("DATA", (3, 7)),
}


def recorded(rank: int, enqueued: Mapping[str, int], completed: Mapping[str, int]) -> dict[str, Any]:
    """A dump as PyTorch 2.x writes it, of its last entries."""
    entries: list[dict[str, Any]] = []
    for name, last in enqueued.items():
        for seq in range(max(1, last - 5), last + 1):
            done = seq <= completed.get(name, 0)
            entries.append(
                {
                    "record_id": len(entries),
                    "pg_id": int(name) + 10 * rank,
                    "process_group": (name, GROUPS[name][0]),
                    "collective_seq_id": seq,
                    "p2p_seq_id": 0,
                    "profiling_name": "nccl:all_reduce",
                    "time_created_ns": 10**18 + seq,
                    "state": "completed" if done else "scheduled",
                    "retired": done,
                    "is_p2p": False,
                }
            )
    mine = {name: group for name, group in GROUPS.items() if rank in group[1]}
    return {
        "version": "2.9",
        "pg_config": {n: {"name": n, "desc": desc, "ranks": str(list(ranks))} for n, (desc, ranks) in mine.items()},
        "pg_status": {
            str(int(name) + 10 * rank): {
                "last_enqueued_collective": last,
                "last_completed_collective": completed.get(name, 0),
            }
            for name, last in enqueued.items()
        },
        "entries": entries,
    }


def job(absent: tuple[int, ...] = (), stopped: tuple[int, ...] = ()) -> dict[int, dict[str, Any]]:
    """Eight ranks stand in collective 40 of each of their groups; absent ones never enqueued it; stopped ones did, but
    their device ended at 37 what the others ended at 39."""
    made = {}
    for rank in range(8):
        mine = [name for name, (_, ranks) in GROUPS.items() if rank in ranks]
        came = {name: 39 if rank in absent else 40 for name in mine}
        done = {name: 37 if rank in stopped else 39 for name in mine}
        made[rank] = recorded(rank, came, done)
    return made


def judged(dumps: Mapping[int, Mapping[str, Any]]) -> Held:
    return held([dump_of(load(pickle.dumps(dump)), rank) for rank, dump in dumps.items()])


@pytest.mark.parametrize("rank", range(8))
def test_the_rank_that_never_joined_is_named(rank: int) -> None:
    found = judged(job(absent=(rank,)))
    assert (found.absent, found.stopped) == ((rank,), ())
    assert rank not in found.waiting


def test_two_faulty_ranks_are_both_named_whatever_each_did() -> None:
    assert judged(job(absent=(2, 7))).culprits == (2, 7)
    found = judged(job(absent=(2,), stopped=(5,)))
    assert (found.absent, found.stopped) == ((2,), (5,))


def test_a_rank_without_a_dump_counts_as_absent() -> None:
    dumps = job()
    del dumps[6]
    assert judged(dumps).absent == (6,)


def test_a_job_that_only_works_holds_nobody() -> None:
    assert judged(job()).culprits == ()


def test_a_dump_in_json_is_a_dump() -> None:
    assert dump_of(load(json.dumps(job()[0]).encode()), 0).waits["0"] == (40, "nccl:all_reduce")


class Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("true",)


@pytest.mark.parametrize(
    "raw",
    [
        pickle.dumps(Evil()),
        pickle.dumps({"entries": Evil()}),
        b"",
        b"\x80\x04junk",
        b"{",
        b"[]",
        pickle.dumps([1]),
        b'{"a": 1}',
    ],
)
def test_what_is_no_dump_is_refused_and_nothing_of_it_runs(raw: bytes) -> None:
    with pytest.raises(FlightError):
        load(raw)


@given(st.binary(max_size=400))
@settings(max_examples=150, deadline=None)
def test_random_bytes_are_no_dump(raw: bytes) -> None:
    with pytest.raises(FlightError):
        load(b"\x80\x04" + raw)


def test_ranks_are_told_as_people_do() -> None:
    assert [ranks_of(n) for n in ((3,), (9, 3), (1, 2, 3))] == ["rank 3", "ranks 3 and 9", "ranks 1, 2 and 3"]


def test_classify_names_the_ranks_of_a_folder_of_dumps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank, dump in job(absent=(5,)).items():
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump))
    assert main(["classify", "--json", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["class"], found["culprit"]["rank"], found["exclude_node"]) == ("nccl_timeout_hang", 5, False)
    assert "rank 5 never joined" in found["evidence"][-1]["value"]


def py_spy(*frames: str) -> str:
    head = 'Process 4411: python train.py\nPython v3.11.4 (/usr/bin/python3.11)\n\nThread 4411 (active): "MainThread"\n'
    idle = 'Thread 4500 (idle): "Thread-1"\n    wait (threading.py:320)\n'
    return head + "".join(f"    {frame}\n" for frame in frames) + idle


WAITS = ("all_reduce (torch/distributed/distributed_c10d.py:2501)", "backward (train.py:88)", "main (train.py:120)")
SAVES = ("write (torch/serialization.py:910)", "save (train.py:140)", "main (train.py:121)")


def test_the_rank_that_stands_elsewhere_is_named_with_the_group_it_shares() -> None:
    texts = {rank: py_spy(*(SAVES if rank in (4, 5) else WAITS)) for rank in range(16)}
    assert all(looks_like_stacks(text) for text in texts.values())
    stand = compare(
        {rank: main_stack(text) for rank, text in texts.items()}, {"world": range(16), "pp 2": (4, 5, 6, 7)}
    )
    assert stand.outliers == (4, 5)
    assert stand.shared == "pp 2"
    assert [len(group.ranks) for group in stand.groups] == [14, 2]
    assert stand.groups[1].stack[0] == "write (serialization.py)"


def test_stacks_of_gdb_and_of_faulthandler_are_read() -> None:
    gdb = "Thread 2 (LWP 4500):\n#0  0x7f1 in poll () from /lib/libc.so\n"
    gdb += "Thread 1 (LWP 4411):\n#0  0x7f2 in ncclGroupEnd () from x\n"
    assert main_stack(gdb)[0] == "ncclGroupEnd"
    fault = 'Current thread 0x00007f0a (most recent call first):\n  File "/a/train.py", line 3 in step\n'
    assert main_stack(fault) == ("step (train.py)",)
    assert not looks_like_stacks("Traceback (most recent call last):\n")


def test_large_groups_are_healthy() -> None:
    stand = compare({rank: ("a",) if rank < 5 else ("b",) for rank in range(10)})
    assert stand.outliers == ()


def test_classify_reads_stacks_beside_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(8):
        (tmp_path / f"stack_rank{rank}.txt").write_text(py_spy(*(SAVES if rank == 3 else WAITS)))
        (tmp_path / f"rank{rank}.log").write_text("step 1 loss 2\n")
    assert main(["classify", "--json", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["class"], found["culprit"]["rank"]) == ("nccl_timeout_hang", 3)
