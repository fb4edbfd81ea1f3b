"""Nodes, devices, allocations: who ran where, and the Fleet that detectors see."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import event
from sqlmodel import Session

from backend.clock import unix, utc
from backend.facts import AttemptFacts, Batch, DeviceLabel, NodeFacts
from backend.model.cluster import Device, Node
from backend.store import cluster as rows
from backend.store.attempts import AttemptsNow, record_attempts
from detectors.fleet import FleetRow, draw
from detectors.kernel.lines import normal_pci
from detectors.model import Entity, Fleet

#: A node counts as silent when others were heard this much later; twice the usual poll.
SILENT_AFTER_S = 30.0
#: How often at most the time of the last sound is written.
HEARD_EVERY_S = 5.0
#: The metric that says whether an exporter answers; it speaks of nodes, and makes none.
UP = "node_up"
#: What is kept of a node, and of a card, beside what only concerns this process.
PLACE: tuple[str, ...] = ("name", "rack", "switch", "model", "expected_gpus", "state", "reason", "reason_owner")
PLACE += ("boot_at", "state_at", "first_seen", "retired_at")
CARD = ("id", "index", "pci", "model", "first_seen", "retired_at")

#: What schedulers, shells and pages would trip over names no node and no device.
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,254}")
_ID = re.compile(r"[!-~]{1,200}")


@dataclass(slots=True, eq=False)
class _Place:
    """One node, and the row it was last written as (None: not written)."""

    slot: int
    name: str
    first_seen: datetime
    heard: float
    rack: str = ""
    switch: str = ""
    model: str = ""
    expected_gpus: int = 0
    state: str = ""
    flags: tuple[str, ...] = ()
    reason: str = ""
    reason_owner: str = ""
    boot_at: datetime | None = None
    state_at: datetime | None = None
    retired_at: datetime | None = None
    saved: dict[str, Any] | None = None

    def row(self, cluster: str) -> dict[str, Any]:
        return {"cluster": cluster, **{name: getattr(self, name) for name in PLACE}, "flags": list(self.flags)}


@dataclass(slots=True, eq=False)
class _Card:
    """One GPU. ``label`` is what was last said of it, ``job`` what its exporter says it works for."""

    slot: int
    id: str
    place: _Place
    first_seen: datetime
    index: str = ""
    pci: str = ""
    model: str = ""
    job: str = ""
    retired_at: datetime | None = None
    label: DeviceLabel | None = None
    saved: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """``node/gpu3``; a card whose index now belongs to another goes by its address."""
        return f"{self.place.name}/{f'gpu{self.index}' if self.index else self.pci or self.id}"

    def row(self, cluster: str) -> dict[str, Any]:
        more = {"cluster": cluster, "kind": "gpu", "node": self.place.name}
        return more | {name: getattr(self, name) for name in CARD}


_Row = _Place | _Card


class Inventory:
    """What one cluster consists of and who runs on it: in memory, and as rows.

    Slots are given once and never again; a row that is gone keeps its slot, not live. ``rejected`` counts names that
    were not taken, by reason. ``hears``: telemetry comes to this process, so that it may say which nodes are silent.
    """

    def __init__(self, cluster: str, *, hears: bool = True) -> None:
        self.cluster = cluster
        self._hears = hears
        self.rejected: Counter[str] = Counter()
        self._places: dict[str, _Place] = {}
        self._short: dict[str, str] = {}
        self._cards: list[_Card] = []
        self._by_id: dict[str, _Card] = {}
        self._by_pci: dict[tuple[str, str], _Card] = {}
        self._by_index: dict[tuple[str, str], _Card] = {}
        self._work = AttemptsNow()
        self._renamed: dict[str, str] = {}
        self._old_ids: set[str] = set()
        self._to_drop: set[str] = set()
        self._touched: set[_Row] = set()
        self._silent: set[str] | None = None
        self._heard_written = 0.0
        self._epoch = 0
        self._fleet: Fleet | None = None

    def load(self, session: Session) -> None:
        """Take in what the store holds. Rows known already keep their slots; nothing is written."""
        known = {row.name: row for row in rows.nodes(session, self.cluster)}
        for row in sorted(known.values(), key=lambda row: (row.first_seen, row.name)):
            self._restore_place(row)
        for device in rows.devices(session, self.cluster):
            if device.kind == "gpu" and device.node in self._places:
                self._restore_card(device)
        self._silent = set(rows.silent(session, self.cluster))
        self._work.restore(rows.running(session, self.cluster))
        self._fleet = None

    def absorb(self, session: Session, batch: Batch, now: datetime) -> None:
        """Learn nodes, devices, labels, states and attempts from one read, and write the rows that changed, in the
        caller's transaction. Should that be rolled back, the next read writes them again."""
        event.listen(session, "after_rollback", self._distrust)
        self._catch_up(session, batch)
        for facts in batch.nodes:
            self._describe(facts, now)
        self._listed(session, batch)
        self._learn_series(batch, now)
        for raw in batch.events:
            if raw.host:
                self._hear(self._place(raw.host, now), now)
        changed = self._follow(batch, now)
        self._save(session, changed, now)

    def _catch_up(self, session: Session, batch: Batch) -> None:
        """Nodes that another process met first: what it wrote of them is taken in, not written over; silence too."""
        named = {f.name for f in batch.nodes} | {e.host for e in batch.events} | {s.label.node for s in batch.series}
        strange = {name for name in named.union(*(a.nodes for a in batch.attempts)) if name and not self._known(name)}
        places, cards = rows.met(session, self.cluster, strange | {name.partition(".")[0] for name in strange})
        for row in places:
            self._restore_place(row)
        for device in cards:
            if device.kind == "gpu" and device.node in self._places:
                self._restore_card(device)

    @property
    def fleet(self) -> Fleet:
        """The fleet of now. ``epoch`` rises when rows come or go; a job that starts makes a new Fleet of the same."""
        if self._fleet is None:
            self._fleet = self._draw()
        return self._fleet

    def take_renamed(self) -> dict[str, str]:
        """Old id to new id of devices that got a better one since the last call."""
        renamed, self._renamed = self._renamed, {}
        return renamed

    def slot(self, label: DeviceLabel) -> int | None:
        """The row of a label: by UUID or serial, else by place on its node. None for one that is not known."""
        if label.axis == "node":
            place = self._known(label.node)
            return place.slot if place else None
        if label.axis != "gpu":
            return None
        card = self._by_id.get(label.uuid) or self._at_place(label.node, label.pci, label.index)
        return card.slot if card else None

    def entity(self, host: str, pci: str = "", job: str = "") -> Entity:
        """The GPU at ``pci`` of a host, else the host, else the job, else the cluster."""
        place = self._known(host)
        name = place.name if place else host
        card = self._by_pci.get((name, normal_pci(pci))) if pci else None
        if card is not None:
            return Entity(self.cluster, "gpu", card.id, card.name, name)
        if name:
            return Entity(self.cluster, "node", name, name, name)
        if job:
            return Entity(self.cluster, "job", job, f"job:{job}")
        return Entity(self.cluster, "cluster", self.cluster, f"cluster:{self.cluster}")

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _known(self, host: str) -> _Place | None:
        """A node by its name, or by the short form of it: exporters print gpu-7.site.org where Slurm prints gpu-7."""
        place = self._places.get(host)
        if place is None and host:
            name = self._short.get(host.partition(".")[0], "")
            if name and ("." not in host or "." not in name):
                place = self._places.get(name)
        return place

    def _place(self, host: str, now: datetime) -> _Place | None:
        """A node by its name, made where it is new; None for what is no name."""
        place = self._known(host)
        if place is not None:
            return place
        if not _HOST.fullmatch(host):
            self.rejected["host names with spaces, control characters or over 255 characters"] += 1
            return None
        place = self._places[host] = _Place(len(self._places), host, now, 0.0)
        self._short.setdefault(host.partition(".")[0], host)
        self._changed(place, rows_moved=True)
        return place

    def _hear(self, place: _Place | None, now: datetime) -> None:
        if place is not None:
            place.heard = max(place.heard, unix(now))

    def _describe(self, facts: NodeFacts, now: datetime) -> None:
        """One node as a scheduler (``read_at`` above 0) or a topology file describes it; what is left out stays."""
        place = self._place(facts.name, now)
        if place is None:
            return
        self._hear(place, now)
        before = (place.rack, place.model)
        for name in ("rack", "switch", "model"):
            if value := getattr(facts, name):
                setattr(place, name, value)
        if facts.gpus:
            place.expected_gpus = len(facts.gpus)
        place.expected_gpus = max(place.expected_gpus, facts.expected_gpus)
        if facts.read_at > 0:
            self._state(place, facts)
        for gpu in facts.gpus:
            index = str(gpu.index) if gpu.index >= 0 else ""
            label = DeviceLabel("gpu", place.name, gpu.uuid, gpu.pci, index, gpu.model)
            self._learn_card(label, now, exporter=False)
        self._changed(place, rows_moved=False, redraw=before != (place.rack, place.model))

    def _state(self, place: _Place, facts: NodeFacts) -> None:
        said = (facts.state, tuple(sorted(facts.flags)), facts.reason, facts.reason_owner)
        boot_at = utc(facts.boot_at) if facts.boot_at else place.boot_at
        if said != (place.state, place.flags, place.reason, place.reason_owner) or place.state_at is None:
            place.state, place.flags, place.reason, place.reason_owner = said
            place.state_at = utc(facts.read_at)
        place.boot_at = boot_at

    def _listed(self, session: Session, batch: Batch) -> None:
        """A scheduler's list of its nodes: one that it no longer names is in a state that nobody knows.

        Half a list is a read of some nodes, not the news that the others are gone.
        """
        told = {self._known(facts.name) for facts in batch.nodes if facts.read_at > 0} - {None}
        before = [place for place in self._places.values() if place.state_at is not None]
        if not told or len(told) * 2 < len(before):
            return
        read_at = utc(max(facts.read_at for facts in batch.nodes))
        for place in before:
            if place not in told and place.state != "unknown":
                place.state, place.flags, place.reason, place.reason_owner = "unknown", (), "", ""
                place.state_at = read_at
                self._changed(place, rows_moved=False)
        rows.mark(session, self.cluster, rows.SCHEDULER, read_at)

    # --- devices ----------------------------------------------------------------------------------------------------

    def _learn_series(self, batch: Batch, now: datetime) -> None:
        labels = {id(one.label): one.label for one in batch.series if one.metric != UP}
        for label in labels.values():
            if label.axis == "node":
                self._hear(self._place(label.node, now), now)
            elif label.axis == "gpu":
                card = self._by_id.get(label.uuid)
                if card is None or card.label != label:
                    card = self._learn_card(label, now, exporter=True)
                self._hear(card.place if card else None, now)
        for one in batch.series:
            if one.metric == UP and one.values.size and one.values[-1] > 0:
                self._hear(self._known(one.label.node), now)

    def _learn_card(self, label: DeviceLabel, now: datetime, *, exporter: bool) -> _Card | None:
        """The card that a label speaks of, made or corrected. None where it names none, or a place that is no host."""
        place = self._place(label.node, now) if label.node else None
        uuid, pci = label.uuid if _ID.fullmatch(label.uuid) else "", normal_pci(label.pci)
        if label.uuid and not uuid:
            self.rejected["device ids with spaces, control characters or over 200 characters"] += 1
        card = self._by_id.get(uuid) or (self._at_place(place.name, pci, label.index) if place else None)
        if card is not None and uuid and card.id != uuid:
            card = self._better_id(card, uuid) if card.pci == pci and pci else None
        if card is None:
            if place is None or not (uuid or pci):
                return None
            card = self._new_card(uuid or f"pci:{place.name}:{pci}", place, now)
        self._correct(card, place, pci, label, now, exporter=exporter)
        return card

    def _at_place(self, node: str, pci: str, index: str) -> _Card | None:
        place = self._known(node)
        if place is None:
            return None
        if pci:
            return self._by_pci.get((place.name, normal_pci(pci)))
        return self._by_index.get((place.name, index)) if index else None

    def _new_card(self, id_: str, place: _Place, now: datetime) -> _Card:
        card = _Card(len(self._cards), id_, place, now)
        self._cards.append(card)
        self._by_id[id_] = card
        self._changed(card, rows_moved=True)
        return card

    def _better_id(self, card: _Card, uuid: str) -> _Card | None:
        """A card known by its address shows its UUID: the same card. One with another UUID was taken out: None."""
        if not card.id.startswith("pci:"):
            return None
        self._renamed[card.id] = uuid
        self._old_ids.add(card.id)
        self._to_drop.add(card.id)
        del self._by_id[card.id]
        card.id, card.saved = uuid, None
        self._by_id[uuid] = card
        self._changed(card, rows_moved=True)
        return card

    def _correct(
        self, card: _Card, place: _Place | None, pci: str, label: DeviceLabel, now: datetime, *, exporter: bool
    ) -> None:
        """Bring a card up to what a label says. An index that an exporter told stands against a topology file's."""
        before = (card.name, card.model, card.job)
        moved = card.retired_at is not None or (place is not None and place is not card.place)
        if moved:
            self._forget_place(card)
            card.place, card.retired_at = place or card.place, None
        if pci and self._by_pci.get((card.place.name, pci)) is not card:
            self._take_pci(card, pci, now)
        if label.index and (exporter or not card.index) and card.index != label.index:
            self._take_index(card, label.index)
        card.model = label.model or card.model
        card.job = label.job if exporter else card.job
        card.label = label if exporter else card.label
        self._changed(card, rows_moved=moved, redraw=before != (card.name, card.model, card.job))

    def _take_pci(self, card: _Card, pci: str, now: datetime) -> None:
        """Only one card can sit at an address; another one that was known there has been taken out."""
        other = self._by_pci.get((card.place.name, pci))
        if other is not None:
            self._forget_place(other)
            other.retired_at = other.retired_at or now
            self._changed(other, rows_moved=True)
        self._by_pci.pop((card.place.name, card.pci), None)
        card.pci = pci
        self._by_pci[(card.place.name, pci)] = card

    def _take_index(self, card: _Card, index: str) -> None:
        """The index moves on; the card that had it goes by its address from now on."""
        other = self._by_index.get((card.place.name, index))
        if other is not None and other is not card:
            other.index = ""
            self._changed(other, rows_moved=False, redraw=True)
        if self._by_index.get((card.place.name, card.index)) is card:
            del self._by_index[(card.place.name, card.index)]
        card.index = index
        self._by_index[(card.place.name, index)] = card

    def _forget_place(self, card: _Card) -> None:
        for known, key in ((self._by_pci, card.pci), (self._by_index, card.index)):
            if known.get((card.place.name, key)) is card:
                del known[(card.place.name, key)]
        card.index, card.label = "", None

    # --- work -------------------------------------------------------------------------------------------------------

    def _follow(self, batch: Batch, now: datetime) -> list[AttemptFacts]:
        """Attempts that are new or have changed since they were written."""
        told = [replace(a, nodes=self._hosts(a.nodes, now)) for a in batch.attempts]
        idle = {facts.name for facts in batch.nodes if facts.read_at > 0 and facts.state == "idle"}
        idle -= {facts.name for facts in batch.nodes if "COMPLETING" in facts.flags}
        changed = self._work.follow(told, idle, unix(now))
        self._fleet = None if changed else self._fleet
        return changed

    def _hosts(self, names: Iterable[str], now: datetime) -> tuple[str, ...]:
        places = [self._place(name, now) for name in names]
        return tuple(place.name for place in places if place is not None)

    # --- rows -------------------------------------------------------------------------------------------------------

    def _changed(self, row: _Row, *, rows_moved: bool, redraw: bool = False) -> None:
        self._touched.add(row)
        if rows_moved:
            self._epoch += 1
        if rows_moved or redraw:
            self._fleet = None

    def _save(self, session: Session, attempts: list[AttemptFacts], now: datetime) -> None:
        seen = {"last_seen": now}
        places = _unsaved((one for one in self._touched if isinstance(one, _Place)), self.cluster)
        cards = _unsaved((one for one in self._touched if isinstance(one, _Card)), self.cluster)
        rows.drop_devices(session, self.cluster, self._to_drop)
        rows.put_nodes(session, [row | seen for row in places])
        rows.put_devices(session, [row | seen for row in cards])
        record_attempts(session, self.cluster, attempts, now)
        self._touched.clear()
        self._to_drop.clear()
        self._save_sounds(session, now)

    def _save_sounds(self, session: Session, now: datetime) -> None:
        """One mark for all that were heard lately, one for each node that fell silent meanwhile."""
        latest = max((place.heard for place in self._places.values()), default=0.0)
        if not self._hears or (latest - self._heard_written < HEARD_EVERY_S and self._silent is not None):
            return
        limit = latest - SILENT_AFTER_S
        silent = {p.name: utc(p.heard) if p.heard else p.first_seen for p in self._places.values() if p.heard < limit}
        before = self._silent if self._silent is not None else set(rows.silent(session, self.cluster))
        rows.mark_sounds(session, self.cluster, utc(latest) if latest else None, silent, before)
        self._silent, self._heard_written = set(silent), latest

    def _distrust(self, _session: Session) -> None:
        """The transaction was rolled back: nothing that was written in it can be counted on."""
        everything: list[_Row] = [*self._places.values(), *self._cards]
        for row in everything:
            row.saved = None
        self._touched |= set(everything)
        self._work.distrust()
        self._to_drop |= self._old_ids
        self._silent, self._heard_written = None, 0.0

    def _restore_place(self, row: Node) -> None:
        place = self._places.get(row.name)
        if place is None:
            place = self._places[row.name] = _Place(len(self._places), row.name, row.first_seen, unix(row.last_seen))
            self._short.setdefault(row.name.partition(".")[0], row.name)
            self._epoch, self._silent = self._epoch + 1, None  # whether it is noted as silent must be read
        for name in ("rack", "switch", "model", "expected_gpus", "state", "reason", "reason_owner"):
            setattr(place, name, getattr(row, name))
        place.flags, place.boot_at, place.state_at = tuple(row.flags), row.boot_at, row.state_at
        place.first_seen, place.retired_at = row.first_seen, row.retired_at
        place.saved = place.row(self.cluster)

    def _restore_card(self, row: Device) -> None:
        card = self._by_id.get(row.id)
        if card is None:
            card = _Card(len(self._cards), row.id, self._places[row.node], row.first_seen)
            self._cards.append(card)
            self._by_id[row.id] = card
            self._epoch += 1
        self._forget_place(card)
        card.place, card.index, card.pci, card.model = self._places[row.node], row.index, row.pci, row.model
        card.first_seen, card.retired_at = row.first_seen, row.retired_at
        if card.retired_at is None:
            self._by_pci |= {(row.node, row.pci): card} if row.pci else {}
            self._by_index |= {(row.node, row.index): card} if row.index else {}
        card.saved = card.row(self.cluster)

    # --- the fleet --------------------------------------------------------------------------------------------------

    def _draw(self) -> Fleet:
        places = list(self._places.values())
        node_jobs, card_jobs = self._jobs(places)
        nodes = [
            FleetRow(p.name, p.name, p.slot, p.retired_at is None, job, model=p.model, rack=p.rack)
            for p, job in zip(places, node_jobs, strict=True)
        ]
        cards = [
            FleetRow(c.id, c.name, c.place.slot, c.retired_at is None, job, model=c.model, rack=c.place.rack)
            for c, job in zip(self._cards, card_jobs, strict=True)
        ]
        return draw(self.cluster, self._epoch, nodes, cards)

    def _jobs(self, places: list[_Place]) -> tuple[list[str], list[str]]:
        """The job of each node and of each card; "" where there is none, or several that cannot be told apart."""
        on: defaultdict[str, list[AttemptFacts]] = defaultdict(list)
        for attempt in self._work.held.values():
            for name in attempt.nodes:
                on[name].append(attempt)
        cards = Counter(card.place.name for card in self._cards if card.retired_at is None)
        of_nodes = [on[p.name][0].job if len(on[p.name]) == 1 else "" for p in places]
        return of_nodes, [_job_of(card, on[card.place.name], cards[card.place.name]) for card in self._cards]


def _job_of(card: _Card, here: list[AttemptFacts], cards: int) -> str:
    """A job that has all of a node's cards has this one; else its exporter may know, if the scheduler agrees."""
    if len(here) == 1 and (not here[0].gpus_per_node or here[0].gpus_per_node >= cards):
        return here[0].job
    agreed = any(attempt.job == card.job for attempt in here) if here else card.place.state != "idle"
    return card.job if agreed else ""


def _unsaved(ones: Iterable[_Row], cluster: str) -> list[dict[str, Any]]:
    """Rows that differ from what was last written; they count as written from now on."""
    changed: list[dict[str, Any]] = []
    for one in ones:
        row = one.row(cluster)
        if row != one.saved:
            one.saved = row
            changed.append(row)
    return changed
