"""Crash loops: told from the third quick failure in a row on, of requeues and of resubmissions; nothing else is one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detectors.catalogue import load
from detectors.joblog.loops import Loops
from detectors.model import Event, Finding, Tick
from tests.detectors.fleets import T0, fleet_of, verdict

CATALOGUE = load()
FLEET = fleet_of(2, 2)


def failed(at: float, ran_s: float = 120.0, job: str = "7", whose: str = "yours", **attrs: str) -> Event:
    usual = {"job": job, "whose": whose, "exclude": "no", "run": "atlas", "user": "ada", "started": f"{at - ran_s:.0f}"}
    return verdict(FLEET, "", at, "python_exception", int(at - T0) + 1, more=usual | attrs)


def told(*events: Event, until: float | None = None) -> list[Finding]:
    detector = Loops(CATALOGUE)
    state = detector.start(FLEET)
    found: tuple[Finding, ...] = ()
    for event in events:
        found = detector.step(state, Tick(event.at, events=(event,)), FLEET).findings
    return list(found if until is None else detector.step(state, Tick(until), FLEET).findings)


def test_the_third_quick_failure_in_a_row_is_a_loop_and_each_more_makes_it_surer() -> None:
    rows = [failed(T0 + 300 * i) for i in range(1, 7)]
    assert not told(*rows[:2])
    (third,) = told(*rows[:3])
    assert (third.kind, third.entity.kind, third.entity.id) == ("crash_loop", "run", "atlas")
    assert third.since == rows[2].at and "3 times in a row" in third.reason and "own code" in third.reason
    (sixth,) = told(*rows)
    assert sixth.key == third.key and sixth.score > third.score and sixth.since == third.since


def test_resubmissions_under_a_name_that_people_add_to_are_one_run() -> None:
    names = ("atlas", "atlas-retry1", "atlas_resume2")
    rows = [failed(T0 + 400 * i, job=str(i), run=name) for i, name in enumerate(names, 1)]
    assert [f.entity.id for f in told(*rows)] == ["atlas"]


@pytest.mark.parametrize("name", ["bash", "", "sys/dashboard"])
def test_names_that_say_nothing_join_only_attempts_of_one_job(name: str) -> None:
    assert not told(*(failed(T0 + 400 * i, job=str(i), run=name) for i in range(1, 6)))
    assert [f.entity.id for f in told(*(failed(T0 + 400 * i, run=name) for i in range(1, 4)))] == ["7"]


def test_a_sweep_of_jobs_side_by_side_is_no_loop() -> None:
    assert not told(*(failed(T0 + 3000 + 5 * i, ran_s=3000, job=str(i)) for i in range(20)))


def test_an_attempt_that_ran_for_long_or_a_long_pause_begins_anew() -> None:
    quick = [failed(T0 + 300 * i) for i in (1, 2)]
    slow = failed(T0 + 9000, ran_s=8000)
    after = [failed(T0 + 9000 + 300 * i) for i in (1, 2)]
    assert not told(*quick, slow, *after)
    assert not told(*quick, failed(T0 + 20_000))
    assert told(*quick, *after[:0], failed(T0 + 900))


def test_it_is_over_when_nothing_fails_for_two_hours() -> None:
    rows = [failed(T0 + 300 * i) for i in range(1, 4)]
    assert told(*rows, until=T0 + 900 + 7200)
    assert not told(*rows, until=T0 + 901 + 7200)


def test_other_users_late_words_and_unknown_starts_are_left_out() -> None:
    rows = [failed(T0 + 300 * i, user=f"u{i}") for i in range(1, 5)]
    assert not told(*rows)
    assert not told(*(replace(failed(T0 + 300 * i), late=True) for i in range(1, 5)))
    assert not told(*(failed(T0 + 300 * i, started="") for i in range(1, 5)))
    assert not told(*(failed(T0 + 300 * i, started="nan") for i in range(1, 5)))


def test_whose_fault_it_was_is_said_of_all_of_them() -> None:
    (found,) = told(*(failed(T0 + 300 * i, whose=w) for i, w in enumerate(("hardware", "yours", "unknown"), 1)))
    assert "1 of the hardware, 1 of its own code or inputs, the rest not known" in found.reason
