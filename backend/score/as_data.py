"""A score as plain JSON: every number with its n and its 95 % interval."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from backend.reliability.intervals import Interval, Mean, Quantile, Rate, Share
from backend.score.chance import Chance
from backend.score.figures import FaultFigures, IncidentFigures
from backend.score.scoring import Score
from backend.score.verdicts import FaultResult, IncidentResult


def as_json(score: Score) -> dict[str, Any]:
    """Everything, with n and interval beside each number; a number that n = 0 leaves open is null. Times in s."""
    return {
        "span_s": score.span_s,
        "gpus": score.gpus,
        "seed": score.odds.seed,
        "draws": score.odds.draws,
        "resamples": score.odds.resamples,
        "faults_outside_span": score.outside,
        "unknown_kinds": list(score.unknown_kinds),
        "faults": _figures(score.faults),
        "incidents": _figures(score.incidents),
        "by_fault_kind": {kind: _figures(f) for kind, f in score.by_fault_kind.items()},
        "by_incident_kind": {kind: _figures(f) for kind, f in score.by_incident_kind.items()},
        "each_fault": [_fault(result) for result in score.fault_results],
        "each_incident": [_incident(result) for result in score.incident_results],
    }


def _figures(figures: FaultFigures | IncidentFigures) -> dict[str, Any]:
    return {field.name: _plain(getattr(figures, field.name)) for field in fields(figures)}


def _plain(value: Any) -> Any:
    """One figure. Counts by word stay counts; a list of quantiles goes by its quantile."""
    match value:
        case Share():
            known = {"value": value.value, "k": value.k, "n": value.n, "ci95": _pair(value.interval)}
            return known | {"runs": value.runs, "by_run_ci95": _pair(value.by_run)}
        case Rate():
            known = {"value": value.value, "count": value.count, "exposure": value.exposure}
            return known | {"ci95": _pair(value.interval)}
        case Mean():
            return {"value": value.value, "n": value.n, "runs": value.runs, "ci95": _pair(value.interval)}
        case Chance():
            return {"mean": value.mean, "n": value.n, "draws": value.draws, "band95": _pair(value.band)}
        case Quantile():
            return {"q": value.q, "value": value.value, "n": value.n, "ci95": [value.low, value.high]}
        case tuple():
            return [_plain(member) for member in value]
        case int():
            return value
    return {getattr(word, "name", word).lower(): count for word, count in value.items()}


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _fault(result: FaultResult) -> dict[str, Any]:
    edge = result.edge
    return {
        "id": result.fault.id,
        "kind": result.fault.kind,
        "entity": result.fault.entity,
        "incident": None if result.incident is None else result.incident.id,
        "touch": None if edge is None else edge.touch.name.lower(),
        "incident_fits": None if edge is None else edge.fits,
        "located": result.located,
        "fitting": result.fitting,
        "delay_opened_s": result.opened_delay_s,
        "delay_told_s": result.told_delay_s,
        "incidents": result.incidents,
        "excluded": result.excluded,
    }


def _incident(result: IncidentResult) -> dict[str, Any]:
    found = {"id": result.incident.id, "kind": result.incident.kind, "entity": result.incident.entity}
    return found | {"verdict": result.verdict, "exclusions": dict(result.exclusions)}
