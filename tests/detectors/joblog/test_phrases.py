"""Kinds of lines: quoted samples, keys of records, what came back, prefixes, and names of hosts in files and lines."""

from __future__ import annotations

import pytest

from detectors.joblog.lines import host_in, is_address, read_line
from detectors.joblog.names import host_of, rank_of
from detectors.joblog.phrases import step_of
from tests.detectors.joblog.reads import job_verdict, sheet, verdict

STEPS = "step 10 loss 2.0\nstep 20 loss 1.9\n"


def test_a_name_that_begins_with_z_is_no_time_zone() -> None:
    line = read_line("2025-09-14 02:04:11,769 ZeroDivisionError: float division by zero")
    assert line.text.startswith("ZeroDivisionError")
    assert read_line("2025-09-14T02:04:11Z x").at == read_line("2025-09-14 02:04:11 x").at


@pytest.mark.parametrize(
    "line",
    [
        'prompt: "RuntimeError: CUDA out of memory"',
        "generated: 'Segmentation fault'",
        '{"checkpoint": {"on_corrupt": "raise"}}',
    ],
)
def test_what_a_model_reads_or_writes_and_the_keys_of_a_configuration_are_no_failures(line: str) -> None:
    assert verdict(line + "\n" + STEPS).log_class == "clean_success"


def test_a_failure_in_a_field_of_a_record_is_one() -> None:
    assert verdict('{"error": "CUDA out of memory", "step": 3}\n').log_class == "cuda_oom"


def test_a_file_system_that_came_back_is_no_failure_and_one_that_went_again_is() -> None:
    away, back = "nfs: server f1 not responding, still trying\n", "nfs: server f1 OK\n"
    assert verdict(away + back).log_class == "clean_success"
    assert verdict(away + back + away).log_class == "filesystem_io_error"


def test_a_step_without_a_number_for_its_loss_is_no_sign_of_life() -> None:
    assert step_of("step 12 loss nan lr 1e-5") is None
    assert step_of("{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.2}") is None
    assert step_of("step 12 loss 1.2 | number of nan iterations: 0") == 12


def test_a_memory_repair_that_waits_is_told_though_the_job_goes_on() -> None:
    line = "NVRM: Xid (PCI:0000:18:00): 63, pid=0, Row Remapper: New row (0x12) marked for remapping\n"
    assert verdict(line + STEPS * 9).log_class == "ecc_row_remap_pending"


def test_a_finer_class_of_the_same_gpu_is_believed_over_an_unknown_error() -> None:
    vague = "Unable to determine the device handle for GPU0000:4E:00.0: Unknown Error\n"
    assert verdict(vague).log_class == "gpu_hardware_other"
    assert verdict(vague + "GPU 0000:4E:00.0: GPU is lost.\n").log_class == "gpu_fallen_off_bus"


@pytest.mark.parametrize(
    ("path", "rank", "host"),
    [
        ("logs/gn087.5.err", 5, "gn087"),
        ("job-77.5.gn222.out", 5, "gn222"),
        ("gn12.ib.site.org-rank4.txt", 4, "gn12.ib.site.org"),
        ("exp_1.2.log", 2, ""),
    ],
)
def test_file_names_give_the_rank_and_the_host(path: str, rank: int, host: str) -> None:
    assert (rank_of(path), host_of(path)) == (rank, host)


def test_a_line_that_pairs_a_host_with_a_rank_tells_the_host() -> None:
    assert host_in("gn087 rank 5/16 local_rank 1 start") == "gn087"
    assert host_in("rank 3/16 on hgx-7 pid 99") == "hgx-7"
    assert host_in("rank 3 on GPU3") == ""


def test_a_rank_is_on_the_host_that_its_log_names_not_at_the_address_that_a_launcher_gives() -> None:
    assert is_address("10.3.0.1") and is_address("fe80::1") and not is_address("gn001")
    line = "(RayTrainWorker pid=811, ip=10.3.0.{n}) {text}\n"
    logs = {
        f"gn00{n}.{n}.err": line.format(n=n, text=f"gn00{n} rank {n}/2 start")
        + line.format(n=n, text="KeyError: 'x'" if n else "Connection reset by peer")
        for n in (0, 1)
    }
    culprit = job_verdict(logs).culprit
    assert culprit is not None
    assert (culprit.rank, culprit.node) == (1, "gn001")


def test_guesses_of_a_launcher_are_no_evidence() -> None:
    guess = "There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer."
    assert "host_oom_killed" not in {hit.log_class for hit in sheet(guess + "\n").hits}


def test_a_bare_nccl_error_is_unknown_and_one_with_a_cause_is_its_cause() -> None:
    bare = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, unhandled system error\n"
    assert verdict(bare).log_class == "unknown_insufficient_evidence"
    cause = "gn1:7:7 [0] misc/ibvwrap.cc:219 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory\n"
    assert verdict(cause + bare).log_class == "nccl_local_config_error"
    gone = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
    assert verdict(bare + gone).log_class == "nccl_remote_peer_failure"
