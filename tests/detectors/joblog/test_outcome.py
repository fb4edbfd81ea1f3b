"""Verdicts as levels: of the node only where a line names it as broken, quiet where it is the job's own fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from detectors.catalogue import load
from detectors.joblog.outcome import MOST, outcome
from detectors.model import Event, Finding, Severity, Tick
from tests.detectors.fleets import T0, fleet_of, verdict

CATALOGUE = load()
OUTCOME = outcome(CATALOGUE)
FLEET = fleet_of(2, 8)


def told(events: Sequence[Event], after_s: float = 0.0) -> list[Finding]:
    state = OUTCOME.start(FLEET)
    OUTCOME.step(state, Tick(T0, events=tuple(events)), FLEET)
    return list(OUTCOME.step(state, Tick(T0 + after_s), FLEET).findings)


def test_a_node_that_a_line_names_as_broken_bears_the_kind_of_its_class() -> None:
    (found,) = told([verdict(FLEET, "gpu-0001", T0, "ecc_uncorrectable", 7)])
    assert (found.kind, str(found.entity), found.severity) == ("gpu_ecc_uncorrectable", "gpu-0001", Severity.CRITICAL)
    assert found.reason == "Job 48213: A fault of the machine." and found.evidence[0].ref == "event:7"


def test_the_gpu_is_named_where_the_verdict_knows_it() -> None:
    (found,) = told([verdict(FLEET, "gpu-0001", T0, "gpu_fallen_off_bus", gpu="3")])
    assert (found.kind, str(found.entity)) == ("gpu_bus_loss", "gpu-0001/gpu3")


@pytest.mark.parametrize(("node", "exclude"), [("gpu-0001", "no"), ("", "yes")])
def test_without_a_node_to_blame_it_is_the_jobs(node: str, exclude: str) -> None:
    (found,) = told([verdict(FLEET, node, T0, "ecc_uncorrectable", exclude=exclude)])
    assert (found.kind, str(found.entity), found.severity) == ("job_failed", "job:48213", Severity.HIGH)


@pytest.mark.parametrize("log_class", ["cuda_oom", "user_code_exception", "device_side_assert"])
def test_a_users_mistake_is_a_record_and_wakes_nobody(log_class: str) -> None:
    (found,) = told([verdict(FLEET, "gpu-0001", T0, log_class, whose="yours", exclude="no")])
    assert (found.kind, found.severity, found.entity.host) == ("job_failed", Severity.INFO, "")


def test_logs_that_show_no_cause_wake_nobody_but_a_hang_is_told() -> None:
    (vague,) = told([verdict(FLEET, "", T0, "unknown_insufficient_evidence", whose="unknown", exclude="no")])
    (hang,) = told([verdict(FLEET, "", T0, "nccl_timeout_hang", whose="unknown", exclude="no")])
    assert vague.severity is Severity.INFO
    assert (hang.kind, hang.severity) == ("job_hang", Severity.WARNING)


@pytest.mark.parametrize("log_class", ["ecc_uncorrectable", "nccl_timeout_hang", "time_limit"])
def test_what_only_resembles_past_failures_is_told_and_never_blames_or_wakes_anybody(log_class: str) -> None:
    plain = verdict(FLEET, "gpu-0001", T0, log_class, exclude="yes", whose="hardware")
    (found,) = told([replace(plain, attrs={**plain.attrs, "by": "resemblance"})])
    assert (found.kind, str(found.entity), found.severity) == ("job_failed", "job:48213", Severity.INFO)
    assert f"{log_class}, by resemblance" in [piece.value for piece in found.evidence]


@pytest.mark.parametrize("log_class", ["time_limit", "preempted_or_cancelled", "clean_success"])
def test_an_end_that_is_nobodys_fault_asserts_nothing(log_class: str) -> None:
    assert not told([verdict(FLEET, "", T0, log_class, exclude="no")])


def test_a_level_lasts_its_time_and_a_verdict_that_came_late_opens_none() -> None:
    event = verdict(FLEET, "gpu-0001", T0, "ecc_uncorrectable")
    assert told([event], 3600.0) and not told([event], 3601.0)
    assert not told([verdict(FLEET, "gpu-0001", T0, "ecc_uncorrectable", late=True)])


def test_a_storm_is_bounded_and_keeps_the_newest() -> None:
    storm = [verdict(FLEET, "", T0 + n / 1e4, "cuda_oom", n, exclude="no", job=str(n)) for n in range(MOST + 50)]
    found = told(storm)
    assert len(found) == MOST and f"job:{MOST + 49}" in {str(one.entity) for one in found}
