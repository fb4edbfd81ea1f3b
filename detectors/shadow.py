"""Detectors and kinds in shadow: what they find is kept and shown, and nothing follows from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from detectors.catalogue import Catalogue, TableError
from detectors.model import Finding, Severity
from detectors.registry import detectors

#: How a finding that is in shadow begins.
SAID = "In shadow"


def in_shadow(finding: Finding, names: Collection[str]) -> bool:
    """names: detectors (``telemetry/peers``), kinds (``job_slow``), or a kind of one detector
    (``telemetry/peers:job_slow``)."""
    said = (finding.detector, finding.kind, f"{finding.detector}:{finding.kind}")
    return any(name in names for name in said)


def parted(findings: Iterable[Finding], names: Collection[str]) -> tuple[list[Finding], list[Finding]]:
    """Those that count, and those in shadow: as records, with what they would have been in the reason."""
    counts: list[Finding] = []
    shadows: list[Finding] = []
    for finding in findings:
        if in_shadow(finding, names):
            shadows.append(_quiet(finding))
        else:
            counts.append(finding)
    return counts, shadows


def check(names: Iterable[str], catalogue: Catalogue) -> None:
    """Raises TableError for names that are neither a detector nor a kind, and says which there are."""
    known = {detector.name for detector in detectors(catalogue)}
    for name in names:
        detector, colon, kind = name.partition(":")
        fits = detector in known and kind in catalogue.kinds if colon else name in known or name in catalogue.kinds
        if not fits:
            raise TableError(
                f"shadow: {name!r} is neither a detector ({', '.join(sorted(known))}) nor a kind of kinds.csv, nor "
                "detector:kind"
            )


def _quiet(finding: Finding) -> Finding:
    would = "a record" if finding.severity is Severity.INFO else finding.severity.word
    return replace(finding, severity=Severity.INFO, reason=f"{SAID} (would be {would}): {finding.reason}")
