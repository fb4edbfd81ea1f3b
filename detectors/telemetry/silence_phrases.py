"""Silent nodes as findings: what is silent, since when, whether somebody meant it, and how loud that is."""

from __future__ import annotations

from dataclasses import dataclass

from detectors.model import Entity, Evidence, Finding, Severity
from detectors.wording import counted

#: A silent exporter is nearly always just that; a node that is silent altogether may be gone.
DARK_SCORE, GONE_SCORE, MISSED_SCORE = 0.7, 0.5, 0.8


@dataclass(frozen=True, slots=True)
class Dark:
    """One node whose GPUs are all silent. ``whole``: so is its own exporter (``heard``: it ever spoke). ``planned``:
    somebody took it out. ``missed``: the scheduler gets no answer either. ``long``: it lasts. up: NaN = unknown."""

    entity: Entity
    gpus: int
    since: float
    up: float
    whole: bool
    heard: bool
    planned: bool
    missed: bool
    long: bool

    @property
    def severity(self) -> Severity:
        return Severity.WARNING if self.long and not self.planned else Severity.INFO


def dark_findings(detector: str, dark: Dark) -> list[Finding]:
    """telemetry_dark always; node_unreachable with it where the node is silent altogether and nobody meant that."""
    evidence = _evidence(dark)
    found = [
        Finding(detector, "telemetry_dark", dark.entity, dark.severity, DARK_SCORE, dark.since, _says(dark), evidence)
    ]
    if dark.whole and not dark.planned:
        more = ", and the scheduler gets no answer" if dark.missed else ""
        reason = f"{dark.entity} is silent altogether: neither its GPUs nor the node itself send data{more}."
        severity = Severity.CRITICAL if dark.missed else Severity.INFO
        score = MISSED_SCORE if dark.missed else GONE_SCORE
        found.append(Finding(detector, "node_unreachable", dark.entity, severity, score, dark.since, reason, evidence))
    return found


def _says(dark: Dark) -> str:
    gpus = counted(dark.gpus, "GPU is", "GPUs are")
    if dark.whole:
        end = " It was taken out on purpose." if dark.planned else ""
        return f"{dark.entity} sends no data at all; {gpus} blind.{end}"
    answer = {0.0: " Its exporter does not answer.", 1.0: " Its exporter answers, without them."}.get(dark.up, "")
    still = " The node itself still reports." if dark.heard else ""
    return f"{dark.entity} sends no GPU data; {gpus} blind.{answer}{still}"


def _evidence(dark: Dark) -> tuple[Evidence, ...]:
    pieces = [Evidence("GPUs that report", "0", str(dark.gpus), "GPUs", "metric:gpu/temperature_c", "observed")]
    if dark.up == dark.up:
        pieces.append(Evidence("up", f"{dark.up:.0f}", "1", ref="metric:node/node_up", grade="observed"))
    if dark.heard:
        pieces.append(Evidence("node exporter", "silent" if dark.whole else "reports", "reports", grade="observed"))
    if dark.planned:
        pieces.append(Evidence("taken out on purpose", "yes", grade="observed"))
    if dark.missed:
        pieces.append(Evidence("answers the scheduler", "no", "yes", grade="observed"))
    return tuple(pieces)
