"""The hand on Slurm when Slurm's answers are odd: each a moment that a real cluster rarely shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from backend.act.base import ActionError
from backend.act.slurm import SlurmBackend
from backend.clients.slurm import Ran, SlurmCli
from backend.clock import ManualClock
from backend.facts import OrderFacts, Verb
from tests.contracts.cluster_backend import order

OURS = "[watchkeeper] gpu_bus_loss gpu=3 inc=812"


class Spoken:
    """A runner whose answers are said in advance: nodes and jobs in turn (the last repeats), refusals by word."""

    def __init__(self, *nodes: str, jobs: Sequence[Mapping[str, object]] = (), refuse: Mapping[str, str] | None = None):
        self.nodes = list(nodes) or ["State=IDLE"]
        self.jobs = list(jobs) or [job()]
        self.refuse = refuse or {}
        self.sent: list[str] = []

    def __call__(self, command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Ran:
        words = " ".join(command)
        for word, said in self.refuse.items():
            if word in words:
                self.sent.append(words)
                return Ran(1, "", said)
        if "show node" in words:
            said = self.nodes.pop(0) if len(self.nodes) > 1 else self.nodes[0]
            return Ran(0, f"NodeName=gpu-0000 Gres=gpu:8 {said}\n", "")
        if "--json" in words:
            record = self.jobs.pop(0) if len(self.jobs) > 1 else self.jobs[0]
            return Ran(0, json.dumps({"jobs": [record] if record else []}), "")
        if words.startswith("squeue"):
            return Ran(0, "", "")
        self.sent.append(words)
        return Ran(0, "", "")

    def backend(self) -> SlurmBackend:
        return SlurmBackend(SlurmCli(run=self), ManualClock(datetime(2026, 3, 1, tzinfo=UTC)))


def job(**fields: object) -> dict[str, object]:
    told = {"job_id": 7, "job_state": "RUNNING", "restart_cnt": 0, "start_time": 1796055002, "nodes": "gpu-0000"}
    return {**told, "batch_flag": True, "requeue": True, "excluded_nodes": "", "required_nodes": "", **fields}


def requeue(exclude: tuple[str, ...] = ()) -> OrderFacts:
    return replace(order(Verb.REQUEUE, "gpu-0000", "7", exclude=exclude), witness={"restart": "0"})


def test_a_resume_that_somebody_made_first_is_no_error() -> None:
    slurm = Spoken(
        f"State=IDLE+DRAIN Reason={OURS} [root@1]",
        "State=IDLE",
        refuse={"UNDRAIN": "slurm_update error: Invalid node state specified"},
    )
    assert slurm.backend().perform(order(Verb.RESUME, "gpu-0000")).changed
    still = Spoken(f"State=IDLE+DRAIN Reason={OURS} [root@1]", refuse={"UNDRAIN": "Access/permission denied"})
    with pytest.raises(ActionError, match="permission denied") as refused:
        still.backend().perform(order(Verb.RESUME, "gpu-0000"))
    assert refused.value.permanent


def test_an_heir_gives_back_the_drain_that_names_the_incident_before_it() -> None:
    """The drain's reason says inc=812; the incident that inherited the node has another number."""
    inherited = replace(order(Verb.RESUME, "gpu-0000"), incident=913)
    assert Spoken(f"State=IDLE+DRAIN Reason={OURS} [root@1]", "State=IDLE").backend().perform(inherited).changed
    assert Spoken(f"State=IDLE+DRAIN Reason={OURS} [root@1]").backend().settle(inherited) is None
    other = replace(order(Verb.RESUME, "gpu-0000", incident=913), incident=812)
    with pytest.raises(ActionError, match="lifts only its own"):
        Spoken(f"State=IDLE+DRAIN Reason={OURS} [root@1]").backend().perform(other)


def test_a_drain_that_slurm_took_and_does_not_show_is_no_success() -> None:
    slurm = Spoken("State=IDLE", "State=IDLE")
    with pytest.raises(ActionError, match="does not show it") as failed:
        slurm.backend().perform(order(Verb.DRAIN, "gpu-0000"))
    assert not failed.value.permanent and len(slurm.sent) == 1


def test_a_drain_without_our_tag_is_never_sent() -> None:
    slurm = Spoken()
    with pytest.raises(ActionError, match="never be lifted"):
        slurm.backend().perform(replace(order(Verb.DRAIN, "gpu-0000"), reason="bad gpu"))
    assert slurm.sent == []


