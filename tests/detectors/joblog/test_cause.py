"""The earliest true cause across ranks, whatever the order of files and the clocks of hosts."""

from __future__ import annotations

import random

import pytest

from detectors.joblog.clocks import offsets
from detectors.joblog.ends import end_of, error_file_lines
from tests.corpora.joblogs import CASCADE, START, clock, glog, job
from tests.detectors.joblog.reads import job_verdict, rules, sheet, verdict

CAUSES = [rule for rule in rules().table.rules if rule.level in ("cause", "surface")]


def timeouts(rank: int, at: float, seq: int = 88) -> str:
    return "\n".join(line.format(rank=rank, seq=seq, before=seq - 1, glog=glog(at)) for line in CASCADE) + "\n"


@pytest.mark.parametrize("number", range(0, len(CAUSES), 3))
def test_the_culprit_stays_though_files_are_shuffled_and_clocks_are_5_s_apart(number: int) -> None:
    made = job(number, CAUSES[number].match, skew_s=5.0)
    logs = list(made.logs.items())
    random.Random(number).shuffle(logs)
    found = job_verdict(dict(logs))
    assert found.log_class == CAUSES[number].log_class
    assert found.culprit is not None
    assert (found.culprit.rank, found.victims) == (made.rank, 15)


def test_two_ranks_that_name_a_cause_are_parted_by_the_corrected_clock() -> None:
    def log(rank: int, ahead: float, breaks: float, words: str) -> str:
        steps = "".join(f"{clock(START + ahead + n * 10)} INFO step {n} loss 2.0\n" for n in range(12))
        return f"{steps}{clock(START + ahead + breaks)} ERROR failed\n{words}\n"

    early = "OSError: [Errno 116] Stale file handle: '/nfs/a'"
    logs = {
        "rank_0.log": log(0, +5.0, 121.0, early),
        "rank_1.log": log(1, -5.0, 124.0, "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB"),
        "rank_2.log": log(2, 0.0, 125.0, "ConnectionResetError: [Errno 104] Connection reset by peer"),
    }
    found = job_verdict(logs)
    assert (found.log_class, found.culprit and found.culprit.rank) == ("filesystem_io_error", 0)


def test_clocks_are_told_from_what_all_ranks_pass() -> None:
    sheets = [
        sheet("".join(f"{clock(START + ahead + n)} step {n} loss 2\n" for n in range(9)), f"gpu-{k}_rank{k}.log")
        for k, ahead in enumerate((0.0, 5.0, -5.0))
    ]
    assert [round(v, 2) for v in offsets(sheets).values()] == [0.0, 5.0, -5.0]


def test_hardware_wins_over_the_symptoms_that_were_printed_before_it() -> None:
    found = verdict(
        "gpu-7:1:2 [3] NCCL INFO comm 0xa rank 3 nranks 8 cudaDev 3 busId 1b000 - Init COMPLETE\n"
        "[rank3]: RuntimeError: CUDA error: unspecified launch failure\n"
        "gpu-7 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
    )
    assert (found.log_class, found.exclude_node, found.xids) == ("gpu_fallen_off_bus", True, (79,))


@pytest.mark.parametrize("code", [13, 31, 43])
def test_a_fault_of_the_users_kernel_excludes_no_node(code: int) -> None:
    found = verdict(
        f"NVRM: Xid (PCI:0000:2d:00): {code}, pid=4, name=python\n"
        "RuntimeError: CUDA error: unspecified launch failure\n"
    )
    assert (found.log_class, found.exclude_node, found.whose) == ("illegal_memory_access", False, "yours")


def test_a_hang_that_came_long_before_a_cause_was_no_consequence_of_it() -> None:
    logs = {f"rank_{k}.log": f"{clock(START)} step 1 loss 2\n" + timeouts(k, START + 600) for k in range(4)}
    logs["rank_2.log"] += (
        f"{clock(START + 700)} ERROR dumping\nOSError: [Errno 28] No space left on device: '/tmp/core'\n"
    )
    assert job_verdict(logs).log_class == "nccl_timeout_hang"


def test_of_ranks_that_all_hang_the_one_behind_in_its_collectives_is_the_culprit() -> None:
    logs = {f"rank_{k}.log": timeouts(k, START + 600, seq=71 if k == 5 else 88) for k in range(8)}
    found = job_verdict(logs)
    assert (found.log_class, found.culprit and found.culprit.rank) == ("nccl_timeout_hang", 5)


def test_of_ranks_that_all_hang_the_silent_one_is_the_culprit() -> None:
    logs = {f"gpu-{k}_rank{k}.log": timeouts(k, START + 600) if k != 6 else "step 1 loss 2\n" for k in range(8)}
    found = job_verdict(logs)
    assert found.culprit is not None
    assert (found.culprit.rank, found.culprit.node, found.exclude_node) == (6, "gpu-6", False)


