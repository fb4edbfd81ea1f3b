"""The accounts of a store: kept fresh step by step, rebuilt and checked, on both databases."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlmodel import Session, select

from backend import rights
from backend.answers.runs import run_list, run_of
from backend.clock import ManualClock, unix
from backend.facts import AttemptFacts
from backend.model.events import Finding
from backend.model.reckoning import Rollup
from backend.rollups import weekly
from backend.rollups.check import check, rebuild
from backend.rollups.keep import Keeper
from backend.store import reckoning
from backend.store.attempts import record_attempts
from backend.store.engine import Store
from tests.backend.rollups import months
from tests.conftest import NOW

DAYS = 8


@pytest.fixture
def keeper(store: Store, clock: ManualClock) -> Keeper:
    with store.write() as session:
        months.fill(session, "main", NOW, DAYS)
    return Keeper(store, clock, "main", DAYS)


def again(keeper: Keeper) -> None:
    """One more step, without its rest."""
    keeper._rests_until = 0.0
    while keeper.step():
        pass


def test_what_was_kept_stands_against_what_it_was_made_of(keeper: Keeper, store: Store, clock: ManualClock) -> None:
    again(keeper)
    found = check(store, "main", clock.now(), DAYS, 10_000)
    assert found.wrong == 0 and found.rows > 200, found.differences
    with store.read() as session:
        whole = reckoning.reckoning(session, "main", DAYS)
        hours = reckoning.sums(session, "main", NOW - timedelta(days=DAYS), NOW + timedelta(hours=1))
        rows = reckoning.runs_page(session, "main", 100)
    assert whole is not None
    held = sum(row["held_gpu_s"] for row in hours) / 3600
    assert held == pytest.approx(whole.document["gpu_hours_held"], rel=0.02)  # a run may begin a little before
    assert sum(row["failures"] for row in hours) == whole.document["failures"]["failed_attempts"]
    assert sum(row["findings"] for row in hours) == 400 - sum(1 for _ in _older(store))
    assert {row["name"].partition(" ")[0] for row in rows} >= {name for name, *_ in months.RUNS}
    assert all(row["ettr_low"] <= row["ettr_high"] <= 1 for row in rows)


def test_who_is_limited_to_a_project_sees_its_runs_and_no_others(keeper: Keeper, store: Store) -> None:
    again(keeper)
    with store.read() as session:
        mine = run_list(session, "main", 100, None, "", "", ("team-kim",))
        every = run_list(session, "main", 100, None, "", "")
        assert {row["account"] for row in mine.rows} == {"team-kim"} and len(mine.rows) < len(every.rows)
        assert sum(mine.states.values()) == len(mine.rows)
        (name, job), other = _run_and_job(session, mine.rows[0]["name"]), every.rows[0]["name"]
        assert run_of(session, "main", name, ("team-kim",)) is not None
        assert run_of(session, "main", job, ("team-kim",)) is not None
        assert run_of(session, "main", name, ("team-lena",)) is run_of(session, "main", job, ("team-lena",)) is None
        assert run_of(session, "main", other) is not None
    assert rights.rule_of("GET", "/api/v1/runs/{run}").reach == rights.rule_of("GET", "/runs").reach == "project"


def _run_and_job(session: Session, name: str) -> tuple[str, str]:
    row = reckoning.run_named(session, "main", name)
    assert row is not None
    return name, row.document["attempts"][0]["job"]


def test_money_is_told_in_its_currency(keeper: Keeper, store: Store) -> None:
    keeper.price, keeper.currency = 2.5, "EUR"
    again(keeper)
    with store.read() as session:
        whole = reckoning.reckoning(session, "main", DAYS)
    assert whole is not None and whole.document["price"] == {"gpu_hour": 2.5, "currency": "EUR"}
    row = whole.document["lost"]["cause"][0]
    assert row["money"][1] == pytest.approx(2.5 * row["gpu_hours"][1], rel=1e-4)
    assert weekly.money_words(whole.document).endswith(" EUR")


def _older(store: Store) -> list[int]:
    with store.read() as session:
        first = (NOW - timedelta(days=DAYS)).replace(minute=0, second=0, microsecond=0)
        return [row.id or 0 for row in session.exec(select(Finding).where(Finding.raised_at < first))]


def test_steps_that_follow_what_happens_end_where_one_from_scratch_does(
    keeper: Keeper, store: Store, clock: ManualClock
) -> None:
    again(keeper)
    for hour in range(4):
        clock.set(NOW + timedelta(hours=hour + 1))
        now = clock.now()
        one = AttemptFacts("9001", 0, "late", "ravi", "RUNNING", unix(NOW), unix(NOW), unix(NOW), nodes=("gpu-048",))
        ended = AttemptFacts(**{n: getattr(one, n) for n in one.__slots__} | {"state": "FAILED", "end": unix(now)})
        with store.write() as session:
            record_attempts(session, "main", [one if hour < 3 else ended], now)
        again(keeper)
    assert check(store, "main", clock.now(), DAYS, 10_000).wrong == 0
    with store.read() as session:
        assert reckoning.run_of_job(session, "main", "9001") == "late"


def test_a_wrong_row_is_found_and_mended(keeper: Keeper, store: Store, clock: ManualClock) -> None:
    again(keeper)
    with store.write() as session:
        row = session.exec(select(Rollup).where(Rollup.job == "", Rollup.node == "", Rollup.failures > 0)).first()
        assert row is not None
        row.failures += 3
        session.add(row)
    found = check(store, "main", clock.now(), DAYS, 10_000)
    assert found.wrong == 1 and found.differences[0].what == "failures"
    rebuild(store, "main", clock.now(), DAYS, 10_000)
    assert check(store, "main", clock.now(), DAYS, 10_000).wrong == 0


def test_a_step_rests_before_the_next(keeper: Keeper) -> None:
    keeper.step()
    took = keeper.took_s
    keeper.step()
    assert keeper.took_s == took > 0


def test_an_empty_store_is_accounted_as_nothing(store: Store, clock: ManualClock) -> None:
    keeper = Keeper(store, clock, "main")
    assert not keeper.step()
    with store.read() as session:
        assert reckoning.runs_page(session, "main", 10) == []
        whole = reckoning.reckoning(session, "main", 90)
    assert whole is not None and whole.document["trend"] == []
    assert check(store, "main", clock.now(), 90, 100).wrong == 0


def test_more_attempts_than_are_counted_are_told(keeper: Keeper, store: Store) -> None:
    keeper.most = 20
    again(keeper)
    with store.read() as session:
        whole = reckoning.reckoning(session, "main", DAYS)
    assert whole is not None and whole.document["attempts_not_counted"] > 0
    assert whole.document["attempts"] <= 20
