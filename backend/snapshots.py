"""Keeps one verdict snapshot per cluster, made anew when something changed or it grew old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from backend.answers.verdicts import Snapshot, snapshot
from backend.watch import Watch

#: Changes that another process committed are followed twice a second; beyond this age nobody needs to be trusted.
OLDEST_S = 1.0


class Snapshots:
    """Thread-safe. ``forget`` after a write of this process, so that whoever wrote reads what was written."""

    def __init__(self, oldest_s: float = OLDEST_S, tick: Callable[[], float] = time.monotonic) -> None:
        self._oldest_s = oldest_s
        self._tick = tick
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Snapshot, int, float]] = {}

    def fresh(self, watch: Watch) -> Snapshot | None:
        """The kept snapshot while it still holds; never touches the database."""
        kept = self._kept.get(watch.cluster)
        if kept is None or kept[1] != watch.changes.latest() or self._tick() - kept[2] > self._oldest_s:
            return None
        return kept[0]

    def of(self, watch: Watch) -> Snapshot:
        """A snapshot that holds now; one thread makes it, the others wait for that one."""
        with self._lock:
            kept = self.fresh(watch)
            if kept is not None:
                return kept
            change, made_at = watch.changes.latest(), self._tick()
            with watch.store.read() as session:
                made = snapshot(session, watch.cluster, watch.clock.now())
            self._kept[watch.cluster] = (made, change, made_at)
            return made

    def forget(self, cluster: str) -> None:
        with self._lock:
            self._kept.pop(cluster, None)