def test_a_resume_that_slurm_took_and_does_not_show_is_no_success() -> None:
    ours, theirs = f"State=IDLE+DRAIN Reason={OURS} [root@1]", "State=IDLE+DRAIN Reason=fan [eve@1]"
    for after, permanent in ((ours, False), (theirs, True)):
        with pytest.raises(ActionError) as failed:
            Spoken(ours, after).backend().perform(order(Verb.RESUME, "gpu-0000"))
        assert failed.value.permanent is permanent


def test_a_failing_node_is_somebodys_cordon_too() -> None:
    with pytest.raises(ActionError, match="by eve"):
        Spoken("State=IDLE+FAIL Reason=fan [eve@1]").backend().perform(order(Verb.DRAIN, "gpu-0000"))
    with pytest.raises(ActionError, match="by someone"):
        Spoken("State=IDLE+DRAIN").backend().perform(order(Verb.DRAIN, "gpu-0000"))


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (job(job_state="CANCELLED", end_time=1796055100), "has ended"),
        (job(job_state="COMPLETING"), "has ended"),
        (job(job_state="RUNNING", restart_cnt=1, nodes="gpu-0001"), "restarted before this; it runs on gpu-0001"),
        (job(nodes="gpu-0001"), "does not run on gpu-0000 any more"),
        (job(job_state="PENDING", restart_cnt=1, nodes=""), "already queued again"),
        ({}, "Slurm forgot it"),
    ],
)
def test_what_needs_no_requeue_is_left_alone_and_said(now: dict[str, object], words: str) -> None:
    slurm = Spoken(jobs=[now])
    outcome = slurm.backend().perform(requeue())
    assert not outcome.changed and words in outcome.text and slurm.sent == []


def test_a_job_that_waits_already_still_learns_what_to_avoid() -> None:
    slurm = Spoken(jobs=[job(job_state="PENDING", restart_cnt=1, nodes="", excluded_nodes="gpu-0009")])
    outcome = slurm.backend().perform(requeue(exclude=("gpu-0000",)))
    assert outcome.changed and slurm.sent == ["scontrol update JobId=7 ExcNodeList=gpu-[0000,0009]"]


def test_a_requeue_stands_when_the_exclusion_is_refused() -> None:
    slurm = Spoken(jobs=[job(), job(job_state="PENDING", restart_cnt=1)], refuse={"ExcNodeList": "no longer pending"})
    outcome = slurm.backend().perform(requeue(exclude=("gpu-0000",)))
    assert outcome.changed and "would not let it avoid gpu-0000" in outcome.text


def test_a_requeue_that_slurm_took_and_does_not_show_is_no_success() -> None:
    with pytest.raises(ActionError, match="stays 0") as failed:
        Spoken(jobs=[job(), job()]).backend().perform(requeue())
    assert not failed.value.permanent


def test_an_interactive_job_is_refused_with_the_fix() -> None:
    with pytest.raises(ActionError, match="Ask its owner") as refused:
        Spoken(jobs=[job(batch_flag=False)]).backend().perform(requeue())
    assert refused.value.permanent


@pytest.mark.parametrize("verb", [Verb.DRAIN, Verb.RESUME])
def test_what_nothing_can_settle_is_uncertain(verb: Verb) -> None:
    with pytest.raises(ActionError, match="nothing can tell") as unsure:
        Spoken("State=IDLE+DRAIN Reason=fan [eve@1]").backend().settle(order(verb, "gpu-0000"))
    assert unsure.value.permanent


def test_a_requeue_without_a_witness_is_neither_sent_nor_settled() -> None:
    slurm = Spoken()
    for call in (slurm.backend().perform, slurm.backend().settle):
        with pytest.raises(ActionError, match="no restart count") as refused:
            call(replace(requeue(), witness={}))
        assert refused.value.permanent
    assert slurm.sent == []


def test_a_settled_requeue_says_what_the_job_may_still_get() -> None:
    slurm = Spoken(jobs=[job(job_state="PENDING", restart_cnt=1)])
    settled = slurm.backend().settle(requeue(exclude=("gpu-0000",)))
    assert settled is not None and "may still get gpu-0000" in settled.text
    with pytest.raises(ActionError, match="knows no job 7"):
        Spoken(jobs=[{}]).backend().settle(requeue())
