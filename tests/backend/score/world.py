"""A small site with rows of truth, incidents and findings to score."""

from __future__ import annotations

from typing import Any

from backend.score.figures import Odds
from backend.score.scoring import Score, score
from detectors.catalogue import load

START, DAY = 1_000_000.0, 86_400.0
SPAN = (START, START + DAY)
TOPOLOGY = {f"n{i}": (f"rack:r{i // 2}", f"switch:s{i // 2}") for i in range(6)}
FEW = Odds(draws=40, resamples=200)
KINDS = load().kinds


def fault(id: str = "F1", **fields: Any) -> dict[str, Any]:
    """A bus loss of n0/gpu1, an hour into the day and an hour long."""
    row = {"id": id, "entity": "n0/gpu1", "kind": "gpu_bus_loss", "start": START + 3600, "end": START + 7200}
    row |= {"first_visible": START + 3600, "exclude": True, "exclude_ok": True, "first_xid": None}
    return row | {"job": None, "run": None, "nodes": []} | fields


def incident(id: int = 1, **fields: Any) -> dict[str, Any]:
    """What finds that fault after 30 s."""
    row: dict[str, Any] = {"id": id, "opened_at": START + 3630, "closed_at": None, "entity": "n0/gpu1"}
    row |= {"kind": "gpu_bus_loss", "severity": "critical", "state": "open", "exclude": [], "run": "", "job": ""}
    row |= {"findings": []} | fields
    return {"entities": [row["entity"]], **row}


def finding(key: str, **fields: Any) -> dict[str, Any]:
    row = {"ts": START + 3630, "emitted_at": START + 3645, "state": "raised", "key": key, "entity": "n0/gpu1"}
    return row | {"kind": "gpu_bus_loss", "severity": "critical", "score": 1.0} | fields


def scored(
    truth: list[dict[str, Any]],
    incidents: list[dict[str, Any]],
    findings: list[dict[str, Any]] | None = None,
    *,
    odds: Odds = FEW,
    span: tuple[float, float] = SPAN,
    topology: dict[str, tuple[str, ...]] | None = None,
    gpus: int = 500,
) -> Score:
    return score(findings or [], incidents, truth, topology or TOPOLOGY, span, gpus, KINDS, odds=odds)
