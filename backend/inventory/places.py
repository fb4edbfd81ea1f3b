"""Nodes: who is who, what their cluster says of them, and which of them have left."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from backend.clock import unix, utc
from backend.facts import Batch, NodeFacts
from backend.inventory.journal import Journal, Missing, Place
from backend.model.cluster import Node

#: What schedulers, shells and pages would trip over names no node.
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,254}")
#: A node has left when each source that used to list it left it out of so many lists, over so long, and nothing was
#: heard of it meanwhile: a scheduler that is being configured anew, or restarted, must not empty the fleet.
GONE_LISTS, GONE_S = 10, 3600.0
#: A list that lacks more than half of the nodes is a mistake until it has been the same for this long.
GONE_MANY_S = 24 * 3600.0
#: slurmd derives the boot time from its uptime, so it may jitter by seconds; a real reboot takes longer, in s.
BOOT_JITTER_S = 30.0


class Places:
    """Every node that was ever met. Slots are given once; one that left keeps its own, and comes back to it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._places: dict[str, Place] = {}
        self._short: dict[str, str] = {}
        self._boots: list[tuple[Place, datetime]] = []

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places.values())

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> Place:
        return self._places[name]

    def known(self, host: str) -> Place | None:
        """A node by its name, or by the short form of it: exporters print gpu-7.site.org where Slurm prints gpu-7."""
        place = self._places.get(host)
        if place is None and host:
            name = self._short.get(host.partition(".")[0], "")
            if name and ("." not in host or "." not in name):
                place = self._places.get(name)
        return place

    def met(self, host: str, now: datetime) -> Place | None:
        """A node by its name, made where it is new; None for what is no name."""
        place = self.known(host)
        if place is not None:
            return place
        if not _HOST.fullmatch(host):
            self._journal.rejected["host names with spaces, control characters or over 255 characters"] += 1
            return None
        place = self._places[host] = Place(len(self._places), host, now, 0.0)
        self._short.setdefault(host.partition(".")[0], host)
        self._journal.note(place, rows_moved=True)
        return place

    def readable(self, host: str) -> str:
        """A host that is not here, or no more, as it may be written; "" for what is no name."""
        return host if _HOST.fullmatch(host) else ""

    def hear(self, place: Place | None, now: datetime) -> None:
        if place is not None:
            place.heard = max(place.heard, unix(now))

    # --- what is said of a node -------------------------------------------------------------------------------------

    def describe(self, facts: NodeFacts, source: str, now: datetime) -> Place | None:
        """One node as a scheduler (``read_at`` above 0) or a topology file describes it; what is left out stays."""
        place = self.met(facts.name, now)
        if place is None:
            return None
        self.hear(place, now)
        before = (place.rack, place.switch, place.model)
        for name in ("rack", "switch", "clique", "model", "partitions"):
            if value := getattr(facts, name):
                setattr(place, name, value)
        if facts.labels:
            place.labels = dict(facts.labels)
        if facts.gpus:
            place.expected_gpus = len(facts.gpus)
        place.expected_gpus = max(place.expected_gpus, facts.expected_gpus)
        if facts.read_at > 0:
            self._state(place, facts)
            if source not in place.listed_by:
                place.listed_by = tuple(sorted({*place.listed_by, source}))
        self._journal.note(place, rows_moved=False, redraw=before != (place.rack, place.switch, place.model))
        return place

    def _state(self, place: Place, facts: NodeFacts) -> None:
        said = (facts.state, tuple(sorted(facts.flags)), facts.reason, facts.reason_owner)
        if said != (place.state, place.flags, place.reason, place.reason_owner) or place.state_at is None:
            place.state, place.flags, place.reason, place.reason_owner = said
            place.state_at = utc(facts.read_at)
        boot_at = utc(facts.boot_at) if facts.boot_at else None
        known = place.boot_at
        if boot_at is not None and (known is None or abs((boot_at - known).total_seconds()) > BOOT_JITTER_S):
            self._boots.append((place, boot_at))
            place.boot_at = boot_at

    def take_boots(self) -> list[tuple[Place, datetime]]:
        """Boots that were seen since the last call."""
        boots, self._boots = self._boots, []
        return boots

    # --- who is listed ----------------------------------------------------------------------------------------------

    def listed(self, batch: Batch) -> datetime | None:
        """When a scheduler's list of its nodes was read; None where the batch is none. A node that it no longer names
        is in a state that nobody knows.

        Half a list is a read of some nodes, not the news that the others are gone.
        """
        told = self._told(batch)
        before = [place for place in self if place.state_at is not None and place.retired_at is None]
        if not told or batch.listing is False or (batch.listing is None and len(told) * 2 < len(before)):
            return None
        read_at = utc(max(facts.read_at for facts in batch.nodes))
        for place in before:
            elsewhere = set(place.listed_by) - {batch.source}
            if place not in told and place.state != "unknown" and not elsewhere:
                place.state, place.flags, place.reason, place.reason_owner = "unknown", (), "", ""
                place.state_at = read_at
                self._journal.note(place, rows_moved=False)
        return read_at

    def left(self, batch: Batch, now: datetime) -> list[Place]:
        """Nodes that are found to have left the fleet by this list, see GONE_LISTS."""
        told, at = self._told(batch), unix(now)
        ours = [place for place in self if batch.source in place.listed_by and place.retired_at is None]
        patience = GONE_S if len(told) * 2 >= len(ours) else GONE_MANY_S
        for place in ours:
            if place in told:
                place.missing.pop(batch.source, None)
            else:
                missing = place.missing.setdefault(batch.source, Missing(at))
                missing.lists += 1
        gone = [place for place in ours if place not in told and self._is_gone(place, at, patience)]
        for place in gone:
            place.retired_at = now
            self._journal.note(place, rows_moved=True)
        return gone

    def back(self, place: Place) -> datetime | None:
        """A node that had left is here again, in its old slot; when it had left, None where it never had."""
        since, place.retired_at = place.retired_at, None
        place.missing.clear()
        if since is not None:
            self._journal.note(place, rows_moved=True)
        return since

    def _told(self, batch: Batch) -> set[Place]:
        found = (self.known(facts.name) for facts in batch.nodes if facts.read_at > 0)
        return {place for place in found if place is not None}

    @staticmethod
    def _is_gone(place: Place, at: float, patience: float) -> bool:
        absent = [place.missing.get(source) for source in place.listed_by]
        long = all(m is not None and m.lists >= GONE_LISTS and at - m.since >= patience for m in absent)
        return long and at - place.heard >= GONE_S

    # --- rows -------------------------------------------------------------------------------------------------------

    def restore(self, row: Node, cluster: str) -> bool:
        """Take in a row of the store. True where the node is new to this process."""
        place = self._places.get(row.name)
        new = place is None
        if place is None:
            place = self._places[row.name] = Place(len(self._places), row.name, row.first_seen, unix(row.last_seen))
            self._short.setdefault(row.name.partition(".")[0], row.name)
            self._journal.epoch += 1
        for name in ("rack", "switch", "clique", "model", "expected_gpus", "state", "reason", "reason_owner"):
            setattr(place, name, getattr(row, name))
        place.flags, place.boot_at, place.state_at = tuple(row.flags), row.boot_at, row.state_at
        place.partitions, place.labels, place.listed_by = tuple(row.partitions), dict(row.labels), tuple(row.listed_by)
        place.first_seen, place.retired_at = row.first_seen, row.retired_at
        place.saved = place.row(cluster)
        return new
