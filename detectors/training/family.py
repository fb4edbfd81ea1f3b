"""The detectors that watch training itself, as the registry takes them."""

from __future__ import annotations

from typing import Any

from detectors.catalogue import Catalogue
from detectors.detector import Detector
from detectors.training import signals
from detectors.training.bands import Bands
from detectors.training.collectives import Collectives
from detectors.training.copies import Copies
from detectors.training.loss import Loss
from detectors.training.pace import Pace
from detectors.training.policy import Policy
from detectors.training.probe import Probe


def family(catalogue: Catalogue) -> tuple[Detector[Any], ...]:
    """One of each."""
    told = signals.load()
    return (
        Bands(catalogue, told),
        Collectives(catalogue),
        Copies(catalogue),
        Loss(catalogue),
        Pace(catalogue),
        Policy(catalogue),
        Probe(catalogue),
    )