def test_the_rank_that_horovod_misses_is_the_culprit() -> None:
    found = verdict(
        "W stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by "
        "subset of ranks and are waiting for remainder of ranks for more than 60 s.\n"
        "Missing ranks:\n3: [Allreduce_1]\n"
    )
    assert found.culprit is not None
    assert found.culprit.rank == 3


def test_the_end_of_a_link_that_several_others_name_is_the_culprit_and_no_node_is_excluded_for_it() -> None:
    line = (
        "gpu-{0}:3468:3905 [4] NCCL WARN NET/IB : Got completion from peer gpu-9<54862> with status=12 opcode=0 len=0\n"
    )
    found = job_verdict({f"rank_{k}.log": line.format(k) for k in range(3)})
    assert found.culprit is not None
    assert (found.log_class, found.culprit.node, found.exclude_node) == ("network_link_error", "gpu-9", False)


def test_links_that_fail_on_many_nodes_at_once_are_the_fabrics_fault() -> None:
    line = "gpu-{0}:3468:3905 [4] NCCL WARN NET/IB : mlx5_3:1 Got async event : port error\n"
    assert not job_verdict({f"rank_{k}.log": line.format(k) for k in range(4)}).exclude_node
    assert job_verdict({"rank_0.log": line.format(1)}).exclude_node


def test_the_summary_of_torchrun_names_the_rank_when_nothing_else_does() -> None:
    found = verdict(
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
        "------------------------------------------------------------\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2025-03-02_11:20:04\n  host      : gpu-44\n"
        "  rank      : 13 (local_rank: 5)\n  exitcode  : 1 (pid: 8831)\n  error_file: <N/A>\n"
    )
    assert found.culprit is not None
    assert (found.log_class, found.culprit.rank, found.culprit.node) == ("unknown_insufficient_evidence", 13, "gpu-44")


def test_a_chain_of_tracebacks_is_one_failure_named_by_the_one_that_says_most() -> None:
    found = verdict(
        "ConnectionRefusedError: [Errno 111] Connection refused\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub\n"
    )
    assert found.log_class == "hub_download_failure"


def test_what_the_work_survived_is_no_cause() -> None:
    steps = "".join(f"step {n} loss {2 - n / 1000:.3f} tok/s 4000 grad 0.1\n" for n in range(400))
    found = verdict("step 0 loss 3\nRuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n" + steps)
    assert found.log_class == "clean_success"


def test_a_traceback_stands_though_a_buffer_was_flushed_behind_it() -> None:
    found = verdict(
        "step 1 loss 3\nRuntimeError: CUDA out of memory. Tried to allocate 2 GiB\nstep 2 loss 3\nstep 3 loss 3\n"
    )
    assert found.log_class == "cuda_oom"


def test_a_job_that_was_ended_from_outside_is_not_its_own_fault() -> None:
    found = verdict(
        "step 1 loss 2\nslurmstepd: error: *** JOB 8 ON gpu-7 CANCELLED AT 2025-02-11T10:10:10 DUE TO "
        "PREEMPTION ***\n"
        "[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting early.\n"
    )
    assert (found.log_class, found.exclude_node) == ("preempted_or_cancelled", False)


@pytest.mark.parametrize(
    ("state", "code", "given"),
    [
        ("OUT_OF_MEMORY", None, "host_oom_killed"),
        ("OOMKilled", 137, "host_oom_killed"),
        ("TIMEOUT", None, "time_limit"),
        ("CANCELLED by 1000", None, "preempted_or_cancelled"),
        ("NODE_FAIL", None, "node_fail"),
        ("FAILED", 1, "unknown_insufficient_evidence"),
        ("", 139, "segfault"),
        ("", 137, "unknown_insufficient_evidence"),
        ("COMPLETED", 0, "clean_success"),
        ("", None, "clean_success"),
    ],
)
def test_the_end_state_speaks_where_the_log_does_not(state: str, code: int | None, given: str) -> None:
    assert verdict("step 1 loss 2\nstep 2 loss 2\n", end=end_of(state, code)).log_class == given


def test_the_end_state_yields_to_a_cause_that_the_log_names() -> None:
    assert verdict("KeyError: 'x'\n", end=end_of("TIMEOUT")).log_class == "user_code_exception"


def test_an_error_file_of_torchelastic_is_read() -> None:
    raw = b'{"message": {"message": "KeyError", "extraInfo": {"py_callstack": "Traceback\\nKeyError: 1"}}}'
    assert list(error_file_lines(raw)) == ["Traceback", "KeyError: 1"]
    assert list(error_file_lines(b"not json")) == []
    assert list(error_file_lines(b'{"message": "boom"}')) == ["boom"]
