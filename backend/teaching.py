"""Teaches detectors what the fleet looks like in health, from quiet looks that they kept themselves, by tick time.

Live and replay learn alike: when a lesson is due, what it holds and what it gives follow from the ticks alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sqlmodel import Session

from backend.clock import unix, utc
from backend.model.learning import ModelArtifact
from backend.store import models
from backend.store.arrays import pack, unpack
from detectors.detector import Detector, Trainable

log = logging.getLogger("watchkeeper.teaching")

#: Newest version of a model, and when (unix s) it was fitted or tried, by the name of its detector.
Known = Mapping[str, tuple[int, float]]


def take_up(
    session: Session, cluster: str, detectors: Sequence[Detector[Any]]
) -> tuple[tuple[Detector[Any], ...], dict[str, tuple[int, float]]]:
    """The same detectors with the newest models that were kept; one of another release waits for the next lesson."""
    found: list[Detector[Any]] = []
    known: dict[str, tuple[int, float]] = {}
    for detector in detectors:
        row = models.newest(session, cluster, detector.name) if isinstance(detector, Trainable) else None
        if row is not None and isinstance(detector, Trainable):
            known[detector.name] = (row.version, unix(row.at))
            try:
                detector = detector.taught(unpack(row.arrays), row.version)
            except ValueError as error:
                log.warning("%s: version %d of %s is not used: %s", cluster, row.version, detector.name, error)
                known[detector.name] = (row.version, float("-inf"))
        found.append(detector)
    return tuple(found), known


def lessons(
    cluster: str, detectors: Sequence[Detector[Any]], states: Mapping[str, Any], known: Known, at: float
) -> list[ModelArtifact]:
    """New models, not kept yet, of detectors whose lesson is due at ``at`` (unix s) and that saw enough."""
    made: list[ModelArtifact] = []
    for detector in detectors:
        if not isinstance(detector, Trainable):
            continue
        version, last = known.get(detector.name, (0, float("-inf")))
        history = detector.lesson(states[detector.name]) if at - last >= detector.every_s else None
        if history is not None:
            made += _fitted(cluster, detector, history, version + 1, at)
    return made


def _fitted(cluster: str, detector: Any, history: Any, version: int, at: float) -> list[ModelArtifact]:
    try:
        arrays = detector.fit(history)
    except ValueError as error:  # also LinAlgError
        log.warning("%s: %s could not be taught: %s", cluster, detector.name, error)
        return []
    return [
        ModelArtifact(
            cluster=cluster,
            name=detector.name,
            version=version,
            at=utc(at),
            n=len(history.quiet),
            facts={"every_s": detector.every_s},
            arrays=pack(arrays),
        )
    ]


def with_lessons(detectors: Sequence[Detector[Any]], made: Sequence[ModelArtifact]) -> tuple[Detector[Any], ...]:
    """The same detectors with what was just fitted."""
    by_name = {row.name: row for row in made}
    return tuple(
        one.taught(unpack(by_name[one.name].arrays), by_name[one.name].version)
        if one.name in by_name and isinstance(one, Trainable)
        else one
        for one in detectors
    )


def words(row: ModelArtifact | None) -> str:
    """One sentence for System: what quiet times taught."""
    if row is None:
        return "What GPUs look like in health is not learnt yet: it takes some hours of quiet telemetry of jobs."
    again = row.facts.get("every_s", 86_400.0) / 3600.0
    learnt = f"version {row.version}, from {row.n:,} quiet looks"
    return f"What GPUs look like in health: {learnt}; learnt anew every {again:g} h."
