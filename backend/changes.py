"""What changed, for people who wait: a numbered feed behind SSE and long-poll.

The feed follows the timeline rows and beats that every process can see, so that a page served by an API process learns
of a commit in the observe process. ``nudge`` makes the follower look at once in the process that committed.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session, col, func, select

from backend.model.system import Beat
from backend.store import incidents

#: Enough for a browser that slept a minute; one that slept longer reloads everything by itself.
KEPT = 2000


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
        self._news = threading.Condition()
        self._nudged = threading.Event()
        self._entry: int | None = None
        self._beat: datetime | None = None

    def latest(self) -> int:
        with self._news:
            return self._seq

    def publish(self, name: str, id_: str, cluster: str) -> None:
        with self._news:
            self._seq += 1
            self._feed.append(Change(self._seq, name, id_, cluster))
            self._news.notify_all()

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
        seen = dict.fromkeys((row.cluster, str(row.incident_id)) for row in rows)
        for cluster, incident_id in seen:
            self.publish("incident", incident_id, cluster)
        if rows:
            self._entry = rows[-1].id
        return self._follow_beats(session) or bool(rows)

    def _follow_beats(self, session: Session) -> bool:
        beat: datetime | None = session.exec(select(func.max(col(Beat.at)))).one()
        if beat is None or beat == self._beat:
            return False
        self._beat = beat
        self.publish("fleet", "", "")
        return True
