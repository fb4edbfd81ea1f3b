"""A floor on public samples: real healthy runs, and a corpus of injected failures in its own fifteen classes."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from tests.detectors.joblog.reads import verdict

pytestmark = [pytest.mark.samples, pytest.mark.slow]
SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "data"
#: The fifteen classes of that corpus, and which of ours each one may be called.
OURS = {
    "cuda_oom": "cuda_oom",
    "nccl": "nccl_timeout_hang nccl_remote_peer_failure nccl_local_config_error",
    "cuda_runtime": "illegal_memory_access device_side_assert gpu_hardware_other cuda_library_init_failure",
    "ram_oom": "host_oom_killed",
    "oom_killer": "host_oom_killed",
    "segfault": "segfault",
    "permission": "permission_denied",
    "missing_module": "import_or_compile_failure",
    "nan_loss": "nan_or_loss_divergence",
    "file_not_found": "user_code_exception",
    "div_zero": "user_code_exception",
    "device_mismatch": "user_code_exception",
    "assertion": "user_code_exception",
    "runtime_error": "user_code_exception",
    "traceback": "user_code_exception",
}


def test_the_corpus_of_injected_failures_is_named_in_its_own_classes() -> None:
    folder = SAMPLES / "gpualert-injected"
    table = (folder / "labels_all.tsv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(table.splitlines(), delimiter="\t"))
    given = [(row["class"], verdict((folder / row["path"]).read_bytes()).log_class) for row in rows]
    right = sum(name in OURS[true].split() for true, name in given)
    assert len(rows) == 480
    assert right / len(rows) >= 0.998, Counter(pair for pair in given if pair[1] not in OURS[pair[0]].split())


def test_runs_that_ended_well_raise_no_alarm() -> None:
    logs = [path for path in sorted((SAMPLES / "nanogpt-logs").rglob("*.txt")) if path.name != "SOURCE.txt"]
    assert len(logs) > 30
    assert {path.name: name for path in logs if (name := verdict(path.read_bytes()).log_class) != "clean_success"} == {}
