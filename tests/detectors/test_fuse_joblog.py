"""A job may print the driver's very words: its log alone is told and never acted on, a second witness makes a vote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detectors.catalogue import load
from detectors.fuse import fuse
from detectors.joblog.outcome import outcome
from detectors.model import Entity, Evidence, Finding, Severity, Tick
from tests.detectors.fleets import T0, entity, fleet_of, verdict

CATALOGUE = load()
FLEET = fleet_of(3, jobs={"48213": (0, 1)})
MEANINGS = sorted({meaning.node_kind for meaning in outcome(CATALOGUE).meanings.values() if meaning.node_kind})


def finding(name: str, kind: str, detector: str, severity: Severity = Severity.CRITICAL) -> Finding:
    who = entity(FLEET, name)
    return Finding(detector, kind, who, severity, 0.9, T0, f"{who} {kind}.", (Evidence("x", "1"),))


@pytest.mark.parametrize("kind", MEANINGS)
@pytest.mark.parametrize("name", ["gpu-0001", "gpu-0001/gpu3"])
def test_no_log_of_a_job_alone_carries_more_than_telling(kind: str, name: str) -> None:
    (suspicion,) = fuse([finding(name, kind, "joblog/outcome")], FLEET, CATALOGUE)
    assert suspicion.cause.authority == "rule"


@pytest.mark.parametrize("log_class", ["gpu_fallen_off_bus", "ecc_uncorrectable", "thermal_or_power", "disk_full"])
def test_a_log_that_prints_perfect_driver_lines_is_told_and_not_acted_on(log_class: str) -> None:
    detector = outcome(CATALOGUE)
    state = detector.start(FLEET)
    event = verdict(FLEET, "gpu-0001", T0, log_class, gpu="3")
    found = detector.step(state, Tick(T0, events=(event,)), FLEET).findings
    (suspicion,) = fuse(found, FLEET, CATALOGUE)
    assert (suspicion.node, suspicion.cause.authority) == ("gpu-0001", "rule")


@pytest.mark.parametrize(
    ("other", "authority"),
    [("kernel/xid", "code"), ("telemetry/silence", "vote"), ("scheduler/nodes", "vote"), ("training/votes", "rule")],
)
def test_a_witness_that_is_not_the_job_makes_it_more(other: str, authority: str) -> None:
    own = finding("gpu-0001/gpu3", "gpu_bus_loss", "joblog/outcome")
    (suspicion,) = fuse([own, finding("gpu-0001/gpu3", "gpu_bus_loss", other)], FLEET, CATALOGUE)
    assert suspicion.cause.authority == authority


@pytest.mark.parametrize(("other", "authority"), [("kernel/xid", "code"), ("telemetry/silence", "vote")])
def test_a_log_that_names_the_node_alone_is_about_the_gpu_that_another_witness_names(
    other: str, authority: str
) -> None:
    found = [finding("gpu-0001", "gpu_bus_loss", "joblog/outcome"), finding("gpu-0001/gpu3", "gpu_bus_loss", other)]
    (suspicion,) = fuse(found, FLEET, CATALOGUE)
    assert (str(suspicion.cause.entity), suspicion.cause.authority) == ("gpu-0001/gpu3", authority)


def test_a_job_that_says_it_lost_a_gpu_and_stands_still_is_still_one_witness() -> None:
    job = Entity(FLEET.cluster, "job", "48213", "job:48213", "")
    stall = replace(finding("gpu-0001", "job_hang", "telemetry/hang", Severity.HIGH), entity=job)
    found = fuse([finding("gpu-0001/gpu3", "gpu_bus_loss", "joblog/outcome"), stall], FLEET, CATALOGUE)
    assert {s.cause.authority for s in found if s.cause.kind == "gpu_bus_loss"} == {"rule"}


def test_what_a_job_says_of_itself_is_as_strong_as_before() -> None:
    job = Entity(FLEET.cluster, "job", "48213", "job:48213", "")
    (suspicion,) = fuse([replace(finding("gpu-0001", "nan_loss", "joblog/outcome"), entity=job)], FLEET, CATALOGUE)
    assert suspicion.cause.authority == CATALOGUE.kinds["nan_loss"].authorities[0]
