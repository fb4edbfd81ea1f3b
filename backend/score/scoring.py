"""``replay --score``: how well incidents and findings meet the truth, by the rules of contracts.md."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from backend.score.chance import turns
from backend.score.families import Families, families
from backend.score.figures import FaultFigures, IncidentFigures, Odds, fault_figures, incident_figures
from backend.score.meetings import Scene, scene, window
from backend.score.places import Site
from backend.score.rows import Assertion, Fault, Incident, Row, ScoreError, assertion_of, fault_of, incident_of
from backend.score.verdicts import FaultResult, IncidentResult, fault_results, incident_results

DAY_S = 86_400.0
#: False incidents are told for a fleet of this many GPUs.
FLEET_GPUS = 500

_Kept = TypeVar("_Kept", Fault, Incident)


@dataclass(frozen=True, slots=True)
class Score:
    """``span_s`` seconds of ``gpus`` GPUs. by_fault_kind and by_incident_kind hold the kinds that occur. outside:
    faults of truth whose window misses the span, left out. unknown_kinds: those the catalogue has not. The results
    are in order of time."""

    span_s: float
    gpus: int
    odds: Odds
    faults: FaultFigures
    incidents: IncidentFigures
    by_fault_kind: Mapping[str, FaultFigures]
    by_incident_kind: Mapping[str, IncidentFigures]
    outside: int
    unknown_kinds: tuple[str, ...]
    fault_results: tuple[FaultResult, ...]
    incident_results: tuple[IncidentResult, ...]


def score(
    findings: Iterable[Row],
    incidents: Iterable[Row],
    truth: Iterable[Row],
    topology: Mapping[str, Sequence[str]],
    span: tuple[float, float],
    gpus: int,
    kinds: Collection[str],
    *,
    akin: Families | None = None,
    odds: Odds | None = None,
) -> Score:
    """Score rows of findings.jsonl and incidents.jsonl against rows of truth.jsonl; their order has no effect.

    topology: node -> what stands above it as it prints (``rack:R``, ``switch:S``). span: unix s of the data's begin
    and end. gpus: how many there are. kinds: those of the catalogue. akin: which kinds show the same fault, the
    packaged table unless given. Raises ScoreError naming the row.
    """
    if span[1] < span[0] or gpus < 0:
        raise ScoreError(f"a span of {span[0]} to {span[1]} with {gpus} GPUs cannot be scored")
    faults = _unique(fault_of, "truth", truth)
    told = _unique(incident_of, "incidents", incidents)
    inside = [fault for fault in faults if _inside(fault, span)]
    site = Site({node: tuple(names) for node, names in topology.items()})
    found = scene(inside, told, _assertions(findings), site, span, families() if akin is None else akin)
    unknown = ({fault.kind for fault in faults} | {incident.kind for incident in told}) - set(kinds)
    return _score(found, gpus, len(faults) - len(inside), tuple(sorted(unknown)), odds or Odds())


def _score(found: Scene, gpus: int, outside: int, unknown: tuple[str, ...], odds: Odds) -> Score:
    span_s = found.span[1] - found.span[0]
    exposure = span_s / DAY_S * gpus / FLEET_GPUS
    faults, incidents, pairs = fault_results(found), incident_results(found), found.pairs()
    turned = turns(span_s, odds.draws, odds.seed)
    fault_kinds: dict[str, list[int]] = {}
    for at, result in enumerate(faults):
        fault_kinds.setdefault(result.fault.kind, []).append(at)
    incident_kinds: dict[str, list[IncidentResult]] = {}
    for told in incidents:
        incident_kinds.setdefault(told.incident.kind, []).append(told)
    return Score(
        span_s=span_s,
        gpus=gpus,
        odds=odds,
        faults=fault_figures(faults, range(len(faults)), pairs, turned, odds),
        incidents=incident_figures(incidents, exposure, odds),
        by_fault_kind={
            kind: fault_figures(faults, places, pairs, turned, odds) for kind, places in sorted(fault_kinds.items())
        },
        by_incident_kind={
            kind: incident_figures(some, exposure, odds) for kind, some in sorted(incident_kinds.items())
        },
        outside=outside,
        unknown_kinds=unknown,
        fault_results=faults,
        incident_results=incidents,
    )


def _inside(fault: Fault, span: tuple[float, float]) -> bool:
    seen = window(fault, span[1]) or (fault.start, fault.end)
    return seen[0] <= span[1] and seen[1] >= span[0]


def _unique(check: Callable[[Row], _Kept], what: str, rows: Iterable[Row]) -> list[_Kept]:
    """Rows as checked ones. Raises ScoreError for a bad row or an id that stands twice."""
    found: dict[str | int, _Kept] = {}
    for place, row in enumerate(rows, 1):
        try:
            kept = check(row)
        except ScoreError as error:
            raise ScoreError(f"{what}, row {place}: {error}") from error
        if kept.id in found:
            raise ScoreError(f"{what}, row {place}: the id {kept.id!r} stands twice; each row needs its own")
        found[kept.id] = kept
    return list(found.values())


def _assertions(rows: Iterable[Row]) -> list[Assertion]:
    found = []
    for place, row in enumerate(rows, 1):
        try:
            kept = assertion_of(row)
        except ScoreError as error:
            raise ScoreError(f"findings, row {place}: {error}") from error
        if kept is not None:
            found.append(kept)
    return found
