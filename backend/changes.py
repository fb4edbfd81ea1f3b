"""What changed, for people who wait: a numbered feed behind SSE and long-poll.

The feed follows the timeline rows and beats that every process can see, so that a page served by an API process learns
of a commit in the observe process. ``nudge`` makes the follower look at once in the process that committed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session, col, func, select

from backend.model.incidents import Entry
from backend.model.system import Beat
from backend.store import incidents

#: Enough for a browser that slept a minute; one that slept longer reloads everything by itself.
KEPT = 2000
#: What a beat is called in the feed.
BEAT = "fleet"
#: Writers may commit out of the order of their ids: how long a skipped id is looked for until it counts as rolled back.
HOLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Change:
    """``name`` is what changed (incident, fleet), ``id`` which one (empty = the whole)."""

    seq: int
    name: str
    id: str
    cluster: str


class Changes:
    """Thread-safe; ``wait`` blocks, so call it from a thread."""

    def __init__(self) -> None:
        self._feed: deque[Change] = deque(maxlen=KEPT)
        self._seq = 0
        self._weighty = 0
        self._bells: dict[int, Callable[[], object]] = {}
        self._news = threading.Condition()
        self._nudged = threading.Event()
        self._closed = threading.Event()
        self._entry: int | None = None
        self._holes: dict[int, float] = {}
        self._beat: datetime | None = None

    @property
    def closed(self) -> bool:
        """The process is about to stop: streams end by themselves, so that nobody waits for them."""
        return self._closed.is_set()

    def close(self) -> None:
        self._closed.set()

    def latest(self) -> int:
        with self._news:
            return self._seq

    @property
    def weighty(self) -> int:
        """The number of the last change that may alter a verdict: any but a beat. Never waits for anybody."""
        return self._weighty

    def publish(self, name: str, id_: str, cluster: str) -> None:
        with self._news:
            self._seq += 1
            self._weighty = self._weighty if name == BEAT else self._seq
            self._feed.append(Change(self._seq, name, id_, cluster))
            self._news.notify_all()
            bells = tuple(self._bells.values()) if name != BEAT else ()
        for ring in bells:
            ring()

    @contextmanager
    def ringing(self, ring: Callable[[], object]) -> Iterator[None]:
        """``ring`` is called, from the thread that published, after each change but beats. It must not block."""
        with self._news:
            number = max(self._bells, default=0) + 1
            self._bells[number] = ring
        try:
            yield
        finally:
            with self._news:
                self._bells.pop(number)

    def wait(self, after: int, timeout_s: float) -> list[Change]:
        """Changes numbered above ``after``, oldest first; an empty list after ``timeout_s`` without news."""
        with self._news:
            self._news.wait_for(lambda: self._seq > after, timeout_s)
            return [change for change in self._feed if change.seq > after]

    def nudge(self) -> None:
        """Something was committed here: follow now rather than at the next poll."""
        self._nudged.set()

    def until_nudged(self, timeout_s: float) -> None:
        self._nudged.wait(timeout_s)
        self._nudged.clear()

    def follow(self, session: Session) -> bool:
        """Read what the store has since last time and publish it. True when there was news."""
        newest = incidents.newest_entry(session)
        if self._entry is None:
            self._entry = newest
        rows = incidents.entries_after(session, self._entry) if newest > self._entry else ()
        news = [*self._filled(session), *rows]
        seen = dict.fromkeys((row.cluster, str(row.incident_id)) for row in news)
        for cluster, incident_id in seen:
            self.publish("incident", incident_id, cluster)
        self._move_on(rows)
        return self._follow_beats(session) or bool(news)

    def _filled(self, session: Session) -> Sequence[Entry]:
        """Entries that a slower transaction committed after higher ones had been read."""
        now = time.monotonic()
        self._holes = {number: until for number, until in self._holes.items() if until > now}
        rows = incidents.entries_by_id(session, tuple(self._holes)) if self._holes else ()
        for row in rows:
            self._holes.pop(row.id or 0)
        return rows

    def _move_on(self, rows: Sequence[Entry]) -> None:
        until = time.monotonic() + HOLE_S
        for row in rows:
            number, before = row.id or 0, self._entry or 0
            self._holes |= dict.fromkeys(range(before + 1, number), until)
            self._entry = number

    def _follow_beats(self, session: Session) -> bool:
        beat: datetime | None = session.exec(select(func.max(col(Beat.at)))).one()
        if beat is None or beat == self._beat:
            return False
        self._beat = beat
        self.publish(BEAT, "", "")
        return True
