"""The one list of detectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detectors.catalogue import Catalogue
from detectors.detector import Detector
from detectors.joblog.outcome import outcome
from detectors.kernel.levels import families
from detectors.scheduler.nodes import Nodes
from detectors.telemetry.levels import Levels, rules_of
from detectors.telemetry.peers import Peers
from detectors.telemetry.silence import Silence


def detectors(catalogue: Catalogue, thresholds: Mapping[str, float] | None = None) -> tuple[Detector[Any], ...]:
    """Every detector, with a site's ``thresholds`` over the catalogue's. Raises TableError for an unknown name."""
    tuned = catalogue.with_thresholds(thresholds or {})
    flags = Levels("telemetry/flags", "gpu", rules_of(tuned, "gpu"), tuned)
    return (*families(tuned), Silence(tuned), Nodes(tuned), Peers(tuned), flags, outcome(tuned))
