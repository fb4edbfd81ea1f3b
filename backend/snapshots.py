"""Keeps one verdict snapshot per cluster, made anew when something changed or it grew old."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from backend.answers.ready import Ready
from backend.answers.verdicts import Snapshot, snapshot
from backend.store.engine import StoreError
from backend.watch import Watch

#: Changes that another process committed are followed twice a second; beyond this age nobody needs to be trusted.
OLDEST_S = 1.0
#: While the database is away what was known is answered with a mark, and no new question is put to it for this long.
AWAY_S = 2.0

log = logging.getLogger("watchkeeper.snapshots")


class Kept(NamedTuple):
    """``change``: the feed's number when it was made. ``at``: monotonic seconds."""

    ready: Ready
    change: int
    at: float


class Snapshots:
    """Thread-safe. ``forget`` after a write of this process, so that whoever wrote reads what was written."""

    def __init__(self, oldest_s: float = OLDEST_S, tick: Callable[[], float] = time.monotonic) -> None:
        self._oldest_s = oldest_s
        self._tick = tick
        self._lock = threading.Lock()
        self._kept: dict[str, Kept] = {}
        self._last: dict[str, Ready] = {}

    def fresh(self, watch: Watch) -> Snapshot | None:
        """The kept snapshot while it still holds; never touches the database."""
        kept = self.ready(watch)
        return kept.seen if kept is not None else None

    def ready(self, watch: Watch) -> Ready | None:
        """As ``fresh``, ready to be asked."""
        kept = self._kept.get(watch.cluster)
        if kept is None or kept.change != watch.changes.weighty or self._tick() - kept.at > self._oldest_s:
            return None
        return kept.ready

    def newest(self, watch: Watch) -> tuple[Ready | None, bool]:
        """For those who ask too often to wait: what is at hand and not too old, and whether it is time for the next.
        A change of which this process heard a moment ago may not be in it yet."""
        kept = self._kept.get(watch.cluster)
        if kept is None:
            return None, True
        age_s = self._tick() - kept.at
        due = kept.change != watch.changes.weighty or age_s > self._oldest_s / 2
        return (kept.ready if age_s <= self._oldest_s else None), due

    def of(self, watch: Watch) -> Snapshot:
        return self.made(watch).seen

    def made(self, watch: Watch) -> Ready:
        """A snapshot that holds now; one thread makes it, the others wait for that one.

        While the database is away: the last one, judged at the time of now and marked stale. Raises what the store
        raises where there is none.
        """
        with self._lock:
            kept = self.ready(watch)
            return kept if kept is not None else self._renewed(watch)

    def renew(self, watch: Watch) -> None:
        """Make the next one before the last grew too old; at once where another thread is at it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self.newest(watch)[1]:
                self._renewed(watch)
        finally:
            self._lock.release()

    def _renewed(self, watch: Watch) -> Ready:
        change, began = watch.changes.weighty, self._tick()
        try:
            with watch.store.read() as session:
                made = Ready(snapshot(session, watch.cluster, watch.clock.now()))
            at = began
        except (OperationalError, PoolTimeout, StoreError):
            last = self._last.get(watch.cluster)
            if last is None:
                raise
            log.warning("%s: the store is away; verdicts are as they were last known", watch.cluster)
            made, at = Ready(last.seen.later(watch.clock.now())), began + AWAY_S - self._oldest_s
        self._kept[watch.cluster] = Kept(made, change, at)
        self._last[watch.cluster] = made
        return made

    def forget(self, cluster: str) -> None:
        with self._lock:
            self._kept.pop(cluster, None)
