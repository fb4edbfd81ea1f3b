"""When nodes were out, as we saw their scheduler say it: the spans beside those that others tell."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from backend.clock import unix
from backend.facts import OutageFacts
from backend.inventory.journal import Place

#: The source of a span that we saw ourselves.
OBSERVED = "observed"
#: Spans that ended, kept to be written again should a transaction be rolled back.
MOST_RECENT = 5000


class Outs:
    """One open span a node at most; another reason or another owner begins a new one."""

    def __init__(self) -> None:
        self._open: dict[str, OutageFacts] = {}
        self._recent: deque[OutageFacts] = deque(maxlen=MOST_RECENT)
        self._changed: dict[tuple[str, float], OutageFacts] = {}

    def restore(self, found: Iterable[OutageFacts]) -> None:
        """Begin with the open spans of the store."""
        self._open = {one.node: one for one in found if one.end is None and one.source == OBSERVED}

    def watch(self, place: Place, at: float) -> None:
        """Follow one node, read at ``at`` (unix s). A state that nobody knows says nothing."""
        if place.state == "unknown" and "DRAIN" not in place.flags:
            return
        known, now = self._open.get(place.name), _word(place)
        if known is not None and (known.state, known.reason, known.user) == (now, place.reason, place.reason_owner):
            return
        if known is not None:
            self._end(known, at)
        if now:
            start = max(unix(place.state_at) if place.state_at is not None else at, known.start if known else 0.0)
            self._put(OutageFacts(place.name, start, None, now, place.reason, place.reason_owner, OBSERVED))

    def leave(self, name: str, at: float) -> None:
        """A node that left the fleet is out of nothing any more."""
        if known := self._open.get(name):
            self._end(known, at)

    def take(self) -> list[OutageFacts]:
        """What is to be written."""
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def distrust(self) -> None:
        self._changed = {(one.node, one.start): one for one in (*self._recent, *self._open.values())}

    def _put(self, one: OutageFacts) -> None:
        self._open[one.node] = one
        self._changed[(one.node, one.start)] = one

    def _end(self, one: OutageFacts, at: float) -> None:
        del self._open[one.node]
        ended = replace(one, end=max(at, one.start))
        self._recent.append(ended)
        self._changed[(one.node, one.start)] = ended


def _word(place: Place) -> str:
    if place.state in ("down", "error", "fail"):
        return place.state
    return "drain" if "DRAIN" in place.flags else ""
