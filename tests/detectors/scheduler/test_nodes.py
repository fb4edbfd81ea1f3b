"""A scheduler's word about a node: given up, waited for, taken out, back."""

from __future__ import annotations

import pytest

from detectors.catalogue import load
from detectors.model import Event, Fleet, Judged, Severity, Tick
from detectors.scheduler.nodes import Nodes
from tests.detectors.fleets import T0, entity, fleet_of

FLEET = fleet_of(6)


class Told:
    def __init__(self, fleet: Fleet = FLEET) -> None:
        self.detector, self.fleet = Nodes(load()), fleet
        self.state = self.detector.start(fleet)

    def hear(self, at: float, code: str, *nodes: str, namespace: str = "slurm", **attrs: str) -> Judged:
        events = tuple(Event(at, entity(self.fleet, n), namespace, code, attrs=attrs) for n in nodes)
        return self.detector.step(self.state, Tick(at, events=events), self.fleet)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.mark.parametrize(
    ("namespace", "down", "back"), [("slurm", "node_down", "node_back"), ("k8s", "NodeNotReady", "NodeReady")]
)
def test_a_node_that_was_given_up_is_unreachable_until_it_is_back(
    told: Told, namespace: str, down: str, back: str
) -> None:
    (found,) = told.hear(T0, down, "gpu-0002", namespace=namespace).findings
    assert (found.kind, found.entity.id, found.severity) == ("node_unreachable", "gpu-0002", Severity.HIGH)
    assert told.hear(T0 + 9000, "node_reason", "gpu-0005").findings == (found,)
    assert told.hear(T0 + 9900, back, "gpu-0002", namespace=namespace).findings == ()


def test_a_node_that_is_waited_for_is_a_record_for_a_while(told: Told) -> None:
    (found,) = told.hear(T0, "node_not_responding", "gpu-0002").findings
    assert found.severity is Severity.INFO
    assert told.hear(T0 + 901, "x").findings == ()


def test_slurms_own_reason_is_its_word_and_a_persons_is_not(told: Told) -> None:
    event = Event(T0, entity(FLEET, "gpu-0002"), "slurm", "node_out", "Not responding", attrs={"state": "DOWN*"})
    assert [f.kind for f in told.detector.step(told.state, Tick(T0, events=(event,)), FLEET).findings] == [
        "node_unreachable"
    ]
    assert told.hear(T0 + 1, "node_out", "gpu-0003", state="DRAIN").findings == told.hear(T0 + 2, "x").findings


def test_a_node_that_was_taken_out_before_is_not_missed(told: Told) -> None:
    told.hear(T0, "node_state", "gpu-0002", state="DRAIN")
    assert told.hear(T0 + 600, "node_down", "gpu-0002").findings == ()
    told.hear(T0 + 4000, "node_state", "gpu-0002", state="RESUME")
    assert len(told.hear(T0 + 5000, "node_down", "gpu-0002").findings) == 1


def test_many_nodes_given_up_at_once_are_not_each_at_fault(told: Told) -> None:
    found = told.hear(T0, "node_down", *FLEET.nodes).findings
    assert {f.severity for f in found} == {Severity.WARNING}
    assert "the scheduler or the network is suspect" in found[0].reason


def test_old_lines_and_unknown_nodes_say_nothing(told: Told) -> None:
    late = Event(T0, entity(FLEET, "gpu-0002"), "slurm", "node_down", late=True)
    assert told.detector.step(told.state, Tick(T0, events=(late,)), FLEET).findings == ()
    assert Told(fleet_of(1)).hear(T0, "node_back", "gpu-0001").findings == ()
