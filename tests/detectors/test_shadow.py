"""What is in shadow is found, said and counts for nothing."""

from __future__ import annotations

import pytest

from detectors.catalogue import TableError, load
from detectors.model import Entity, Finding, Severity
from detectors.shadow import check, in_shadow, parted

GPU = Entity("main", "gpu", "GPU-1", "gpu-0001/gpu1", "gpu-0001")
HOT = Finding("telemetry/peers", "thermal_throttle", GPU, Severity.HIGH, 0.8, 5.0, "It is hot.")


@pytest.mark.parametrize("name", ["telemetry/peers", "thermal_throttle", "telemetry/peers:thermal_throttle"])
def test_a_detector_a_kind_or_a_kind_of_one_detector_is_put_in_shadow(name: str) -> None:
    counts, (quiet,) = parted([HOT], (name,))
    assert counts == [] and quiet.key == HOT.key and quiet.severity is Severity.INFO
    assert quiet.reason == "In shadow (would be high): It is hot."


@pytest.mark.parametrize("name", ["telemetry/own", "job_slow", "telemetry/own:thermal_throttle", "telemetry"])
def test_what_is_not_named_counts_as_before(name: str) -> None:
    assert not in_shadow(HOT, (name,)) and parted([HOT], (name,)) == ([HOT], [])


@pytest.mark.parametrize("name", ["", "telemetry/none", "telemetry", "telemetry/peers:none", ":job_slow"])
def test_a_name_that_nobody_knows_is_refused_with_those_there_are(name: str) -> None:
    check(("telemetry/peers", "job_slow", "kernel/storage:nfs_slow"), load())
    with pytest.raises(TableError, match="neither a detector .*telemetry/peers.* nor a kind"):
        check((name,), load())
