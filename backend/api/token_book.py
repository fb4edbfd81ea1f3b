"""Which tokens hold, in memory: a request with a token costs one keyed hash and no question to the database."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import date, datetime

from sqlalchemy.exc import OperationalError

from backend.auth import Caller, as_caller
from backend.registry import Parts
from backend.security import tokens
from backend.store import people
from backend.store.engine import StoreError

#: A token that was made or revoked by another process (the command line) counts so or not after this, in seconds. In
#: the process that did it, at once.
OLDEST_S = 2.0
#: While the database is away what was known holds this long; then nobody is let in.
AWAY_S = 300.0
#: When each token was last in use is written down this often.
WRITE_S = 60.0

log = logging.getLogger("watchkeeper.tokens")


class TokenBook:
    """Thread-safe. ``find`` never blocks; call ``read`` from a thread where ``is_fresh`` says no."""

    def __init__(self, tick: Callable[[], float] = time.monotonic) -> None:
        self._tick = tick
        self._lock = threading.Lock()
        self._held: dict[str, Caller] = {}
        self._mark: tuple[int, int, int] | None = None
        self._read_at = -AWAY_S
        self._again_at = -AWAY_S
        self._written_at = tick()
        self._used: dict[int, datetime] = {}
        self._day: date | None = None
        self._seen: set[tuple[int, str]] = set()

    def is_fresh(self) -> bool:
        now = self._tick()
        return now - self._read_at < OLDEST_S or now < self._again_at

    def is_ageing(self) -> bool:
        """Half its time is over: who cannot wait has it read anew now, beside their work."""
        return self._tick() - self._read_at > OLDEST_S / 2

    def forget(self) -> None:
        """A token was made or revoked here: the next request reads anew."""
        self._read_at = self._again_at = min(self._read_at, self._tick() - OLDEST_S)

    def find(self, bearer: str, now: datetime, key: bytes) -> Caller | None:
        """The program that holds this token. The search is by hash: its time tells nothing of other tokens."""
        found = self._held.get(tokens.hash_token(bearer, key))
        if found is None or (found.expires_at is not None and found.expires_at <= now):
            return None
        self._used[found.token_id] = now
        return found

    def read(self, parts: Parts, *, anew: bool = False) -> None:
        """Look whether anything changed, and if so read every live token; ``anew`` also where it is fresh, because a
        token that is not known may have been made just now. Raises what the store raises, once what is known is too
        old."""
        with self._lock:
            if not anew and self.is_fresh():
                return
            now, began = parts.clock.now(), self._tick()
            try:
                with parts.store.read() as session:
                    mark = people.tokens_mark(session)
                    if mark != self._mark:
                        rows = people.live_tokens(session, now)
                        self._held = {row.token_hash: as_caller(row) for row in rows}
                        self._mark = mark
            except (OperationalError, StoreError):
                if began - self._read_at >= AWAY_S:
                    raise
                log.warning("the store is away; tokens count as they were last known")
                self._again_at = self._tick() + OLDEST_S
                return
            self._read_at = began

    def first_today(self, token_id: int, route: str, day: date) -> bool:
        """True once a day for a token and a route of this process. Asked by the event loop alone."""
        if self._day != day:
            self._day, self._seen = day, set()
        fresh = (token_id, route) not in self._seen
        self._seen.add((token_id, route))
        return fresh

    def due(self) -> bool:
        """Time to write down which tokens were in use."""
        return bool(self._used) and self._tick() - self._written_at >= WRITE_S

    def write(self, parts: Parts) -> None:
        """Keep when each token was last in use; a store that is away loses that, and nothing else."""
        self._written_at = self._tick()
        used, self._used = self._used, {}
        try:
            with parts.store.write() as session:
                people.touch_tokens(session, used)
        except (OperationalError, StoreError):
            log.warning("the store is away; when tokens were last in use is not kept")
