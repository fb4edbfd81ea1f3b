"""The controller is away when several nodes say so, and back when none does any more."""

from __future__ import annotations

from detectors.catalogue import load
from detectors.fuse import fuse
from detectors.model import Event, Finding, Severity, Tick
from detectors.scheduler.controller import Controller
from tests.detectors.fleets import T0, entity, fleet_of

CATALOGUE = load()
FLEET = fleet_of(6)


def lost(node: int, after_s: float, code: str = "controller_lost", *, late: bool = False) -> Event:
    return Event(T0 + after_s, entity(FLEET, f"gpu-{node:04d}"), "slurm", code, "", int(after_s), late)


def told(*events: Event, until_s: float) -> tuple[Finding, ...]:
    controller = Controller(CATALOGUE)
    state = controller.start(FLEET)
    found: tuple[Finding, ...] = ()
    for place in range(int(until_s // 30) + 1):
        at = T0 + 30.0 * place
        found = controller.step(
            state, Tick(at, events=tuple(e for e in events if at - 30 < e.at <= at)), FLEET
        ).findings
    return found


def test_three_nodes_that_cannot_reach_it_are_the_controller() -> None:
    (found,) = told(lost(1, 20), lost(2, 80), lost(3, 110), until_s=120)
    assert (found.kind, found.entity.kind, found.since) == ("scheduler_down", "cluster", T0 + 20)
    assert "gpu-0001, gpu-0002, gpu-0003" in found.reason
    (suspicion,) = fuse([found], FLEET, CATALOGUE)
    assert (suspicion.cause.authority, suspicion.severity) == ("state", Severity.HIGH)


def test_one_node_that_says_so_again_and_again_is_its_own_trouble() -> None:
    assert told(*(lost(1, 30.0 * n) for n in range(1, 20)), lost(2, 300), until_s=600) == ()


def test_it_holds_while_any_node_says_so_and_ends_when_none_does() -> None:
    away = (lost(1, 20), lost(2, 40), lost(3, 60), lost(1, 350))
    assert len(told(*away, until_s=600)) == 1
    assert told(*away, until_s=690) == ()
    assert told(*away, lost(4, 380, "controller_took_over"), until_s=390) == ()


def test_late_lines_and_nodes_that_said_so_long_ago_do_not_count() -> None:
    assert told(lost(1, 20, late=True), lost(2, 30), lost(3, 40), until_s=60) == ()
    assert told(lost(1, 20), lost(2, 400), lost(3, 420), until_s=450) == ()
