"""One that stands by keeps the ticks that the leader's saved states have not seen; taking over loads what it left."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from backend import pipeline
from backend.clock import ManualClock
from backend.leading import MOST_TICKS, Lead, replica
from backend.store import leases
from backend.store.engine import Store
from tests.backend.bench import TICK_S, Bench
from tests.conftest import NOW


@pytest.fixture
def bench(sqlite_store: Store, clock: ManualClock) -> Bench:
    return Bench(sqlite_store, clock)


#: A lease this long has run out a second later.
GONE_S = 0.5


def lead_of(bench: Bench, holder: str, told: list[str]) -> Lead:
    return Lead(bench.watch, holder, 5.0, lambda: told.append("begin"), lambda: told.append("end"))


def held_by_another(bench: Bench, length_s: float = 3600.0) -> None:
    with bench.watch.store.write() as session:
        leases.take(session, "main", "another", "host:1", length_s, bench.watch.clock.now())


def scrape(bench: Bench) -> None:
    bench.clock.set(bench.clock.now() + timedelta(seconds=TICK_S))
    bench.telemetry()


def test_it_begins_once_and_ends_once(bench: Bench) -> None:
    told: list[str] = []
    lead = lead_of(bench, "one", told)
    lead.step()
    lead.step()
    assert (told, lead.term) == (["begin"], 1)
    lead.give_up()
    lead.give_up()
    assert (told, lead.term) == (["begin", "end"], 0)


def test_one_that_stands_by_judges_nothing_and_keeps_its_ticks(bench: Bench) -> None:
    pipeline.observe(bench.watch)
    held_by_another(bench)
    told: list[str] = []
    lead = lead_of(bench, "one", told)
    before = bench.watch.last_at
    for _ in range(3):
        scrape(bench)
        lead.step()
    assert told == [] and bench.watch.last_at == before
    assert len(bench.watch.coming) > 0


def test_it_never_keeps_more_than_so_many_ticks(bench: Bench) -> None:
    held_by_another(bench)
    lead = lead_of(bench, "one", [])
    for _ in range(MOST_TICKS + 20):
        scrape(bench)
        lead.step()
    assert len(bench.watch.coming) <= MOST_TICKS


def test_who_lost_the_lease_ends_before_anything_else(bench: Bench) -> None:
    told: list[str] = []
    lead = lead_of(bench, "one", told)
    lead.step()
    with bench.watch.store.write() as session:
        leases.give_up(session, "main", 1, NOW)
    held_by_another(bench)
    lead.step()
    assert (told, lead.term) == (["begin", "end"], 0)


def test_a_replica_keeps_its_name(tmp_path: Path) -> None:
    first = replica(tmp_path / "new")
    assert replica(tmp_path / "new") == first and replica(tmp_path / "other") != first


def test_a_lease_that_nothing_was_begun_under_is_handed_back(bench: Bench) -> None:
    tries = iter([OSError("the database went away"), None])

    def begin() -> None:
        if (error := next(tries)) is not None:
            raise error

    lead = Lead(bench.watch, "one", 5.0, begin, lambda: None)
    with pytest.raises(OSError):
        lead.step()
    assert lead.term == 0
    with bench.watch.store.write() as session:
        assert leases.take(session, "main", "another", "host:1", GONE_S, bench.watch.clock.now()) == 2
    bench.clock.set(bench.clock.now() + timedelta(seconds=1))
    lead.step()
    assert lead.term == 3
