"""Lanes of an incident: each row of the figure is told apart from the others by its title."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from backend.answers.incident_story import IncidentStory
from backend.model.events import Finding
from backend.web.evidence import finding_lanes

NOW = datetime(2026, 2, 3, 11, 38, tzinfo=UTC)


def finding(detector: str, kind: str, entity: str = "gpu-0001/gpu3") -> Finding:
    return Finding(
        cluster="main", key=f"{detector}|{kind}|{entity}", detector=detector, kind=kind, entity_kind="gpu",
        entity_id="GPU-3", entity_name=entity, node="gpu-0001", severity="high", score=0.9, since=NOW,
        reason="it is so", evidence=[], raised_at=NOW, emitted_at=NOW, incident_id=1,
    )  # fmt: skip


class Story:
    def __init__(self, *findings: Finding) -> None:
        self.findings = findings


def titles(*findings: Finding) -> list[str]:
    return [lane.title for lane in finding_lanes(cast(IncidentStory, cast(Any, Story(*findings))), NOW)]


def test_two_levels_of_one_detector_on_one_device_have_titles_of_their_own() -> None:
    alone = titles(finding("telemetry/flags", "gpu_ecc_uncorrectable"), finding("telemetry/peers", "thermal_throttle"))
    assert alone == ["Flags: gpu-0001 GPU\N{NO-BREAK SPACE}3", "Peers: gpu-0001 GPU\N{NO-BREAK SPACE}3"]
    both = titles(finding("telemetry/flags", "gpu_ecc_uncorrectable"), finding("telemetry/flags", "gpu_ecc_row_remap"))
    assert both == [f"{alone[0]}, gpu ecc uncorrectable", f"{alone[0]}, gpu ecc row remap"]
