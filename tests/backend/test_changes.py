"""The feed behind the live pages: in order, never silent about a loss, the same in every process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest
from sqlmodel import Session

from backend.changes import KEPT, Change, Changes
from backend.model.incidents import Incident
from backend.store import incidents, system
from backend.store.engine import Store, open_store

#: Another process that writes one timeline line: url, folder and incident are its arguments.
WRITER = """\
import sys
from datetime import UTC, datetime
from pathlib import Path
from backend.model.incidents import Incident
from backend.store import incidents
from backend.store.engine import open_store
store = open_store(sys.argv[1], Path(sys.argv[2]))
with store.write() as session:
    row = session.get_one(Incident, int(sys.argv[3]))
    incidents.tell(session, row, datetime.now(UTC), "note", "from elsewhere")
store.close()
"""


def opened(store: Store, now: datetime, cluster: str = "main") -> int:
    with store.write() as session:
        row = an_incident(now, cluster)
        session.add(row)
        session.flush()
        return row.id or 0


def an_incident(now: datetime, cluster: str = "main") -> Incident:
    return Incident(
        cluster=cluster,
        kind="gpu_bus_loss",
        severity="critical",
        headline="lost",
        entity_kind="gpu",
        entity_id="GPU-1",
        entity_name="gpu-0001/gpu3",
        opened_at=now,
        changed_at=now,
        last_asserted_at=now,
    )


def told(store: Store, number: int, now: datetime) -> None:
    with store.write() as session:
        incidents.tell(session, session.get_one(Incident, number), now, "note", "said")


def followed(changes: Changes, store: Store) -> list[tuple[str, str, str]]:
    """What one look at the store publishes."""
    before = changes.latest()
    with store.read() as session:
        changes.follow(session)
    return [(c.name, c.id, c.cluster) for c in changes.wait(before, 0.0)]


# --- the feed -------------------------------------------------------------------------------------------------------


def test_changes_come_in_order_each_once() -> None:
    changes = Changes()
    for number in ("7", "8", "7"):
        changes.publish("incident", number, "main")
    assert changes.wait(0, 0.0) == [Change(i + 1, "incident", n, "main") for i, n in enumerate(("7", "8", "7"))]
    assert [c.seq for c in changes.wait(2, 0.0)] == [3]
    assert changes.wait(3, 0.0) == []


def test_who_waits_is_woken_by_the_next_change() -> None:
    changes, heard = Changes(), []
    waiter = threading.Thread(target=lambda: heard.extend(changes.wait(0, 10.0)))
    waiter.start()
    changes.publish("fleet", "", "main")
    waiter.join(5)
    assert [c.name for c in heard] == ["fleet"]


def test_without_news_the_wait_ends_empty_after_its_time() -> None:
    began = time.monotonic()
    assert Changes().wait(0, 0.05) == []
    assert 0.04 < time.monotonic() - began < 5


def test_an_overflow_drops_the_oldest_and_shows_as_a_gap_in_the_numbers() -> None:
    changes = Changes()
    for number in range(KEPT + 10):
        changes.publish("incident", str(number), "main")
    news = changes.wait(0, 0.0)
    assert len(news) == KEPT
    assert (news[0].seq, news[-1].seq) == (11, KEPT + 10)


def test_a_nudge_ends_the_wait_at_once_and_only_one() -> None:
    changes = Changes()
    changes.nudge()
    began = time.monotonic()
    changes.until_nudged(10.0)
    assert time.monotonic() - began < 5
    began = time.monotonic()
    changes.until_nudged(0.05)
    assert time.monotonic() - began > 0.04


# --- following the store --------------------------------------------------------------------------------------------


def test_what_stood_in_the_store_before_is_no_news(store: Store, now: datetime) -> None:
    told(store, opened(store, now), now)
    assert followed(Changes(), store) == []


def test_each_changed_incident_is_named_once_a_look(store: Store, now: datetime) -> None:
    changes = Changes()
    first, other = opened(store, now), opened(store, now, "west")
    followed(changes, store)
    for number in (first, other, first):
        told(store, number, now)
    assert followed(changes, store) == [("incident", str(first), "main"), ("incident", str(other), "west")]
    assert followed(changes, store) == []


def test_a_beat_says_that_the_fleet_moved_on(store: Store, now: datetime) -> None:
    changes = Changes()
    followed(changes, store)
    with store.write() as session:
        system.beat_ok(session, "main", "loop", "observe", now, 0.0, {})
    assert followed(changes, store) == [("fleet", "", "")]
    assert followed(changes, store) == []


def test_more_entries_than_one_look_reads_are_read_by_the_next(sqlite_store: Store, now: datetime) -> None:
    changes = Changes()
    first, last = opened(sqlite_store, now), opened(sqlite_store, now)
    followed(changes, sqlite_store)
    with sqlite_store.write() as session:
        row = session.get_one(Incident, first)
        for _ in range(500):
            incidents.tell(session, row, now, "note", "said")
        session.flush()
        incidents.tell(session, session.get_one(Incident, last), now, "note", "said")
    assert followed(changes, sqlite_store) == [("incident", str(first), "main")]
    assert followed(changes, sqlite_store) == [("incident", str(last), "main")]


@pytest.mark.services
def test_an_entry_that_is_committed_after_a_higher_one_is_published_too(postgres_store: Store, now: datetime) -> None:
    """Ids are given before the commit: two writers at once become visible in either order."""
    store, changes = postgres_store, Changes()
    slow, quick = opened(store, now), opened(store, now)
    followed(changes, store)
    with Session(store.engine) as session:
        incidents.tell(session, session.get_one(Incident, slow), now, "note", "slow")
        session.flush()
        told(store, quick, now)
        assert followed(changes, store) == [("incident", str(quick), "main")]
        session.commit()
    assert followed(changes, store) == [("incident", str(slow), "main")]
    assert followed(changes, store) == []


def test_two_followers_each_hear_everything(store: Store, now: datetime, tmp_path: Path) -> None:
    """An API process has its own store and feed; it hears of what the observe process commits."""
    second = open_store(store.engine.url.render_as_string(hide_password=False), tmp_path)
    ours, theirs = Changes(), Changes()
    number = opened(store, now)
    followed(ours, store), followed(theirs, second)
    told(store, number, now)
    assert followed(ours, store) == followed(theirs, second) == [("incident", str(number), "main")]
    second.close()


def test_what_another_process_commits_is_published_here(store: Store, now: datetime, tmp_path: Path) -> None:
    changes, number = Changes(), opened(store, now)
    followed(changes, store)
    url = store.engine.url.render_as_string(hide_password=False)
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", WRITER, url, str(tmp_path), str(number)], cwd=root, check=True, timeout=60)
    assert followed(changes, store) == [("incident", str(number), "main")]


def test_a_process_that_stops_tells_its_streams_to_end() -> None:
    changes = Changes()
    assert not changes.closed
    changes.close()
    assert changes.closed
