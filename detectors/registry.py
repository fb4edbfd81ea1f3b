"""The one list of detectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detectors.catalogue import Catalogue
from detectors.detector import Detector
from detectors.joblog.loops import Loops
from detectors.joblog.outcome import outcome
from detectors.kernel.levels import families
from detectors.scheduler.alerts import Alerts
from detectors.scheduler.controller import Controller
from detectors.scheduler.nodes import Nodes
from detectors.telemetry.disks import Disks
from detectors.telemetry.failslow import FailSlow
from detectors.telemetry.frozen import Frozen
from detectors.telemetry.hang import Hang
from detectors.telemetry.host import Host
from detectors.telemetry.levels import Levels, rules_of
from detectors.telemetry.network import Network
from detectors.telemetry.own import Own
from detectors.telemetry.peers import Peers
from detectors.telemetry.shape import Shape
from detectors.telemetry.silence import Silence
from detectors.telemetry.storage import Storage
from detectors.telemetry.trends import Trends
from detectors.training.family import family


def detectors(catalogue: Catalogue, thresholds: Mapping[str, float] | None = None) -> tuple[Detector[Any], ...]:
    """Every detector, with a site's ``thresholds`` over the catalogue's. Raises TableError for an unknown name."""
    tuned = catalogue.with_thresholds(thresholds or {})
    axes = {"telemetry/flags": "gpu", "telemetry/host_flags": "node", "telemetry/mount_flags": "mount"}
    flags = [Levels(name, axis, rules_of(tuned, axis), tuned) for name, axis in axes.items()]
    own = (Network(tuned), Storage(tuned), Disks(tuned), Host(tuned))
    return (
        *families(tuned),
        Silence(tuned),
        Frozen(tuned),
        Nodes(tuned),
        Controller(tuned),
        Alerts(tuned),
        Peers(tuned),
        Own(tuned),
        Hang(tuned),
        FailSlow(tuned),
        Shape(tuned),
        Trends(tuned),
        *flags,
        *own,
        outcome(tuned),
        *family(tuned),
        Loops(tuned),
    )
