"""Every detector of the registry passes the suite, on stories that hypothesis makes up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from detectors.catalogue import load
from detectors.check_detector import Check, Story, checks
from detectors.detector import Detector
from detectors.joblog.outcome import NAMESPACE
from detectors.kernel.levels import FAMILIES
from detectors.registry import detectors
from detectors.scheduler.words import HEARD
from tests.detectors.stories import stories

CATALOGUE = load()


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.__name__)
@pytest.mark.parametrize("detector", detectors(CATALOGUE), ids=lambda detector: detector.name)
@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # a story that fails is long to print
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(story=stories())
def test_every_detector_passes_every_check(detector: Detector[Any], check: Check, story: Story) -> None:
    check(detector, story, CATALOGUE)


def test_names_are_unique_and_needs_are_metrics_of_the_catalogue_or_namespaces() -> None:
    found = detectors(CATALOGUE)
    assert len({detector.name for detector in found}) == len(found)
    for detector in found:
        for need in detector.needs:
            named = need in {"boot", "mended", NAMESPACE}.union(HEARD, *FAMILIES.values())
            assert named if isinstance(need, str) else CATALOGUE.metrics[need[1]].axis == need[0]
