"""The guards of racks, domains, partitions, capacity, rate, maintenance, work in hand, the breaker and two persons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.decide.guards import Limits, judge
from backend.decide.policy import propose
from backend.decide.storm import allowed_shift, shifted
from backend.facts import Case, GuardVerdict, MaintenanceFacts, PlannedStep, Rung, Verb
from detectors.model import Severity
from tests.backend.decide.cases import KINDS, NODE, NOW, case, fleet, incident, job, node, ordered

OURS: dict[str, Any] = {
    "state": "idle",
    "flags": frozenset({"DRAIN"}),
    "reason": "[watchkeeper] x",
    "reason_owner": "watchkeeper",
}


def verdict(
    guard: str, one: Case, limits: Limits | None = None, plan: tuple[PlannedStep, ...] | None = None
) -> GuardVerdict:
    steps = propose(one, KINDS)[1] if plan is None else plan
    return next(v for v in judge(one, steps, limits or Limits()) if v.guard == guard)


def placed(out: int, **where: Any) -> Case:
    """48 nodes in one place; ``out`` of them down."""
    at = node(**where)
    nodes = [replace(n, **where) for n in fleet(48, of=at)]
    return case(node=at, fleet=tuple(replace(n, state="down") if i < out else n for i, n in enumerate(nodes)))


@pytest.mark.parametrize(
    ("guard", "where", "may"),
    [
        ("nodes out of the rack", {"rack": "r1"}, 24),
        ("nodes out of the NVLink domain", {"clique": "c1"}, 12),
        ("nodes out of the partition", {"partitions": ("batch", "debug")}, 4),
    ],
)
def test_a_place_keeps_its_share_and_one_node_more_is_refused(guard: str, where: dict[str, Any], may: int) -> None:
    last, over = verdict(guard, placed(may - 1, **where)), verdict(guard, placed(may, **where))
    assert (last.verdict, last.measured) == ("holds", f"{may} of {may}")
    assert (over.verdict, over.measured) == ("refuses", f"{may + 1} of {may}")
    assert verdict(guard, placed(may)).verdict == "holds", "of a place that nobody knows nothing can be said"


def test_a_second_node_of_a_rack_asks_a_person_and_stops_act_mode() -> None:
    at = node(rack="r1")
    others = fleet(48, of=at)
    two = (replace(others[0], rack="r1", **OURS), *others[1:])
    one = case(node=at, fleet=two)
    assert verdict("one at a time in a rack", one).verdict == "asks"
    assert verdict("one at a time in a rack", replace(one, mode="act")).verdict == "refuses"
    elsewhere = (replace(others[0], rack="r2", **OURS), *others[1:])
    assert verdict("one at a time in a rack", case(node=at, fleet=elsewhere)).verdict == "holds"


def test_a_requeued_job_without_a_spare_node_asks_and_a_critical_fault_is_drained_all_the_same() -> None:
    one = case()
    assert verdict("capacity", one).verdict == "asks"
    assert "none of its kind is free" in verdict("capacity", one).reason
    assert verdict("capacity", replace(one, mode="act")).verdict == "holds"
    high = replace(one, incident=replace(one.incident, severity=Severity.HIGH), mode="act")
    assert verdict("capacity", high).verdict == "refuses"
    spare = (*one.fleet[1:], node("spare", state="idle"))
    assert verdict("capacity", replace(one, fleet=spare)).verdict == "holds"


def test_a_waiting_job_that_would_never_fit_again_is_told() -> None:
    at = node(partitions=("big",))
    nodes = tuple(replace(n, partitions=("big",)) for n in fleet(16, of=at))
    plan = (PlannedStep(Rung.DRAIN_AFTER_JOB, Verb.DRAIN, NODE, "", ""),)
    one = case(node=at, fleet=nodes, waiting=(("77", "big", 16),))
    found = verdict("capacity", one, plan=plan)
    assert found.verdict == "asks" and "Job 77 asks for 16 nodes of big; 15" in found.reason
    assert verdict("capacity", replace(one, waiting=(("77", "big", 15),)), plan=plan).verdict == "holds"
    assert verdict("capacity", replace(one, waiting=(("77", "big", 64),)), plan=plan).verdict == "holds"


def test_the_rate_counts_distinct_nodes_of_one_hour() -> None:
    past = [ordered(ago_s=600 + i, node=f"gpu-{i:04d}") for i in range(6)]
    assert verdict("rate", case(past=tuple(past[:5]))).verdict == "holds"
    assert verdict("rate", case(past=tuple(past))).verdict == "asks"
    assert verdict("rate", case(past=tuple(past), mode="act")).verdict == "refuses"
    old = [replace(order, at=NOW - 3700) for order in past]
    assert verdict("rate", case(past=tuple(old))).verdict == "holds"


def test_protected_nodes_and_jobs_are_never_touched_by_whatever_name() -> None:
    for patterns in (("gpu-0412",), ("gpu-04*",), ("gpu-[0400-0420]",)):
        assert verdict("protected", case(), Limits(protect_nodes=patterns)).verdict == "refuses"
    assert verdict("protected", case(), Limits(protect_nodes=("gpu-[0413-0420]",))).verdict == "holds"
    owned = case(jobs=(job(user="eve", run="llm-7b"),))
    for word in ("48213", "eve", "llm-*"):
        assert verdict("protected", owned, Limits(protect_jobs=(word,))).verdict == "refuses"
    assert verdict("protected", owned, Limits(protect_jobs=("482",))).verdict == "holds"


def test_announced_maintenance_belongs_to_whoever_announced_it() -> None:
    def window(start: float, end: float | None, nodes: tuple[str, ...] = (NODE,)) -> Case:
        return case(maintenances=(MaintenanceFacts("m", nodes, NOW + start, None if end is None else NOW + end),))

    assert verdict("maintenance", window(-60, 600)).verdict == "asks"
    assert verdict("maintenance", window(1800, 7200)).verdict == "asks"
    assert verdict("maintenance", window(-60, None)).verdict == "asks"
    assert verdict("maintenance", window(7200, 9000)).verdict == "holds"
    assert verdict("maintenance", window(-600, -1)).verdict == "holds"
    assert verdict("maintenance", window(-60, 600, ("gpu-0001",))).verdict == "holds"


def test_a_job_that_is_nearly_done_or_about_to_save_is_waited_for() -> None:
    plan = (PlannedStep(Rung.REQUEUE, Verb.REQUEUE, NODE, "48213", ""),)
    slow = incident("silent_slow_gpu", "vote")
    ends = case(incident=slow, jobs=(job(limit_s=7500.0),))
    assert verdict("work in hand", ends, plan=plan).verdict == "asks"
    assert verdict("work in hand", replace(ends, mode="act"), plan=plan).verdict == "refuses"
    saves = case(incident=slow, saves={"48213": (NOW - 3500, 3600.0)})
    assert "next checkpoint" in verdict("work in hand", saves, plan=plan).reason
    assert verdict("work in hand", replace(saves, saves={"48213": (NOW - 60, 3600.0)}), plan=plan).verdict == "holds"
    stands = replace(ends, incident=incident())
    assert verdict("work in hand", stands, plan=plan).verdict == "holds", "a job that stands still saves nothing"


def test_a_fleet_that_breaks_as_a_whole_is_not_believed() -> None:
    assert allowed_shift(48, Limits()) == 9
    assert shifted(9, 48, Limits()) == "" and "10 nodes of 48" in shifted(10, 48, Limits())
    assert shifted(4, 5, Limits()) == "", "fewer than five nodes never are a fleet"
    struck = frozenset(f"gpu-{i:04d}" for i in range(10))
    assert verdict("whole-fleet shift", case(struck=struck)).verdict == "refuses"
    assert verdict("whole-fleet shift", case(struck=struck), plan=()).verdict == "holds", "giving back goes on"


def test_a_tripped_breaker_takes_nothing_out_and_gives_back() -> None:
    one = case(breaker="10 nodes of 48 broke within 10 min.")
    assert verdict("breaker", one).verdict == "refuses"
    assert verdict("breaker", one, plan=()).verdict == "holds"


def test_a_wide_plan_needs_two_persons_and_is_not_for_act_mode() -> None:
    plan = tuple(PlannedStep(Rung.DRAIN_NOW, Verb.DRAIN, f"gpu-{i:04d}", "", "") for i in range(3))
    assert verdict("two persons", case(), plan=plan[:2]).verdict == "holds"
    for approved, says in (((), "asks"), (("ann",), "asks"), (("ann", "ann"), "asks"), (("ann", "bob"), "holds")):
        assert verdict("two persons", case(approved_by=approved), plan=plan).verdict == says
    assert verdict("two persons", case(mode="act"), plan=plan).verdict == "refuses"
    large = case(jobs=(job(nodes=tuple(f"gpu-{i:04d}" for i in range(128))),))
    requeue = (PlannedStep(Rung.REQUEUE, Verb.REQUEUE, "", "48213", ""),)
    assert verdict("two persons", large, plan=requeue).measured == "1,024 GPUs"
