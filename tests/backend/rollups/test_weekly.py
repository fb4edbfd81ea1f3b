"""The weekly report: due at its hour in its zone, once, by every channel; words that a tired person reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select

from backend.clock import ManualClock
from backend.model.messages import Delivery, Message
from backend.notify.blocks import blocks, fallback
from backend.notify.outbox import facts_of
from backend.rollups.keep import Keeper
from backend.rollups.weekly import due_week, message_of, send_weekly
from backend.settings_counting import Report
from backend.store import reckoning
from backend.store.engine import Store
from frontend.mail.render import Letter, render
from tests.backend.rollups import months
from tests.conftest import NOW

BERLIN = Report(weekly=True, weekday="monday", hour=8, timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("at", "week"),
    [
        (datetime(2026, 3, 2, 6, 59, tzinfo=UTC), 202609),  # Monday, 07:59 in Berlin
        (datetime(2026, 3, 2, 7, 0, tzinfo=UTC), 202610),
        (datetime(2026, 3, 8, 23, 0, tzinfo=UTC), 202610),
        (datetime(2026, 3, 30, 5, 59, tzinfo=UTC), 202613),  # summer time has begun
        (datetime(2026, 3, 30, 6, 0, tzinfo=UTC), 202614),
    ],
)
def test_a_report_is_due_at_its_hour_of_its_zone(at: datetime, week: int) -> None:
    assert due_week(at, BERLIN) == week


def sent(store: Store, clock: ManualClock) -> bool:
    return send_weekly(store, clock, "main", BERLIN, ("email", "slack"), "https://watch.example")


def test_each_week_is_told_once_and_the_first_not_at_all(store: Store) -> None:
    clock = ManualClock(NOW)
    with store.write() as session:
        months.fill(session, "main", NOW, 6)
    told = []
    for day in (0, 1, 2, 8, 15):
        clock.set(NOW + timedelta(days=day))
        Keeper(store, clock, "main", 30).step()
        told += [sent(store, clock), sent(store, clock)]
    assert sum(told) == 3
    with store.read() as session:
        rows = session.exec(select(Message).where(Message.kind == "report")).all()
        assert len(rows) == 4 and len(session.exec(select(Delivery)).all()) == 6
        assert facts_of(rows[-1].body).incident == 0


def test_nothing_is_told_before_anything_was_counted(store: Store, clock: ManualClock) -> None:
    assert not sent(store, clock)


def test_mail_and_slack_say_what_it_cost(sqlite_store: Store, clock: ManualClock) -> None:
    with sqlite_store.write() as session:
        months.fill(session, "main", NOW, 20)
    Keeper(sqlite_store, clock, "main", 30).step()
    with sqlite_store.read() as session:
        whole = reckoning.reckoning(session, "main", 7)
    assert whole is not None
    told = message_of("main", 202610, whole.document, NOW, "https://watch.example", simulated=True)
    text = str(blocks(told, told.url)) + fallback(told)
    assert "Open the report" in text and "incident 0" not in text and "weekly report of main" in text
    page = render(
        Letter(
            kind="report", cluster="main", incident=0, severity="info", headline=told.headline, why=told.why,
            facts=told.facts, evidence=told.evidence, advice=told.advice, url=told.url, at=told.at, simulated=True,
            subject=told.subject,
        )
    )  # fmt: skip
    assert page.subject.startswith("[main, simulated] Week 10 of 2026: ")
    assert "ETTR" in page.text and "Open the report" in page.text and "incident" not in page.text
    assert "Open the report" in page.html and "incident" not in page.html
    assert "failures this week" in page.text
