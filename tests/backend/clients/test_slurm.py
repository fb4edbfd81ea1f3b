"""Slurm's commands: what is sent, what is refused before it is sent, what a silent controller costs, the real thing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence

import pytest

from backend.clients.slurm import Ran, SlurmCli, SlurmError, run_bounded
from tests.services.slurm import SlurmCluster

NODE = "NodeName=gpu-0000 Gres=gpu:8 State=MIXED BootTime=1796053814\n"


class Recorded:
    """A runner that answers by the first words of the command, and remembers what it was asked."""

    def __init__(self, **answers: Ran | Exception) -> None:
        self.answers = answers
        self.asked: list[tuple[str, ...]] = []
        self.env: Mapping[str, str] = {}

    def __call__(self, command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Ran:
        self.asked.append(tuple(command))
        self.env = env
        said = self.answers.get(command[0], Ran(0, "", ""))
        if isinstance(said, Exception):
            raise said
        return said


def test_commands_are_lists_of_arguments_and_never_a_shell() -> None:
    run = Recorded(scontrol=Ran(0, NODE, ""), squeue=Ran(0, "7\n7\n9\n", ""))
    cli = SlurmCli(run=run)
    assert cli.node("gpu-0000").jobs == ("7", "9")
    cli.drain("gpu-0000", "[watchkeeper] gpu_bus_loss gpu=3 inc=812")
    cli.resume("gpu-0000")
    cli.requeue("7")
    cli.exclude("7", ["gpu-0001", "gpu-0000"])
    assert run.asked[2:] == [
        ("scontrol", "update", "NodeName=gpu-0000", "State=DRAIN", "Reason=[watchkeeper] gpu_bus_loss gpu=3 inc=812"),
        ("scontrol", "update", "NodeName=gpu-0000", "State=UNDRAIN"),
        ("scontrol", "requeue", "7"),
        ("scontrol", "update", "JobId=7", "ExcNodeList=gpu-[0000-0001]"),
    ]


def test_the_environment_is_ours_whatever_the_shell_had_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")
    run = Recorded(scontrol=Ran(0, NODE, ""))
    SlurmCli(run=run).nodes()
    assert run.env["SLURM_TIME_FORMAT"] == "%s" and run.env["LC_ALL"] == "C" and "SQUEUE_FORMAT" not in run.env
    assert run.env["SLURM_CONF"] == "/etc/other.conf"
    SlurmCli(conf="/mine/slurm.conf", run=run).nodes()
    assert run.env["SLURM_CONF"] == "/mine/slurm.conf"


@pytest.mark.parametrize(
    "name", ["", "ALL", "all", "-h", "gpu-[1-9]", "a,b", "gpu 1", "gpu;x", "State=DOWN", "a" * 300]
)
def test_what_is_not_the_name_of_one_node_never_becomes_an_argument(name: str) -> None:
    run = Recorded()
    cli = SlurmCli(run=run)
    for call in (cli.node, cli.resume, lambda n: cli.drain(n, "x"), lambda n: cli.exclude("1", [n])):
        with pytest.raises(SlurmError) as refused:
            call(name)
        assert refused.value.permanent
    assert run.asked == []


@pytest.mark.parametrize("job", ["", "-1", "7;x", "7 8", "x", "7,8", "9" * 11, "٣"])
def test_what_is_not_a_job_number_never_becomes_an_argument(job: str) -> None:
    run = Recorded()
    cli = SlurmCli(run=run)
    for call in (cli.requeue, cli.job, lambda j: cli.exclude(j, ["gpu-0000"])):
        with pytest.raises(SlurmError, match="not a job number"):
            call(job)
    assert run.asked == []


@pytest.mark.parametrize("reason", ["", "a\nb", "x" * 201])
def test_a_reason_is_one_printable_line(reason: str) -> None:
    with pytest.raises(SlurmError, match="printable"):
        SlurmCli(run=Recorded()).drain("gpu-0000", reason)


@pytest.mark.parametrize(
    ("words", "permanent"),
    [
        ("slurm_update error: Invalid node name specified", True),
        ("slurm_update error: Access/permission denied", True),
        ("Requested operation is presently disabled for job 2", True),
        ("slurm_load_node error: Unable to contact slurm controller (connect failure)", False),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", False),
        ("slurm_load_jobs error: Slurm backup controller in standby mode", False),
    ],
)
def test_no_is_permanent_and_silence_is_not(words: str, permanent: bool) -> None:
    with pytest.raises(SlurmError, match="scontrol") as failed:
        SlurmCli(run=Recorded(scontrol=Ran(1, "", words + "\n"))).nodes()
    assert failed.value.permanent is permanent


def test_a_missing_command_says_what_to_install() -> None:
    with pytest.raises(SlurmError, match="slurm-client") as failed:
        SlurmCli(run=Recorded(scontrol=FileNotFoundError("scontrol"))).nodes()
    assert failed.value.permanent


@pytest.mark.parametrize("out", ["", "no json", "[]", '{"jobs": 3}', '{"jobs": [{"nodes": "["}]}', "[" * 5000])
def test_jobs_that_cannot_be_read_are_an_error_with_a_fix(out: str) -> None:
    with pytest.raises(SlurmError, match="serializer") as failed:
        SlurmCli(run=Recorded(squeue=Ran(0, out, ""))).jobs()
    assert failed.value.permanent


def test_a_command_that_hangs_is_killed_with_its_children() -> None:
    started = time.monotonic()
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with pytest.raises(TimeoutError):
        run_bounded([sys.executable, "-c", script], os.environ, 0.5)
    assert time.monotonic() - started < 10


def test_the_version_is_read_from_every_vendor() -> None:
    for said, version in (("slurm-wlm 22.05.8\n", (22, 5, 8)), ("slurm 25.11.0-0rc1", (25, 11, 0))):
        assert SlurmCli(run=Recorded(sinfo=Ran(0, said, ""))).version() == version
    with pytest.raises(SlurmError, match="no version"):
        SlurmCli(run=Recorded(sinfo=Ran(0, "x", ""))).version()


@pytest.mark.services
def test_real_nodes_and_jobs_are_read_whole(cluster: SlurmCluster) -> None:
    cli = SlurmCli(str(cluster.conf), timeout_s=20)
    assert cli.version() >= (22, 5, 0)
    forged = "x\nJobId=99 JobName=y UserId=root(0) JobState=FAILED"
    job = cluster.submit("-N2", "--gres=gpu:8", "--exclude=gpu-0003", "-J", forged)
    cluster.wait("running job", lambda: bool(cli.node("gpu-0000").jobs))
    nodes = {n.name: n for n in cli.nodes()}
    assert set(nodes) == set(cluster.nodes)
    assert nodes["gpu-0000"].state == "mixed" and nodes["gpu-0003"].state == "idle"
    assert nodes["gpu-0000"].expected_gpus == 8 and nodes["gpu-0000"].model == "h100" and nodes["gpu-0000"].boot_at
    (attempt,) = [a for a in cli.jobs() if a.state == "RUNNING"]
    assert (attempt.job, attempt.restart, attempt.run) == (job, 0, forged)
    assert attempt.nodes == ("gpu-0000", "gpu-0001") and attempt.excluded == ("gpu-0003",)
    assert attempt.gpus_per_node == 8 and attempt.start and attempt.end is None
    assert cli.node("gpu-0001").jobs == (job,) and cli.job("4000000000") is None
    with pytest.raises(SlurmError) as unknown:
        cli.node("gpu-9999")
    assert unknown.value.permanent


@pytest.mark.services
def test_a_real_drain_is_set_read_and_taken_away(cluster: SlurmCluster) -> None:
    cli = SlurmCli(str(cluster.conf), timeout_s=20)
    cli.drain("gpu-0002", "[watchkeeper] gpu_bus_loss gpu=3 inc=812")
    node = cli.node("gpu-0002")
    assert node.drained and node.reason_owner == "watchkeeper"
    assert node.reason == "[watchkeeper] gpu_bus_loss gpu=3 inc=812"
    cli.resume("gpu-0002")
    assert not cli.node("gpu-0002").out and cli.node("gpu-0002").reason == ""
    cli.resume("gpu-0002")


@pytest.mark.services
def test_a_real_controller_that_hangs_costs_the_timeout_and_no_more(cluster: SlurmCluster) -> None:
    cli = SlurmCli(str(cluster.conf), timeout_s=1)
    cluster.pause_controller()
    try:
        started = time.monotonic()
        with pytest.raises(SlurmError, match="no answer within 1 s") as failed:
            cli.nodes()
        assert not failed.value.permanent and time.monotonic() - started < 10
    finally:
        cluster.resume_controller()


def test_a_command_that_prints_without_end_is_killed_before_it_fills_the_memory() -> None:
    with pytest.raises(OSError, match="printed more than 100,000 bytes"):
        run_bounded([sys.executable, "-c", "while True: print('y' * 9999)"], os.environ, 20.0, 100_000)


def test_bytes_that_are_no_text_and_both_outputs_are_read() -> None:
    script = "import os; os.write(1, b'a\\xff' * 99999); os.write(2, b'no'); raise SystemExit(3)"
    ran = run_bounded([sys.executable, "-c", script], os.environ, 20.0)
    assert (ran.code, ran.out, ran.err) == (3, "a\ufffd" * 99_999, "no")


def test_a_child_that_outlives_its_command_holds_nobody_up() -> None:
    script = "import subprocess; subprocess.Popen(['sleep', '60'])"
    with pytest.raises(TimeoutError):
        run_bounded([sys.executable, "-c", script], os.environ, 1.0)
