"""What this process remembers of its ingest: how much is being taken in at once, and what became of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from backend.api.problems import Problem
from backend.ingest.labels import Targets
from backend.ingest.pushes import Pushes
from backend.pipeline import Accepted
from detectors.catalogue import Catalogue

#: Bodies worked on at once. One cluster takes them in one after another, so more would only wait and hold memory.
MOST_AT_ONCE = 16
RETRY_S = 2


class Intake:
    """Thread-safe. One for a process; the counts start at zero with it, as Prometheus expects of counters."""

    def __init__(self, most_at_once: int = MOST_AT_ONCE) -> None:
        self._most = most_at_once
        self._going = 0
        self._lock = threading.Lock()
        self._targets: dict[str, Targets] = {}
        self._pushes: dict[str, Pushes] = {}
        self.taken: Counter[tuple[str, str]] = Counter()
        self.dropped: Counter[tuple[str, str]] = Counter()
        self.refused: Counter[str] = Counter()

    @contextmanager
    def turn(self, route: str) -> Iterator[None]:
        """A place among those worked on. Raises Problem 429 with Retry-After when all are taken."""
        with self._lock:
            if self._going >= self._most:
                self.refused[route] += 1
                raise Problem(
                    429,
                    f"{self._going} bodies are being taken in already. Keep this one and send it again.",
                    headers={"Retry-After": str(RETRY_S)},
                )
            self._going += 1
        try:
            yield
        finally:
            with self._lock:
                self._going -= 1

    def targets(self, cluster: str) -> Targets:
        """What earlier pushes told about who stands behind which exporter."""
        with self._lock:
            return self._targets.setdefault(cluster, Targets())

    def pushes(self, cluster: str, catalogue: Catalogue) -> Pushes:
        """Which series is whose, as earlier pushes told it."""
        with self._lock:
            if cluster not in self._pushes:
                self._pushes[cluster] = Pushes(catalogue)
            return self._pushes[cluster]

    def count(self, cluster: str, accepted: Accepted) -> None:
        """Add what became of one body."""
        with self._lock:
            for what in ("events", "duplicates", "records", "samples"):
                self.taken[cluster, what] += getattr(accepted, what)
            for reason, lines in accepted.dropped.items():
                self.dropped[cluster, reason] += lines

    def counted(self) -> tuple[Mapping[tuple[str, str], int], Mapping[tuple[str, str], int], Mapping[str, int]]:
        """Taken by (cluster, what), dropped by (cluster, reason), refused with 429 by route."""
        with self._lock:
            return dict(self.taken), dict(self.dropped), dict(self.refused)
