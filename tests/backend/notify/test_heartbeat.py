"""The pulse to the outside stops when nobody judges or nobody can be told; a lost channel is told of on the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from sqlmodel import col, select

from backend.clock import ManualClock
from backend.model.messages import Delivery, Message
from backend.notify import heartbeat, lost, outbox
from backend.notify.base import NotifyError
from backend.store import system
from backend.store.engine import Store
from tests.backend.notify.story import CLOSED, OPENED


@pytest.fixture
def outside() -> Iterator[tuple[str, list[str]]]:
    """An address that answers 200, or what its path says; the paths that were asked."""
    asked: list[str] = []

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(int(self.path[1:]) if self.path[1:].isdecimal() else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()
    thread.join(10)


def beat(store: Store, clock: ManualClock, name: str, *, error: str = "") -> None:
    with store.write() as session:
        if error:
            system.beat_failed(session, "main", "loop", name, clock.now(), error, every_s=0.25)
        else:
            system.beat_ok(session, "main", "loop", name, clock.now(), 0.0, {}, every_s=0.25)


def wrong(store: Store, clock: ManualClock) -> str:
    with store.read() as session:
        return heartbeat.why_not(session, ["main"], clock.now())


def later(clock: ManualClock, seconds: float) -> None:
    clock.set(clock.now() + timedelta(seconds=seconds))


def test_it_beats_while_the_loops_do(sqlite_store: Store, clock: ManualClock) -> None:
    beat(sqlite_store, clock, "observe")
    beat(sqlite_store, clock, "alerts")
    assert wrong(sqlite_store, clock) == ""
    later(clock, 61)
    assert wrong(sqlite_store, clock) == "the loop alerts of main does not beat"


def test_where_nobody_ever_judged_it_does_not_beat(sqlite_store: Store, clock: ManualClock) -> None:
    beat(sqlite_store, clock, "alerts")
    assert wrong(sqlite_store, clock) == "the loop observe of main has never beaten"


def test_a_loop_that_fails_for_long_stops_it(sqlite_store: Store, clock: ManualClock) -> None:
    beat(sqlite_store, clock, "observe")
    for _ in range(4):
        beat(sqlite_store, clock, "observe", error="the disk is full")
        later(clock, 30)
    assert wrong(sqlite_store, clock) == "the loop observe of main does not beat"


def test_messages_that_do_not_leave_stop_it(sqlite_store: Store, clock: ManualClock) -> None:
    with sqlite_store.write() as session:
        outbox.put(session, OPENED, 0, {"email": ()}, clock.now())
    later(clock, 901)
    beat(sqlite_store, clock, "observe")
    assert wrong(sqlite_store, clock) == "messages by email have waited for over 15 min"


def test_the_address_is_asked_and_never_told(outside: tuple[str, list[str]]) -> None:
    url, asked = outside
    assert heartbeat.ask(f"{url}/ping/secret") == "200"
    assert asked == ["/ping/secret"]
    with pytest.raises(NotifyError) as refused:
        heartbeat.ask(f"{url}/503")
    assert "503" in str(refused.value) and url not in str(refused.value)
    with pytest.raises(NotifyError) as silent:
        heartbeat.ask("http://127.0.0.1:9/secret")
    assert "secret" not in str(silent.value)


def test_a_channel_that_takes_nothing_is_told_of_on_the_others_once(sqlite_store: Store, clock: ManualClock) -> None:
    store, both = sqlite_store, ("email", "slack")

    def reach(channels: tuple[str, ...] = both) -> int:
        with store.write() as session:
            return lost.tell_lost(session, "main", channels, clock.now(), "https://watch.test")

    with store.write() as session:
        outbox.put(session, OPENED, 0, {"email": ()}, clock.now())
    later(clock, 900)
    assert reach() == 0
    later(clock, 1)
    assert reach(("email",)) == 0
    assert (reach(), reach()) == (1, 0)
    with store.read() as session:
        told = session.exec(select(Message).where(Message.kind == "lost")).one()
        sent = session.exec(select(Delivery).where(col(Delivery.message_id) == told.id)).all()
    assert told.body["headline"] == "Nobody can be told by email: a message has waited for 15 min."
    assert [d.channel for d in sent] == ["slack"]
    with store.write() as session:
        outbox.put(session, CLOSED, 1, {"email": ()}, clock.now())
    later(clock, 60)
    assert reach() == 0


def test_an_outage_whose_messages_die_one_after_another_is_told_of_once(
    sqlite_store: Store, clock: ManualClock
) -> None:
    store = sqlite_store

    def turn(state: str = "") -> int:
        with store.write() as session:
            waits = session.exec(select(Delivery).where(Delivery.channel == "email", Delivery.state == "waiting"))
            for row in waits.all()[:1] if state else ():
                row.state, row.sent_at = state, clock.now() if state == "sent" else None
                session.add(row)
            session.flush()
            return lost.tell_lost(session, "main", ("email", "slack"), clock.now(), "https://watch.test")

    for place, said in enumerate((OPENED, CLOSED, replace(CLOSED, id="a"), replace(CLOSED, id="b"))):
        with store.write() as session:
            outbox.put(session, said, place, {"email": ()}, clock.now())
        later(clock, 60)
    later(clock, 1200)
    assert [turn(), turn("dead"), turn("dead")] == [1, 0, 0]
    later(clock, 60)
    assert turn("sent") == 1, "it took one, and lets the next one wait: that is another outage"
    assert turn() == 0
