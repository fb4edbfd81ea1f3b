"""Alerts that stand in Alertmanager are told again, as they were told last; what ended is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.clock import ManualClock
from backend.notify import outbox
from backend.notify.alertmanager import AlertmanagerNotifier, keep_alive
from backend.settings import Alertmanager
from backend.store.engine import Store, migrate, open_store
from backend.tidings import MessageFacts
from tests.backend.notify.story import CHANGED, CLOSED, OPENED
from tests.services.http_sink import Receiver, http_sink

AT = datetime(2026, 11, 12, 3, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = open_store("", tmp_path)
    migrate(found)
    yield found
    found.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_sink() as running:
        yield running


def told(store: Store, notifier: AlertmanagerNotifier, *messages: MessageFacts) -> None:
    for number, message in enumerate(messages):
        with store.write() as session:
            outbox.put(session, message, number, {"alertmanager": ()}, AT)
        assert outbox.deliver_one(store, {"alertmanager": notifier}, ManualClock(AT), "me")


def test_what_stands_is_told_again_as_it_was_told_last(store: Store, receiver: Receiver) -> None:
    settings = Alertmanager.model_validate({"urls": [receiver.url]})
    notifier = AlertmanagerNotifier(settings, "https://watch.example", AT.timestamp)
    other = replace(OPENED, incident=813, thread="main-inc-813", id="x")
    told(store, notifier, OPENED, CHANGED, other, replace(other, kind="closed", id="y"))
    before = len(receiver.bodies)
    keep_alive(store, notifier, "main")
    (again,) = receiver.bodies[before:]
    assert [alert["labels"]["incident"] for alert in again] == ["812"]
    assert again[0]["annotations"]["summary"] == CHANGED.headline
    assert again[0]["endsAt"] == "2026-11-12T03:04:00+00:00"


def test_where_nothing_stands_nothing_is_sent(store: Store, receiver: Receiver) -> None:
    notifier = AlertmanagerNotifier(Alertmanager.model_validate({"urls": [receiver.url]}), "")
    told(store, notifier, OPENED, CLOSED)
    before = len(receiver.bodies)
    keep_alive(store, notifier, "main")
    assert len(receiver.bodies) == before
