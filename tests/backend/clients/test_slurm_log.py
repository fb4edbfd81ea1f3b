"""Lines of Slurm's daemons as events: which node, which job, told once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.clients.slurm_log import LogLine, slurm_events
from tests.services.slurm import SlurmCluster

STAMP = "[2026-11-30T19:14:51.161] "


@pytest.mark.parametrize(
    ("text", "code", "hosts", "job"),
    [
        ("error: Nodes gpu-[0001-0002] not responding, setting DOWN", "node_down", ["gpu-0001", "gpu-0002"], ""),
        ("error: Nodes gpu-0001 not responding", "node_not_responding", ["gpu-0001"], ""),
        ("Node gpu-0001 now responding", "node_back", ["gpu-0001"], ""),
        ("node gpu-0001 returned to service", "node_back", ["gpu-0001"], ""),
        ("error: _handle_reboot: Node gpu-0001 unexpectedly rebooted boot_time=5", "node_rebooted", ["gpu-0001"], ""),
        ("error: x: Prolog or job env setup failure on node gpu-3, draining the node", "prolog_failed", ["gpu-3"], ""),
        ("error: [job 77] prolog failed status=1:0", "prolog_failed", ["ctl"], "77"),
        ("error: Epilog failure on host gpu-3, setting DOWN", "epilog_failed", ["gpu-3"], ""),
        ("_e: JobId=9 epilog error on gpu-3, draining the node", "epilog_failed", ["gpu-3"], "9"),
        ("requeue job JobId=2_1(5) due to failure of node r1-02", "job_lost_node", ["r1-02"], "5"),
        ("Requeue job JobId=12 due to node failure", "job_lost_node", ["ctl"], "12"),
        ("Killing JobId=12 on failed node gpu-3", "job_lost_node", ["gpu-3"], "12"),
        ("_job_requeue: requeue JobId=12 per user/system request", "job_requeued", ["ctl"], "12"),
        ("error: gres/gpu count reported lower than configured (7 < 8)", "gpu_count", ["ctl"], ""),
        ("update_node: node gpu-3 reason set to: NHC: x failed", "node_reason", ["gpu-3"], ""),
        ("update_node: node gpu-3 state set to DRAINED", "node_state", ["gpu-3"], ""),
        ("[12.batch] error: Detected 1 oom_kill event in StepId=12.batch.", "oom", ["ctl"], "12"),
        ("Time limit exhausted for JobId=727759", "time_limit", ["ctl"], "727759"),
        ("error: Munge decode failed: Expired credential", "auth_failed", ["ctl"], ""),
        ("slurmctld version 24.11.5 started on cluster x", "daemon_started", ["ctl"], ""),
        (
            "error: Unable to register: Unable to contact slurm controller (connect failure)",
            "controller_lost",
            ["ctl"],
            "",
        ),
    ],
)
def test_a_line_that_matters_is_an_event(text: str, code: str, hosts: list[str], job: str) -> None:
    for line in (text, STAMP + text, f"slurmctld[812]: {text}"):
        found = slurm_events(LogLine(5.0, "ctl", line))
        assert [(e.host, e.code, e.job, e.namespace, e.at) for e in found] == [
            (h, code, job, "slurm", 5.0) for h in hosts
        ]


def test_attrs_carry_what_the_message_says() -> None:
    (failed,) = slurm_events(LogLine(5.0, "gpu-3", STAMP + "error: [job 77] prolog failed status=1:0"))
    assert failed.attrs == {"status": "1:0", "source": "slurm_log", "level": "error"}
    (reason,) = slurm_events(LogLine(5.0, "ctl", "update_node: node gpu-3 reason set to: disk, swap"))
    assert reason.attrs["reason"] == "disk, swap" and reason.attrs["told_by"] == "ctl"


def test_a_controllers_own_line_is_about_no_node() -> None:
    (started,) = slurm_events(LogLine(5.0, "head", "slurmctld version 24.11.5 started on cluster x", "slurmctld"))
    assert (started.host, started.attrs["told_by"]) == ("", "head")


@pytest.mark.parametrize(
    "text",
    [
        "_slurm_rpc_submit_batch_job: JobId=1 InitPrio=4294901759 usec=397",
        "sched/backfill: _start_job: Started JobId=1 in train on gpu-[0000-0001]",
        "_job_complete: JobId=727759 WEXITSTATUS 0",
        "prolog_slurmctld JobId=3 prolog exit status 0:0",
        "",
    ],
)
def test_the_daily_noise_is_none(text: str) -> None:
    assert slurm_events(LogLine(5.0, "ctl", STAMP + text)) == ()


def test_the_same_line_read_twice_is_one_event() -> None:
    line = LogLine(5.0, "ctl", "error: Nodes a,b not responding")
    once, again = slurm_events(line), slurm_events(line)
    assert [e.dedupe for e in once] == [e.dedupe for e in again] and len({e.dedupe for e in once}) == 2


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=120))
def test_no_line_is_too_much(text: str) -> None:
    for line in (text, f"Nodes {text} not responding", f"requeue JobId={text} due to failure of node {text}"):
        slurm_events(LogLine(1.0, "ctl", line))


@pytest.mark.services
def test_a_real_controller_says_so_in_these_words(cluster: SlurmCluster) -> None:
    cluster.run("scontrol", "update", "NodeName=gpu-0002", "State=DRAIN", "Reason=NHC: gpu 3 xid 79")
    log = cluster.folder / "log" / "slurmctld.log"

    def told() -> set[tuple[str, str]]:
        lines = log.read_text(errors="replace").splitlines()
        return {(e.host, e.code) for line in lines for e in slurm_events(LogLine(0.0, "ctl", line))}

    cluster.wait("a line about the drain", lambda: ("gpu-0002", "node_reason") in told())
    assert {("gpu-0002", "node_state"), ("ctl", "daemon_started")} <= told()
