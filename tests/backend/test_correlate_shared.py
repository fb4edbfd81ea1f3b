"""What several nodes or jobs share: a switch, a rack, a device; who leads and who follows."""

from __future__ import annotations

from dataclasses import replace

from backend.facts import HypothesisFacts, IncidentFacts
from backend.incidents.correlate import correlate
from detectors.fuse import Hypothesis, Suspicion
from detectors.model import Entity, Evidence, Finding, Severity


def below(kind: str, id_: str) -> frozenset[str]:
    """Two jobs of two nodes each; all four are under one leaf, two of them in rack r01."""
    return {
        ("switch", "leaf1"): frozenset({"n1", "n2", "n3", "n4"}),
        ("rack", "r01"): frozenset({"n1", "n2"}),
        ("job", "7"): frozenset({"n1", "n2"}),
        ("job", "8"): frozenset({"n3", "n4"}),
        ("job", "9"): frozenset({"n9"}),
    }.get((kind, id_), frozenset())


def told(kind: str, entity: Entity, severity: Severity, since: float, authority: str = "rule") -> Suspicion:
    found = Finding("telemetry/x", kind, entity, severity, 0.6, since, "It shows.", (Evidence("x", "1"),))
    lead = Hypothesis(kind, entity, 0.6, "It shows.", authority, severity, frozenset({found.key}))
    job = entity.id if entity.kind == "job" else ""
    return Suspicion((lead,), (found,), (entity,), severity, entity.host, job)


def job_of(name: str) -> Entity:
    return Entity("main", "job", name, f"job:{name}")


LEAF = Entity("main", "switch", "leaf1", "switch:leaf1")


def test_jobs_that_wait_follow_the_switch_their_nodes_share() -> None:
    fabric = told("network_fabric", LEAF, Severity.CRITICAL, 100.0, "vote")
    waiting = [told("job_slow", job_of(name), Severity.WARNING, 160.0) for name in ("7", "8", "9")]
    folds = correlate([*waiting, fabric], (), 200.0, 2100.0, hosts=below)
    assert [(str(f.suspicion.cause.entity), f.opens_with, f.victim) for f in folds] == [
        ("switch:leaf1", None, False), ("job:7", 0, True), ("job:8", 0, True), ("job:9", None, False),
    ]  # fmt: skip


def test_a_switch_takes_over_what_was_first_told_of_a_job_below_it() -> None:
    (alone,) = correlate([told("job_slow", job_of("7"), Severity.WARNING, 100.0)], (), 100.0, 2100.0, hosts=below)
    open_ = opened(alone.suspicion, 1)
    (fold,) = correlate(
        [told("network_fabric", LEAF, Severity.CRITICAL, 160.0, "vote")], [open_], 200.0, 2100.0, hosts=below
    )
    assert (fold.incident, fold.victim) == (1, False)


def test_the_verdict_on_a_job_that_waited_for_the_switch_follows_it_though_its_nodes_are_free_again() -> None:
    open_ = replace(opened(told("network_fabric", LEAF, Severity.CRITICAL, 100.0, "vote"), 1), victims=("job:9",))
    (fold,) = correlate([told("job_hang", job_of("9"), Severity.WARNING, 900.0)], [open_], 950.0, 2100.0, hosts=below)
    assert (fold.incident, fold.victim) == (1, True)


def test_a_rack_takes_over_what_was_first_told_of_one_of_its_nodes() -> None:
    node = Entity("main", "node", "n1", "n1", "n1")
    first = told("thermal_throttle", node, Severity.HIGH, 100.0, "state")
    rack = Entity("main", "rack", "r01", "rack:r01")
    wide = told("thermal_throttle", rack, Severity.HIGH, 100.0, "state")
    wide = replace(wide, hypotheses=(replace(wide.cause, keys=first.cause.keys),), findings=first.findings)
    (fold,) = correlate([wide], [opened(first, 1)], 700.0, 2100.0, hosts=below)
    assert (fold.incident, fold.victim) == (1, False)


def test_what_a_device_shows_after_its_first_signs_is_the_same_story() -> None:
    gpu = Entity("main", "gpu", "GPU-1", "n1/gpu1", "n1")
    trend = told("gpu_hardware_other", gpu, Severity.WARNING, 100.0, "trend")
    lost = told("gpu_bus_loss", gpu, Severity.CRITICAL, 9000.0, "code")
    (fold,) = correlate([lost], [opened(trend, 1)], 9000.0, 2100.0)
    assert (fold.incident, fold.victim) == (1, False)
    other = replace(lost, hypotheses=(replace(lost.cause, entity=replace(gpu, id="GPU-2", name="n1/gpu2")),))
    (apart,) = correlate([other], [opened(trend, 1)], 9000.0, 2100.0)
    assert apart.incident is None


def opened(suspicion: Suspicion, number: int) -> IncidentFacts:
    lead = suspicion.cause
    causes = (
        HypothesisFacts(lead.kind, str(lead.entity), lead.entity.kind, lead.entity.host, 0.6, "", lead.authority),
    )
    return IncidentFacts(
        number, "main", lead.kind, lead.severity, "open", str(lead.entity), lead.entity.kind, lead.entity.id,
        lead.entity.host, suspicion.job, suspicion.since, None, causes, (), lead.keys,
    )  # fmt: skip
