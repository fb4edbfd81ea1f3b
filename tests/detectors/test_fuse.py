"""What agrees is joined, what follows from a cause folds under it, and the order of findings changes nothing."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from detectors.catalogue import load
from detectors.fuse import fuse, noisy_or
from detectors.model import Entity, Evidence, Finding, Fleet, Severity
from tests.detectors.fleets import T0, entity, fleet_of

CATALOGUE = load()
FLEET = fleet_of(3, jobs={"48213": (0, 1)})
GPU3, GPU5 = "gpu-0001/gpu3", "gpu-0001/gpu5"


def finding(
    name: str,
    kind: str,
    detector: str = "kernel/xid",
    severity: Severity = Severity.CRITICAL,
    score: float = 0.99,
    since: float = T0,
) -> Finding:
    who = entity(FLEET, name)
    return Finding(detector, kind, who, severity, score, since, f"{who} {kind}.", (Evidence("x", "1"),))


LOSS = finding(GPU3, "gpu_bus_loss")
SILENT = finding(GPU3, "gpu_bus_loss", "telemetry/silence", Severity.HIGH, 0.6, T0 + 30)
DARK = finding("gpu-0001", "telemetry_dark", "telemetry/silence", Severity.WARNING, 0.7, T0 + 600)
APP = finding(GPU5, "gpu_memory_fault_app", severity=Severity.INFO, score=0.5, since=T0 + 2)
LINK = finding(GPU5, "nvlink_error", since=T0 + 1)
HOT = finding(GPU3, "thermal_throttle", "telemetry/peers", Severity.HIGH, 0.85)


def test_code_and_silence_agree_and_are_one_hypothesis() -> None:
    (suspicion,) = fuse([SILENT, LOSS], FLEET, CATALOGUE)
    (cause,) = suspicion.hypotheses
    assert cause.authority == "code" and cause.keys == {LOSS.key, SILENT.key}
    assert cause.score == pytest.approx(noisy_or((0.99, 0.6)), abs=1e-4)
    assert cause.reason == LOSS.reason
    assert (suspicion.node, suspicion.job, suspicion.since) == ("gpu-0001", "48213", T0)


def test_one_detector_alone_is_told_but_not_acted_on_where_its_kind_needs_a_vote() -> None:
    (suspicion,) = fuse([SILENT], FLEET, CATALOGUE)
    assert suspicion.cause.authority == "rule" and suspicion.cause.score == 0.6
    (hot,) = fuse([HOT], FLEET, CATALOGUE)
    assert hot.cause.authority == "state"


def test_two_families_that_agree_are_a_vote() -> None:
    other = finding(GPU3, "gpu_bus_loss", "joblog/hang", Severity.HIGH, 0.5)
    (suspicion,) = fuse([SILENT, other], FLEET, CATALOGUE)
    assert suspicion.cause.authority == "vote" and suspicion.cause.score == pytest.approx(0.8)


def test_two_detectors_of_one_family_are_no_vote() -> None:
    other = finding(GPU3, "gpu_bus_loss", "telemetry/other", Severity.HIGH, 0.5)
    (suspicion,) = fuse([SILENT, other], FLEET, CATALOGUE)
    assert suspicion.cause.authority == "rule" and suspicion.cause.score == 0.6


def test_a_lost_gpu_explains_what_came_with_it_on_its_node() -> None:
    (suspicion,) = fuse([DARK, APP, LINK, HOT, SILENT, LOSS], FLEET, CATALOGUE)
    assert suspicion.cause.kind == "gpu_bus_loss"
    assert len(suspicion.findings) == 6
    assert suspicion.severity is Severity.CRITICAL
    for rival in suspicion.hypotheses[1:]:
        assert rival.score < 0.05, "explained away"
    assert all(h.severity > Severity.INFO for h in suspicion.hypotheses), "records are no rivals"


def test_what_stood_long_before_is_not_explained() -> None:
    early = finding(GPU5, "nvlink_error", since=T0 - 3600)
    suspicions = fuse([LOSS, early], FLEET, CATALOGUE)
    assert [s.cause.kind for s in suspicions] == ["nvlink_error", "gpu_bus_loss"]


def test_a_code_on_one_gpu_does_not_explain_a_code_on_another() -> None:
    other = finding(GPU5, "gpu_ecc_uncorrectable")
    assert len(fuse([LOSS, other], FLEET, CATALOGUE)) == 2


def test_other_nodes_are_never_explained_here() -> None:
    other = finding("gpu-0002/gpu1", "gpu_memory_fault_app", severity=Severity.INFO, score=0.5)
    suspicions = fuse([LOSS, other], FLEET, CATALOGUE)
    assert [s.opens for s in suspicions] == [True, False]


def test_a_record_opens_nothing() -> None:
    (suspicion,) = fuse([APP], FLEET, CATALOGUE)
    assert not suspicion.opens and suspicion.severity is Severity.INFO


@pytest.mark.parametrize(
    ("kind", "severity", "authority"),
    [
        ("gpu_hardware_other", Severity.WARNING, "rule"),
        ("gpu_hardware_other", Severity.HIGH, "code"),
        ("gpu_ecc_row_remap", Severity.WARNING, "code"),
        ("gpu_ecc_uncorrectable", Severity.HIGH, "code"),
        ("nvlink_error", Severity.WARNING, "rule"),
    ],
)
def test_a_code_quieter_than_its_kind_is_told_and_not_acted_on(kind: str, severity: Severity, authority: str) -> None:
    (suspicion,) = fuse([finding(GPU3, kind, severity=severity)], FLEET, CATALOGUE)
    assert suspicion.cause.authority == authority


def test_a_code_that_only_warns_does_not_lead_over_a_loud_state() -> None:
    repair = finding(GPU3, "gpu_ecc_row_remap", severity=Severity.WARNING, score=0.8, since=T0 - 60)
    (suspicion,) = fuse([repair, HOT], FLEET, CATALOGUE)
    assert [h.kind for h in suspicion.hypotheses] == ["thermal_throttle", "gpu_ecc_row_remap"]
    assert suspicion.severity is Severity.HIGH


def test_most_gpus_of_a_node_hot_together_is_the_node() -> None:
    hot = [finding(f"gpu-0001/gpu{i}", "thermal_throttle", "telemetry/peers", Severity.HIGH, 0.85) for i in range(6)]
    (suspicion,) = fuse(hot, FLEET, CATALOGUE)
    assert suspicion.cause.entity == entity(FLEET, "gpu-0001")
    assert suspicion.cause.reason.startswith("6 of 8 GPUs of gpu-0001 show it together: ")
    assert len(suspicion.findings) == 6
    assert len(fuse(hot[:3], FLEET, CATALOGUE)) == 3


def test_a_line_without_a_device_is_about_the_gpu_that_fell_silent() -> None:
    vague = finding("gpu-0001", "gpu_bus_loss")
    (suspicion,) = fuse([vague, SILENT], FLEET, CATALOGUE)
    assert suspicion.cause.entity == entity(FLEET, GPU3) and suspicion.cause.authority == "code"
    two = finding(GPU5, "gpu_bus_loss", "telemetry/silence", Severity.HIGH, 0.6)
    assert any(s.cause.entity.kind == "node" for s in fuse([vague, SILENT, two], FLEET, CATALOGUE))


def test_things_without_a_node_stand_by_themselves() -> None:
    job = Finding("joblog/hang", "job_hang", Entity("main", "job", "48213"), Severity.HIGH, 0.6, T0, "Stands still.")
    suspicions = fuse([job, LOSS], FLEET, CATALOGUE)
    assert {(s.node, s.job) for s in suspicions} == {("", "48213"), ("gpu-0001", "48213")}


def test_the_order_of_findings_has_no_effect_and_none_is_lost_or_doubled() -> None:
    findings = [LOSS, SILENT, DARK, APP, LINK, HOT, finding("gpu-0003/gpu1", "gsp_timeout")]
    first = fuse(findings, FLEET, CATALOGUE)
    dice = random.Random(1)
    for _ in range(20):
        assert fuse(dice.sample(findings, len(findings)), FLEET, CATALOGUE) == first
    told = list(itertools.chain.from_iterable(s.findings for s in first))
    assert sorted(f.key for f in told) == sorted(f.key for f in findings)


def test_nothing_found_is_nothing_suspected() -> None:
    assert fuse([], FLEET, CATALOGUE) == ()


def test_a_kernel_line_is_a_code_only_where_its_kind_may_be_believed_by_code() -> None:
    words = {
        "ib_link_flap": "trend",
        "ib_port_degraded": "rule",
        "thermal_throttle": "state",
        "nfs_slow": "rule",
        "ib_link_down": "code",
    }
    for kind, authority in words.items():
        (suspicion,) = fuse([finding("gpu-0001", kind, "kernel/network", Severity.HIGH)], FLEET, CATALOGUE)
        assert suspicion.cause.authority == authority, kind


def test_a_port_of_a_node_is_of_the_nodes_job() -> None:
    port = Entity("main", "nic", "gpu-0001/nic:0000:4b:00", node="gpu-0001")
    assert FLEET.job_of(port) == "48213" and FLEET.job_of(Entity("main", "fs", "nfs-17")) == ""


HANG = Finding(
    "telemetry/hang",
    "job_hang",
    Entity("main", "job", "48213", "job:48213"),
    Severity.WARNING,
    0.6,
    T0 + 45,
    "The job stands still.",
    (Evidence("x", "1"),),
)


@pytest.mark.parametrize(("name", "kind"), [(GPU3, "gpu_bus_loss"), ("gpu-0001", "node_unreachable")])
def test_what_fell_silent_while_its_job_stopped_is_lost_by_vote(name: str, kind: str) -> None:
    silent = finding(name, kind, "telemetry/silence", Severity.INFO, 0.5, T0 + 30)
    lost, stall = fuse([silent, HANG], FLEET, CATALOGUE)
    assert (lost.cause.authority, lost.cause.severity, lost.cause.entity) == ("vote", Severity.CRITICAL, silent.entity)
    assert lost.cause.reason.endswith("Its job stands still since then.")
    assert stall.cause.kind == "job_hang", "which stays a suspicion of its own"


def test_a_job_that_stopped_at_another_time_or_elsewhere_bears_nothing_out() -> None:
    silent = finding(GPU3, "gpu_bus_loss", "telemetry/silence", Severity.HIGH, 0.6, T0 + 3000)
    other = finding("gpu-0003/gpu1", "gpu_bus_loss", "telemetry/silence", Severity.HIGH, 0.6, T0 + 30)
    slow = finding(GPU5, "thermal_throttle", "telemetry/peers", Severity.HIGH, 0.6, T0 + 30)
    for one in (silent, other, slow):
        assert {s.cause.authority for s in fuse([one, HANG], FLEET, CATALOGUE)} <= {"rule", "state"}


def test_the_schedulers_word_and_the_silence_are_a_vote() -> None:
    silent = finding("gpu-0001", "node_unreachable", "telemetry/silence", Severity.CRITICAL, 0.8, T0)
    said = finding("gpu-0001", "node_unreachable", "scheduler/nodes", Severity.HIGH, 0.7, T0 + 60)
    (suspicion,) = fuse([silent, said], FLEET, CATALOGUE)
    assert suspicion.cause.authority == "vote" and suspicion.severity is Severity.CRITICAL


def racked() -> Fleet:
    fleet = fleet_of(4, jobs={"48213": (0, 1, 2, 3)})
    nodes = replace(fleet.axes["node"], rack_of=np.array([0, 0, 0, 1], np.int32))
    return replace(fleet, axes={**fleet.axes, "node": nodes}, racks=("r01", "r02"))


def test_heat_on_several_nodes_of_a_rack_is_the_racks() -> None:
    fleet = racked()
    hot = [finding(name, "thermal_throttle", "telemetry/peers", Severity.HIGH, 0.7) for name in (GPU3, "gpu-0002/gpu1")]
    (suspicion,) = fuse(hot, fleet, CATALOGUE)
    assert (str(suspicion.cause.entity), suspicion.node, suspicion.cause.authority) == ("rack:r01", "", "state")
    assert suspicion.cause.reason.startswith("2 of 3 nodes of rack:r01 show it together")
    assert suspicion.cause.keys == {f.key for f in hot}


def test_heat_of_one_node_is_its_own() -> None:
    fleet = racked()
    hot = [finding(name, "thermal_throttle", "telemetry/peers", Severity.HIGH, 0.7) for name in (GPU3, GPU5)]
    assert {suspicion.node for suspicion in fuse(hot, fleet, CATALOGUE)} == {"gpu-0001"}


def test_a_server_goes_by_the_name_of_the_file_system_that_is_mounted_from_it() -> None:
    said = Entity("main", "fs", "store", "fs:store")
    seen = Entity("main", "fs", "scratch", "fs:scratch")
    proof = (Evidence("x", "1"),)
    both = [
        Finding("kernel/storage", "nfs_slow", said, Severity.WARNING, 0.6, T0, "A server is silent.", proof),
        Finding("telemetry/storage", "nfs_slow", seen, Severity.HIGH, 0.8, T0, "Clients wait.", proof),
    ]
    (suspicion,) = fuse(both, FLEET, CATALOGUE)
    assert (str(suspicion.cause.entity), suspicion.cause.authority) == ("fs:scratch", "vote")


SLOW = finding(GPU3, "silent_slow_gpu", "telemetry/failslow", Severity.HIGH, 0.65, T0)
STEPS = Finding(
    "training/pace",
    "job_slow",
    Entity("main", "job", "48213", "job:48213"),
    Severity.WARNING,
    0.6,
    T0 + 200,
    "Slow.",
    (),
)


def late_rank(node: str) -> Finding:
    return replace(STEPS, entity=Entity("main", "rank", "llm/rank:3", "run:llm/rank:3", node))


def slow_cause(*found: Finding) -> tuple[str, Severity]:
    every = fuse(found, FLEET, CATALOGUE)
    one = next(s.cause for s in every if any(h.kind == "silent_slow_gpu" for h in s.hypotheses))
    return one.authority, one.severity


@pytest.mark.parametrize("other", [STEPS, late_rank("gpu-0001")])
def test_a_slow_gpu_is_a_vote_with_the_trainers_own_clock(other: Finding) -> None:
    assert slow_cause(SLOW, other) == ("vote", Severity.HIGH)


@pytest.mark.parametrize(
    "others",
    [
        (replace(STEPS, detector="telemetry/failslow"),),
        (late_rank("gpu-0002"),),
        (late_rank("gpu-0001"), late_rank("gpu-0002")),
        (STEPS, replace(SLOW, entity=entity(FLEET, "gpu-0002/gpu0"))),
        (replace(STEPS, since=T0 + 3000),),
        (replace(STEPS, severity=Severity.INFO),),
        (replace(STEPS, entity=Entity("main", "job", "7", "job:7")),),
    ],
    ids=["same readings", "rank elsewhere", "two nodes' ranks", "two nodes' GPUs", "long after", "info", "other job"],
)
def test_what_does_not_point_at_the_one_gpu_bears_no_slow_gpu_out(others: tuple[Finding, ...]) -> None:
    assert slow_cause(SLOW, *others)[0] == "rule"


def test_a_mere_warning_of_a_slow_gpu_needs_a_rank_of_its_node() -> None:
    mild = replace(SLOW, detector="telemetry/peers", severity=Severity.WARNING)
    assert slow_cause(mild, STEPS)[0] == "rule"
    assert slow_cause(mild, late_rank("gpu-0001")) == ("vote", Severity.HIGH)
