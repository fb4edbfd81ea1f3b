"""Job, attempt, rank and node as schedulers and launchers tell them; words of the command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backend.wrap import place as places
from backend.wrap.place import Place
from backend.wrap.words import WordError, read
from tests.backend.wrap.wrapped import logs, report, shell

STEP = {"SLURM_JOB_ID": "41207", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "16"}


def at(env: dict[str, str], *command: str) -> Place:
    return Place(env, command or ("python", "train.py"), "", "")


def test_slurm_tells_job_attempt_task_and_node() -> None:
    found = at(STEP | {"SLURM_RESTART_COUNT": "2", "SLURMD_NODENAME": "gpu-0412", "SLURM_JOB_NAME": "pretrain"})
    assert (found.job, found.restart, found.task, found.tasks, found.rank) == ("41207", 2, 5, 16, 5)
    assert (found.node, found.name, found.label) == ("gpu-0412", "pretrain", "rank-5")


def test_in_a_batch_script_there_is_one_wrapper_whatever_slurm_procid_says() -> None:
    found = at({"SLURM_JOB_ID": "41207", "SLURM_PROCID": "0", "SLURM_NTASKS": "16"})
    assert (found.task, found.tasks, found.rank, found.label) == (None, None, None, "output")


def test_torchrun_outranks_slurm() -> None:
    found = at(STEP | {"RANK": "43", "WORLD_SIZE": "128", "LOCAL_RANK": "3", "TORCHELASTIC_RESTART_COUNT": "1"})
    assert (found.task, found.tasks, found.rank, found.relaunch) == (43, 128, 43, 1)


@pytest.mark.parametrize(
    "words", [("torchrun", "x.py"), ("python", "-m", "torch.distributed.run"), ("/opt/bin/mpirun",)]
)
def test_what_starts_ranks_is_none(words: tuple[str, ...]) -> None:
    found = at(STEP, *words)
    assert (found.task, found.rank, found.label) == (5, None, "task-5")


@pytest.mark.parametrize(
    ("env", "rank"),
    [
        ({"OMPI_COMM_WORLD_RANK": "4", "OMPI_COMM_WORLD_SIZE": "8"}, (4, 8)),
        ({"PMI_RANK": "4", "PMI_SIZE": "8"}, (4, 8)),
        ({"PMIX_RANK": "4"}, (4, None)),
        ({"JOB_COMPLETION_INDEX": "4"}, (4, None)),
        ({"RANK": "9", "WORLD_SIZE": "8"}, (None, None)),
        ({"RANK": "-1", "WORLD_SIZE": "8"}, (None, None)),
        ({"RANK": "one"}, (None, None)),
    ],
)
def test_mpi_and_kubernetes_tell_ranks_and_nonsense_tells_none(env: dict[str, str], rank: tuple[int, int]) -> None:
    assert (at(env).task, at(env).tasks) == rank


def test_kubernetes_tells_the_job_by_namespace_and_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("research\n")
    monkeypatch.setattr(places, "NAMESPACE_FILE", str(tmp_path / "namespace"))
    env = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_NAME": "train", "NODE_NAME": "node-7"}
    assert (at(env).job, at(env).node) == ("research.train", "node-7")
    assert at(env | {"POD_NAMESPACE": "prod"}).job == "prod.train"


def test_the_environment_is_told_without_secrets(tmp_path: Path) -> None:
    env = STEP | {
        "WANDB_API_KEY": "abcdef0123456789",
        "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwx",
        "SLURM_JOB_GPUS": "0,1",
    }
    shell(tmp_path, "exit 1", env=env)
    told = report(tmp_path)["environment"]
    assert told["SLURM_JOB_GPUS"] == "0,1" and told["SLURM_PROCID"] == "5"
    assert not {"WANDB_API_KEY", "HF_TOKEN", "PATH"} & set(told) and "abcdef" not in str(report(tmp_path))


def test_logs_of_ranks_and_attempts_stand_apart_and_none_is_written_over(tmp_path: Path) -> None:
    for restart in ("0", "1", "1"):
        for rank in ("0", "1"):
            env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "a b/c", "SLURM_RESTART_COUNT": restart, "RANK": rank}
            shell(tmp_path, f"echo {restart} {rank}", env=env)
    names = [os.fspath(path.relative_to(tmp_path / "watchkeeper-logs")) for path in logs(tmp_path)]
    assert set(names) == {
        "a_b_c-7-restart-1/rank-0.again-1.log",
        "a_b_c-7-restart-1/rank-0.log",
        "a_b_c-7-restart-1/rank-1.again-1.log",
        "a_b_c-7-restart-1/rank-1.log",
        "a_b_c-7/rank-0.log",
        "a_b_c-7/rank-1.log",
    }


def test_words_are_read_up_to_the_command(tmp_path: Path) -> None:
    found = read(["--name=n", "--email", "a", "--email", "b,c", "--always", "prog", "--name", "its"], {})
    assert (found.name, found.email, found.always) == ("n", ["a", "b", "c"], True)
    assert found.command == ["prog", "--name", "its"]
    assert read(["--", "--", "x"], {}).command == ["--", "x"]


def test_the_environment_stands_in_for_words_and_words_outrank_it() -> None:
    env = {"WATCHKEEPER_WRAP_SERVER": "http://a", "WATCHKEEPER_WRAP_EMAIL": "x y", "WATCHKEEPER_WRAP_ALWAYS": "1"}
    found = read(["--server", "http://b", "--", "true"], env)
    assert (found.server, found.email, found.always) == ("http://b", ["x", "y"], True)


@pytest.mark.parametrize(
    "words", [["--patience", "-1"], ["--patience", "nan"], ["--artifact-bytes", "x"], ["-x"], ["--x=1"]]
)
def test_words_that_mean_nothing_are_named(words: list[str]) -> None:
    with pytest.raises(WordError, match=words[0].partition("=")[0]):
        read([*words, "--", "true"], {})
