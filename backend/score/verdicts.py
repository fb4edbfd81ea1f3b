"""What became of each fault, of each incident and of each exclusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from backend.score.matching import Edge, assign
from backend.score.meetings import Scene
from backend.score.places import Touch, stands_on, word_of
from backend.score.rows import Assertion, Fault, Incident

#: Times of a tick are stored to the microsecond.
SAME_S = 1e-3

#: right: it touches a fault in its window. victim: all it names are victims of one. false: neither.
Verdict = Literal["right", "victim", "false"]
#: right: a fault in its window sits there and may be excluded. The rest is wrong, and says why.
Exclusion = Literal["right", "not_allowed", "victim", "no_fault"]
VERDICTS: tuple[Verdict, ...] = ("right", "victim", "false")
EXCLUSIONS: tuple[Exclusion, ...] = ("right", "not_allowed", "victim", "no_fault")


@dataclass(frozen=True, slots=True)
class FaultResult:
    """``edge``, ``incident``: what counts for the fault. ``located``, ``fitting``, ``loud``: found when only
    incidents at its entity or node, of its family, or above info count, one to one again. ``told_at``: when its
    opening finding was emitted, None without such a row. ``incidents``: how many touch it or stand on its victims in
    its window. ``excluded``: one of its nodes was."""

    fault: Fault
    edge: Edge | None
    incident: Incident | None
    located: bool
    fitting: bool
    loud: bool
    told_at: float | None
    incidents: int
    excluded: bool

    @property
    def exact_gpu(self) -> bool:
        """Whether its incident points at the GPU: names it first, or names no other GPU."""
        if self.incident is None:
            return False
        gpus = [e for e in self.incident.named if word_of(e) == "gpu"]
        first = word_of(self.incident.entity) == "gpu"
        return (gpus[:1] if first else gpus) == [self.fault.entity]

    @property
    def before_code(self) -> bool:
        """Told (or, where no finding says when, opened) before the first kernel code."""
        if self.incident is None or self.fault.first_code is None:
            return False
        return (self.incident.opened_at if self.told_at is None else self.told_at) < self.fault.first_code

    @property
    def opened_delay_s(self) -> float | None:
        return self._delay(None if self.incident is None else self.incident.opened_at)

    @property
    def told_delay_s(self) -> float | None:
        return self._delay(self.told_at)

    def _delay(self, at: float | None) -> float | None:
        return None if at is None or self.fault.first_visible is None else at - self.fault.first_visible


@dataclass(frozen=True, slots=True)
class IncidentResult:
    """``exclusions``: what the truth says of each node it excludes."""

    incident: Incident
    verdict: Verdict
    exclusions: Mapping[str, Exclusion]


def fault_results(scene: Scene) -> tuple[FaultResult, ...]:
    """One for each fault of the scene, in its order."""
    chosen = assign(scene.met)
    located = assign(edge for edge in scene.met if edge.touch <= Touch.NEAR)
    fitting = assign(edge for edge in scene.met if edge.fits)
    loud = assign(edge for edge in scene.met if scene.incidents[edge.incident].loud)
    touching: dict[int, set[int]] = {at: _on_victims(scene, at) for at in range(len(scene.faults))}
    for edge in scene.met:
        touching[edge.fault].add(edge.incident)
    results = []
    for at, fault in enumerate(scene.faults):
        counts = chosen.get(at)
        incident = None if counts is None else scene.incidents[counts.incident]
        own = scene.site.excludable(fault)
        results.append(
            FaultResult(
                fault=fault,
                edge=counts,
                incident=incident,
                located=at in located,
                fitting=at in fitting,
                loud=at in loud,
                told_at=None if incident is None else told_at(incident, scene.by_key),
                incidents=len(touching[at]),
                excluded=any(not own.isdisjoint(scene.incidents[i].exclude) for i in scene.opened_in[at]),
            )
        )
    return tuple(results)


def incident_results(scene: Scene) -> tuple[IncidentResult, ...]:
    """One for each incident of the scene, in its order."""
    touch: dict[int, Touch] = {}
    for edge in scene.met:
        touch[edge.incident] = min(edge.touch, touch.get(edge.incident, edge.touch))
    victims = {number for at in range(len(scene.faults)) for number in _on_victims(scene, at)}
    exclusions = _exclusions(scene)
    return tuple(
        IncidentResult(incident, _verdict(touch.get(at), at in victims), exclusions[at])
        for at, incident in enumerate(scene.incidents)
    )


def told_at(incident: Incident, by_key: Mapping[str, Sequence[Assertion]]) -> float | None:
    """When the finding that opened the incident was emitted: of its findings the last asserted at or before its
    opening, else the first after it. None when findings.jsonl has none of them."""
    rows = [row for key in incident.keys for row in by_key.get(key, ())]
    before = [row for row in rows if row.ts <= incident.opened_at + SAME_S]
    if before:
        last = max(row.ts for row in before)
        return max(incident.opened_at, min(row.emitted_at for row in before if row.ts == last))
    return max(incident.opened_at, min(row.emitted_at for row in rows)) if rows else None


def _on_victims(scene: Scene, fault: int) -> set[int]:
    """Incidents of the fault's window that name nothing but its victims."""
    victims = scene.victims[fault]
    return {i for i in scene.opened_in[fault] if stands_on(scene.incidents[i], victims)} if victims else set()


def _verdict(touch: Touch | None, on_victims: bool) -> Verdict:
    """Touching no more than the job of a fault makes an incident on a victim no better than that."""
    if touch is not None and (touch < Touch.JOB or not on_victims):
        return "right"
    return "victim" if on_victims else "false"


def _exclusions(scene: Scene) -> list[dict[str, Exclusion]]:
    """For each incident its excluded nodes, with the best that the faults of that time say of each."""
    found: list[dict[str, Exclusion]] = [dict.fromkeys(incident.exclude, "no_fault") for incident in scene.incidents]
    for at, fault in enumerate(scene.faults):
        own = scene.site.excludable(fault)
        for number in scene.opened_in[at]:
            for node, known in found[number].items():
                word: Exclusion = "victim" if node in scene.victims[at] else "no_fault"
                if node in own:
                    word = "right" if fault.exclude_ok else "not_allowed"
                found[number][node] = min(known, word, key=EXCLUSIONS.index)
    return found
