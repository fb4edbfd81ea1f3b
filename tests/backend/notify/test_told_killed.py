"""Kill -9 at random moments of a storm: no incident stays unannounced, and hardly a message comes twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sqlmodel import col, select

from backend.model.alerts import AlertGroup
from backend.model.incidents import Incident
from backend.model.messages import Delivery
from backend.store.engine import Store, migrate, open_store
from tests.services.sinks import Mode, Tape
from tests.services.smtp import Desk, parsed, smtp_sink

ROOT = Path(__file__).resolve().parents[3]
#: Of the tries so many end in a dropped connection: before the other side took it, and after.
DROPS = {Mode.DROP_BEFORE: 0.03, Mode.DROP_AFTER: 0.002}
#: Most of what a channel that cannot be read back may bring twice.
TWICE_MOST = 0.01


class Fate(Tape):
    """Each try may end in a dropped connection, by a seeded chance."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.sure = False

    def tried(self) -> Mode:
        chance = self.random.random()
        before, after = DROPS[Mode.DROP_BEFORE], DROPS[Mode.DROP_AFTER]
        self.mode = Mode.DROP_BEFORE if chance < before else Mode.DROP_AFTER if chance < before + after else Mode.TAKE
        if self.sure:
            self.mode = Mode.TAKE
        return super().tried()


@contextmanager
def web_sink(tape: Tape) -> Iterator[int]:
    """POST /id takes a message, GET /id says whether it is there; connections drop as the tape says."""

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            mode = tape.tried()
            if mode is Mode.DROP_BEFORE:
                return
            tape.keep({"id": self.path[1:]})
            if mode is not Mode.DROP_AFTER:
                self._answer(200)

        def do_GET(self) -> None:
            self._answer(200 if any(row["id"] == self.path[1:] for row in tape.rows) else 404)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the test's output is its own."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@contextmanager
def nursery(folder: Path, desk: Desk, port: int, count: int) -> Iterator[subprocess.Popen[str]]:
    """What starts the processes that are to be killed."""
    words = ["-m", "tests.backend.notify.told_until_killed", str(folder), str(desk.port), str(port), str(count)]
    made = subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield made
    made.kill()
    made.communicate(timeout=10)


def start(made: subprocess.Popen[str]) -> int:
    """Another process storms; its number."""
    assert made.stdin is not None and made.stdout is not None
    made.stdin.write("go\n")
    made.stdin.flush()
    return int(made.stdout.readline())


def busy(tape: Tape, within_s: float) -> None:
    """Wait until something arrives, so that the kill meets a process at work; none may come where all was told."""
    already, deadline = len(tape.rows), time.monotonic() + within_s
    while len(tape.rows) == already and time.monotonic() < deadline:
        time.sleep(0.01)


def unsettled(store: Store, count: int) -> int:
    """What is still to happen: incidents to open, groups to speak, deliveries to go."""
    with store.read() as session:
        missing = count - len(session.exec(select(Incident.id)).all())
        groups = select(AlertGroup.id).where(col(AlertGroup.told_at).is_(None), AlertGroup.state == "open")
        waits = select(Delivery.id).where(col(Delivery.state).in_(("waiting", "claimed")))
        return missing + len(session.exec(groups).all()) + len(session.exec(waits).all())


def storm(folder: Path, kills: int, count: int, seed: int) -> tuple[dict[str, Counter[str]], set[str]]:
    """Run the storm with so many kills. Arrivals by channel and message id; the ids that open an incident."""
    moments = random.Random(seed)
    mails, posts = Fate(seed), Fate(seed + 1)
    store = open_store("", folder)
    migrate(store)
    with smtp_sink(tape=mails) as desk, web_sink(posts) as port, nursery(folder, desk, port, count) as made:
        for _ in range(kills):
            program = start(made)
            busy(mails, within_s=3.0)
            time.sleep(moments.uniform(0.0, 0.6))
            os.kill(program, signal.SIGKILL)
        mails.sure = posts.sure = True
        program = start(made)
        deadline = time.monotonic() + 120 + count / 2
        while unsettled(store, count) and time.monotonic() < deadline:
            time.sleep(0.2)
        os.kill(program, signal.SIGKILL)
        assert not (left := unsettled(store, count)), f"{left} still wait: this machine was too slow"
    with store.read() as session:
        wanted = {f"main-inc-{number}-opened-0" for number in session.exec(select(Incident.id)).all()}
    store.close()
    ids = [str(parsed(row["raw"])["Message-ID"]).strip("<>").partition("@")[0] for row in mails.rows]
    return {"email": Counter(ids), "webhook": Counter(row["id"] for row in posts.rows)}, wanted


def judged(arrived: dict[str, Counter[str]], wanted: set[str]) -> None:
    for channel, found in arrived.items():
        twice = found.total() - len(found)
        print(f"{channel}: {len(found):,} messages, {twice} twice ({twice / found.total():.2%})")
        assert not {one for one in wanted if one not in found}, channel
        assert twice <= TWICE_MOST * found.total(), channel
    assert arrived["webhook"].total() == len(arrived["webhook"]), "what is read back never comes twice"


def test_a_storm_that_is_killed_a_few_times_is_told_whole(tmp_path: Path) -> None:
    arrived, wanted = storm(tmp_path / "store", kills=3, count=60, seed=7)
    assert len(wanted) >= 60
    for channel, found in arrived.items():
        assert not wanted - set(found), channel
        assert found.total() - len(found) <= 3 + 1, channel  # one a kill, and one that was dropped
    assert arrived["webhook"].total() == len(arrived["webhook"])


@pytest.mark.slow
def test_a_hundred_kills_of_a_storm_leave_nothing_unannounced(tmp_path: Path) -> None:
    arrived, wanted = storm(tmp_path / "store", kills=100, count=6_000, seed=11)
    judged(arrived, wanted)
