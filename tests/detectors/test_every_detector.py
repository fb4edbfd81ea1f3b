"""Every detector of the registry passes the suite, on stories that hypothesis makes up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from detectors.catalogue import load
from detectors.check_detector import Check, Story, checks, told
from detectors.detector import Detector
from detectors.joblog.outcome import NAMESPACE
from detectors.kernel.levels import FAMILIES
from detectors.registry import detectors
from detectors.scheduler.words import HEARD
from detectors.training.told import COLLECTIVE, SAVES, STEP
from tests.detectors.long_stories import long_stories
from tests.detectors.stories import stories
from tests.detectors.training_story import training_story

CATALOGUE = load()
#: How many are made up.
STORIES = 16


@pytest.fixture(scope="module")
def made_up() -> tuple[Story, ...]:
    """The same stories for every detector and check: to make one up takes longer than most checks of it."""
    found: list[Story] = []

    @settings(
        max_examples=STORIES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(story=stories())
    def collect(story: Story) -> None:
        found.append(story)

    collect()
    return (*found, *long_stories(), training_story())


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.__name__)
@pytest.mark.parametrize("detector", detectors(CATALOGUE), ids=lambda detector: detector.name)
def test_every_detector_passes_every_check(detector: Detector[Any], check: Check, made_up: tuple[Story, ...]) -> None:
    for story in made_up:
        check(detector, story, CATALOGUE)


def test_the_stories_make_every_detector_speak(made_up: tuple[Story, ...]) -> None:
    """A story of which nobody has anything to say checks nothing."""
    silent = [d.name for d in detectors(CATALOGUE) if not any(j.findings for s in made_up for j in told(d, s))]
    assert not silent, f"no story makes these speak: {silent}"


def test_names_are_unique_and_needs_are_metrics_of_the_catalogue_or_namespaces() -> None:
    found = detectors(CATALOGUE)
    assert len({detector.name for detector in found}) == len(found)
    for detector in found:
        for need in detector.needs:
            named = need in {"boot", "mended", "alert", NAMESPACE, STEP, SAVES, COLLECTIVE}.union(
                HEARD, *FAMILIES.values()
            )
            assert named if isinstance(need, str) else CATALOGUE.metrics[need[1]].axis == need[0]
