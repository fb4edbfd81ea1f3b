"""Of several processes on one database one watches a cluster; the others stand by, and one takes over when it dies."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

from backend import pipeline, proposals
from backend.clock import unix
from backend.store import findings, leases
from backend.watch import RING, Watch

log = logging.getLogger("watchkeeper.leading")

#: Name of the file that holds a replica's own name, in its data folder.
REPLICA = "replica"
#: How often the lease is renewed, or asked for, in seconds.
EVERY_S = 1.0
#: How often one that stands by reads what the others learnt of nodes and jobs, in seconds.
REREAD_S = 5.0
#: Ticks kept by one that stands by, where the leader saves nothing: 25 min at 15 s.
MOST_TICKS = 100


def replica(folder: Path) -> str:
    """The name of the replica that owns this data folder, made at its first start. Raises OSError.

    Only one process works with a data folder (``commands.alone``), so a lease under this name is nobody else's.
    """
    path = folder / REPLICA
    try:
        name = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        name = ""
    if not name:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = uuid.uuid4().hex
        path.write_text(name + "\n", encoding="ascii")
    return name


class Lead:
    """The lease of one cluster, as one process sees it. ``begin`` and ``end``: what only a leader does."""

    def __init__(
        self, watch: Watch, holder: str, length_s: float, begin: Callable[[], None], end: Callable[[], None]
    ) -> None:
        self._watch = watch
        self._holder = holder
        self._length_s = length_s
        self._begin = begin
        self._end = end
        self._reread_at = 0.0
        self.term = 0

    def step(self) -> bool:
        """Keep the lease, or ask for it, or stand by."""
        watch = self._watch
        if self.term and not self._kept():
            log.warning("%s: another process watches now; this one stands by", watch.cluster)
            self._lose()
        if not self.term:
            with watch.store.write() as session:
                now = watch.clock.now()
                term = leases.take(session, watch.cluster, self._holder, watch.who, self._length_s, now)
            if term:
                try:
                    self._win(term)
                finally:
                    if not self.term:  # nothing was begun: another may do better
                        self._hand_back(term)
            else:
                self._stand_by()
        return False

    def give_up(self) -> None:
        """This process ends: stop what a leader does, then let the next one begin at once."""
        if not self.term:
            return
        term = self.term
        self._lose()
        self._hand_back(term)

    def _hand_back(self, term: int) -> None:
        with self._watch.store.write() as session:
            leases.give_up(session, self._watch.cluster, term, self._watch.clock.now())

    def _kept(self) -> bool:
        watch = self._watch
        with watch.store.write() as session:
            return leases.keep(session, watch.cluster, self.term, self._length_s, watch.clock.now())

    def _win(self, term: int) -> None:
        """What the last leader left is loaded before the next tick is judged: ``stale`` asks for it."""
        watch = self._watch
        self._reread()
        watch.follow_fleet()
        watch.fence = partial(leases.still, cluster=watch.cluster, term=term)
        watch.stale = True
        proposals.reconsider(watch)
        self._begin()
        self.term = term  # last: a lease that nothing was begun under is handed back
        if term > 1:
            log.info("%s: this process watches now (term %d)", watch.cluster, term)

    def _lose(self) -> None:
        self.term = 0
        self._end()

    def _stand_by(self) -> None:
        """Close ticks as the leader does, and keep those that its saved states have not seen."""
        watch = self._watch
        now = unix(watch.clock.now())
        if abs(now - self._reread_at) >= REREAD_S:
            self._reread()
            self._reread_at = now
        watch.follow_fleet()
        with watch.store.read() as session:
            saved = findings.saved_at(session, watch.cluster, RING)
        with watch.lock:
            ticks = list(watch.ring.due(now))
        for tick in ticks:
            pipeline.keep(watch, tick)
        watch.coming.extend(ticks)
        while watch.coming and (watch.coming[0].at <= saved or len(watch.coming) > MOST_TICKS):
            watch.coming.popleft()

    def _reread(self) -> None:
        watch = self._watch
        with watch.lock, watch.store.read() as session:
            watch.inventory.load(session)
