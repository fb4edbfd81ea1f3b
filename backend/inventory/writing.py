"""What of nodes and cards is written: rows that changed, where they stood from when on, and who fell silent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlmodel import Session

from backend.clock import utc
from backend.inventory.journal import Card, Part, Place, Row
from backend.store import cluster as rows
from backend.store import spans

#: A node counts as silent when others were heard this much later; twice the usual poll.
SILENT_AFTER_S = 30.0
#: How often at most the time of the last sound is written.
HEARD_EVERY_S = 5.0


def write_places(session: Session, cluster: str, touched: Iterable[Place], now: datetime) -> None:
    """Nodes whose rows changed, and where they stand from now on if that changed."""
    seats = {place.name: place.seat for place in touched if _seat(place.saved) != place.seat or place.saved is None}
    changed = _unsaved(touched, cluster)
    rows.put_nodes(session, [row | {"last_seen": now} for row in changed])
    spans.seat_nodes(session, cluster, seats, now)


def _seat(saved: Mapping[str, Any] | None) -> tuple[str, str, str]:
    return (saved["rack"], saved["switch"], saved["clique"]) if saved else ("", "", "")


def write_cards(
    session: Session, cluster: str, touched: Sequence[Card], gone: Mapping[str, str], now: datetime
) -> None:
    """Cards whose rows changed, and where they sit from now on. ``gone``: ids under which they are known no more."""
    rows.drop_devices(session, cluster, gone)
    spans.rename_devices(session, cluster, gone)
    changed = _unsaved(touched, cluster)
    ids = {row["id"] for row in changed}
    rows.put_devices(session, [row | {"last_seen": now} for row in changed])
    spans.seat_devices(session, cluster, {card.id: card.seat for card in touched if card.id in ids}, now)


def write_parts(session: Session, cluster: str, touched: Iterable[Part], now: datetime) -> None:
    """Ports, mounts and calls that are new; they are not followed over places, for their place is what they are."""
    rows.put_devices(session, [row | {"last_seen": now} for row in _unsaved(touched, cluster)])


def _unsaved(ones: Iterable[Row], cluster: str) -> list[dict[str, Any]]:
    """Rows that differ from what was last written; they count as written from now on."""
    changed: list[dict[str, Any]] = []
    for one in ones:
        row = one.row(cluster)
        if row != one.saved:
            one.saved = row
            changed.append(row)
    return changed


class Sounds:
    """One mark for all that were heard lately, one for each node that fell silent meanwhile."""

    def __init__(self, cluster: str, hears: bool) -> None:
        self._cluster = cluster
        self._hears = hears
        self._silent: set[str] | None = None
        self._written = 0.0

    def restore(self, silent: set[str]) -> None:
        self._silent = silent

    def unsure(self) -> None:
        """Which nodes are noted as silent must be read again."""
        self._silent = None

    def distrust(self) -> None:
        self._silent, self._written = None, 0.0

    def save(self, session: Session, places: Sequence[Place]) -> None:
        latest = max((place.heard for place in places), default=0.0)
        if not self._hears or (latest - self._written < HEARD_EVERY_S and self._silent is not None):
            return
        limit = latest - SILENT_AFTER_S
        quiet = [p for p in places if p.heard < limit and p.retired_at is None]
        silent = {p.name: utc(p.heard) if p.heard else p.first_seen for p in quiet}
        before = self._silent if self._silent is not None else set(rows.silent(session, self._cluster))
        rows.mark_sounds(session, self._cluster, utc(latest) if latest else None, silent, before)
        self._silent, self._written = set(silent), latest
