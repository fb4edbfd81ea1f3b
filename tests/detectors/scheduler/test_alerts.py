"""Alerts of another system as levels: one finding an entity, until they are over."""

from __future__ import annotations

from time import process_time

from detectors.catalogue import load
from detectors.detector import arrays_of
from detectors.model import Event, Severity, Tick
from detectors.scheduler.alerts import MOST, Alerts
from tests.detectors.fleets import T0, entity, fleet_of

CATALOGUE = load()


def told(fingerprint: str, code: str = "firing", at: float = T0, severity: str = "warning", node: int = 0) -> Event:
    fleet = fleet_of(2)
    attrs = {"fingerprint": fingerprint, "alert": f"Alert{fingerprint}", "severity": severity}
    return Event(at, entity(fleet, fleet.nodes[node]), "alert", code, f"words of {fingerprint}.", 1, attrs=attrs)


def findings(*ticks: Tick) -> list[list[tuple[str, Severity]]]:
    detector, fleet = Alerts(CATALOGUE), fleet_of(2)
    state = detector.start(fleet)
    return [[(str(f.entity), f.severity) for f in detector.step(state, tick, fleet).findings] for tick in ticks]


def test_an_alert_stands_until_it_is_resolved() -> None:
    name = fleet_of(2).nodes[0]
    found = findings(Tick(T0, events=(told("a"),)), Tick(T0 + 60), Tick(T0 + 90, events=(told("a", "resolved"),)))
    assert found == [[(name, Severity.WARNING)], [(name, Severity.WARNING)], []]


def test_alerts_of_one_node_are_one_level_as_loud_as_the_loudest_but_never_a_page() -> None:
    name = fleet_of(2).nodes[0]
    events = (told("a"), told("b", severity="critical"), told("c", severity="none"))
    assert findings(Tick(T0, events=events)) == [[(name, Severity.HIGH)]]


def test_one_whose_end_never_comes_does_not_stand_for_ever() -> None:
    hold_s = CATALOGUE.limit("alert_hold_s")
    assert findings(Tick(T0, events=(told("a"),)), Tick(T0 + hold_s + 1))[1] == []


def test_alerts_that_stand_cost_a_quiet_tick_little_and_are_packed_as_wide_as_they_are() -> None:
    detector, fleet = Alerts(CATALOGUE), fleet_of(2)
    state = detector.start(fleet)
    detector.step(state, Tick(T0, events=tuple(told(f"{n:05}", node=n % 2) for n in range(5_000))), fleet)
    before, began = state.since, process_time()
    assert detector.step(state, Tick(T0 + 30), fleet).findings
    assert process_time() - began < 0.15
    assert state.since is before, "a tick without an alert changes nothing"
    assert len(before) == MOST
    assert sum(array.nbytes for array in arrays_of(state).values()) < 2_000_000
