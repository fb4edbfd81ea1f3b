"""Whose fault the end of an attempt was."""

from __future__ import annotations

from typing import Any

import pytest

from backend.facts import IncidentFacts, OutageFacts
from backend.reliability.account import Account
from backend.reliability.causes import causes_of
from backend.reliability.cost import ettr_by_gpus, goodput
from backend.reliability.faults import node_faults
from backend.reliability.lost import lost
from backend.reliability.together import together
from detectors.model import Severity
from tests.backend.reliability.facts import accounted, attempt, steps

END = 10_000.0


def incident(kind: str = "gpu_bus_loss", at: float = END - 60, node: str = "n1", **more: Any) -> IncidentFacts:
    fields: dict[str, Any] = {
        "id": 1,
        "cluster": "c",
        "severity": Severity.CRITICAL,
        "state": "open",
        "entity": f"{node}/gpu3",
        "entity_kind": "gpu",
        "entity_id": "GPU-3",
        "job": "",
        "closed_at": None,
    }
    return IncidentFacts(kind=kind, node=node, opened_at=at, **{**fields, **more})


def ended(state: str = "FAILED", incidents: list[IncidentFacts] | None = None, **how: Any) -> Account:
    classes = {("1", 0): how.pop("log")} if "log" in how else {}
    facts = attempt(state=state, end=END, nodes=("n1", "n2"), **how)
    return accounted([facts], END + 5000, incidents=incidents or [], classes=classes).attempts[0]


@pytest.mark.parametrize(
    ("offset", "infra"), [(-601, None), (-599, True), (0, True), (299, True), (301, None)]
)  # fmt: skip
def test_a_cause_is_seen_ten_minutes_before_to_five_after_the_end(offset: float, infra: bool | None) -> None:
    assert ended(incidents=[incident(at=END + offset)]).verdict.infra is infra


def test_an_incident_that_still_stood_counts_though_it_opened_long_before() -> None:
    assert ended(incidents=[incident(at=END - 5000, asserted_at=END - 100)]).verdict.infra is True
    assert ended(incidents=[incident(at=END - 5000, asserted_at=END - 2000)]).verdict.infra is None


@pytest.mark.parametrize(
    ("log", "infra"),
    [("user_code_exception", False), ("gpu_fallen_off_bus", True), ("nccl_timeout_hang", None), ("cuda_oom", False)],
)
def test_the_log_decides_where_no_node_shows_a_fault(log: str, infra: bool | None) -> None:
    found = ended(log=log)
    assert found.verdict.infra is infra
    assert found.verdict.log_class == log


def test_a_lost_gpu_wins_over_the_traceback_it_left() -> None:
    found = ended(incidents=[incident()], log="user_code_exception")
    assert found.verdict.infra is True
    assert found.verdict.log_class == "gpu_fallen_off_bus"


def test_heat_does_not_excuse_a_bug() -> None:
    hot = [incident("thermal_throttle", severity=Severity.HIGH)]
    assert ended(incidents=hot, log="user_code_exception").verdict.infra is False
    assert ended("REQUEUED", hot).verdict.infra is True


def test_an_incident_of_another_node_is_no_cause() -> None:
    assert ended(incidents=[incident(node="n9")]).verdict.infra is None


def test_states_say_it_alone() -> None:
    assert ended("NODE_FAIL").verdict.infra is True
    assert "n2" in ended("NODE_FAIL", reason="None; failed node n2").verdict.text
    assert ended("OUT_OF_MEMORY").verdict.infra is False
    assert ended("FAILED").verdict.infra is None
    assert ended("COMPLETED", [incident()]).verdict.infra is None


def test_a_table_that_says_both_is_refused() -> None:
    table = {"kinds": {"infrastructure": ["x"], "harms": [], "user": ["x"]}, "classes": {}, "log_class": {}}
    with pytest.raises(ValueError, match="x stands on both sides"):
        causes_of(table)


def test_signs_of_one_event_are_one_fault_of_one_node() -> None:
    down = [OutageFacts("n1", END + 20, END + 4000, "DOWN", "Not responding")]
    told = accounted(
        [attempt(state="NODE_FAIL", end=END, nodes=("n1", "n2"))], END + 9000, incidents=[incident()], outages=down
    )
    assert [(f.node, f.what) for f in node_faults(told)] == [("n1", "gpu_bus_loss")]


def test_a_lost_node_that_nothing_names_is_a_fault_of_nobody_yet() -> None:
    told = accounted([attempt(state="NODE_FAIL", end=END, nodes=("n1", "n2"))], END + 9000)
    assert [(f.node, f.among) for f in node_faults(told)] == [("", ("n1", "n2"))]
    blamed = attempt(state="NODE_FAIL", end=END, nodes=("n1", "n2"), reason="failed node n2")
    assert [f.node for f in node_faults(accounted([blamed], END + 9000))] == ["n2"]


def test_drains_are_no_faults() -> None:
    told = accounted([attempt()], END, outages=[OutageFacts("n1", 5.0, 50.0, "DRAIN", "firmware", "root")])
    assert node_faults(told) == []


def test_goodput_counts_the_job_that_fell_so_that_another_could_start_again() -> None:
    rows = [
        attempt("1", state="NODE_FAIL", end=7210.0, nodes=("a", "b")),
        attempt("1", 1, "RUNNING", start=7400.0, end=None, submit=7210.0, eligible=7330.0, nodes=("a", "c")),
        attempt("2", state="PREEMPTED", run="low", user="v", start=6400.0, end=7390.0, nodes=("c",)),
        attempt("3", state="PREEMPTED", run="far", user="w", start=10.0, end=7390.0, nodes=("z",)),
    ]
    lost = goodput(accounted(rows, 9000.0))
    assert (lost.direct, lost.second) == (1, 1)
    assert lost.direct_h == pytest.approx(0.5 * 16)
    assert lost.second_h == pytest.approx(990 / 3600 * 8)


def test_losses_stand_under_their_cause_and_their_node() -> None:
    told = accounted([attempt(state="FAILED", end=END, nodes=("n1", "n2"))], END, incidents=[incident()])
    assert [row.name for row in lost(told, "cause")] == ["gpu_bus_loss"]
    assert [row.name for row in lost(told, "node")] == ["n1"]


def test_what_comes_together_is_counted_by_node() -> None:
    several = [incident(id=1), incident("ib_link_down", id=2, at=END), incident(id=3, node="n2", at=50.0)]
    (first, second) = together(accounted([attempt()], END, incidents=several))
    assert (first.kind, first.other, first.k, first.n) == ("ib_link_down", "gpu_bus_loss", 1, 1)
    assert (second.kind, second.k, second.n) == ("gpu_bus_loss", 1, 2)


def test_the_share_of_a_fleet_weighs_each_run_by_its_gpus() -> None:
    rows = [
        attempt("1", run="a", start=0.0, end=1000.0, nodes=("x", "y", "z")),
        attempt("2", run="b", user="v", start=0.0, end=1000.0, nodes=("w",)),
    ]
    told = accounted(rows, 1000.0, steps=steps(10, 1000, 10, run="a") + steps(510, 1000, 10, job="2", run="b"))
    share = ettr_by_gpus(told.attempts)
    assert share is not None
    assert share.middle == pytest.approx((3 * 1000 + 500) / 4000)
