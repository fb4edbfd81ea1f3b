"""Nodes, devices, allocations: who ran where, and the Fleet that detectors see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import event
from sqlmodel import Session

from backend.clock import unix
from backend.facts import AttemptFacts, Batch, DeviceLabel, VersionFacts
from backend.inventory.cards import Cards
from backend.inventory.drawing import draw_fleet
from backend.inventory.journal import Card, Journal, Part, Place
from backend.inventory.ledger import Ledger
from backend.inventory.outs import OBSERVED, Outs
from backend.inventory.parts import MOST, Parts
from backend.inventory.places import Places
from backend.inventory.ports import ADDRESS, address, port_named
from backend.inventory.writing import Sounds, write_cards, write_parts, write_places
from backend.model.cluster import Device
from backend.store import cables, outages
from backend.store import cluster as rows
from backend.store.attempts import AttemptsNow, record_attempts
from backend.store.merging import OVER
from detectors.kernel.lines import normal_pci
from detectors.model import Entity, Fleet

#: The metric that says whether an exporter answers; it speaks of nodes, and makes none.
UP = "node_up"
#: The item of the ledger that is no version: when a node booted.
BOOT = "boot"
#: A node of an attempt that ended this long ago may have left the fleet since, in s.
PAST_S = 86_400.0


def labels_of(batch: Batch) -> Iterator[DeviceLabel]:
    """Whom the samples of a batch speak of, as far as that may be news."""
    yield from (one.label for one in batch.series if one.metric != UP)
    yield from batch.columns.labels if batch.columns is not None else ()


class Inventory:
    """What one cluster consists of and who runs on it: in memory, and as rows.

    Slots are given once and never again; a row that is gone keeps its slot, not live. ``rejected`` counts names that
    were not taken, by reason. ``hears``: telemetry comes to this process, so that it may say which nodes are silent.
    """

    def __init__(self, cluster: str, *, hears: bool = True) -> None:
        self.cluster = cluster
        self._journal = Journal()
        self._places = Places(self._journal)
        self._cards = Cards(self._journal, self._places)
        self._parts = Parts(self._journal, self._places)
        self._work = AttemptsNow()
        self._ledger, self._ledger_read = Ledger(cluster), False
        self._outs = Outs()
        self._sounds = Sounds(cluster, hears)
        self._left: list[str] = []
        self._told_left: list[str] = []
        self._fleet: Fleet | None = None

    @property
    def rejected(self) -> Counter[str]:
        return self._journal.rejected

    def load(self, session: Session) -> None:
        """Take in what the store holds. Rows known already keep their slots; nothing is written."""
        known = {row.name: row for row in rows.nodes(session, self.cluster)}
        for row in sorted(known.values(), key=lambda row: (row.first_seen, row.name)):
            self._places.restore(row, self.cluster)
        self._restore(rows.devices(session, self.cluster))
        self._sounds.restore(set(rows.silent(session, self.cluster)))
        self._work.restore(rows.running(session, self.cluster))
        self._outs.restore(outages.open_outages(session, self.cluster))
        self._ledger.load(session)
        self._ledger_read = True
        self._journal.stale = True

    def absorb(self, session: Session, batch: Batch, now: datetime) -> None:
        """Learn nodes, devices, labels, states, attempts and changes from one read, and write the rows that changed, in
        the caller's transaction. Should that be rolled back, the next read writes them again."""
        event.listen(session, "after_rollback", self._distrust)
        if not self._ledger_read:
            self._ledger.load(session)
            self._ledger_read = True
        self._catch_up(session, batch)
        self._told_left = []
        self._learn_nodes(session, batch, now)
        self._learn_series(batch, now)
        for host in batch.columns.nodes if batch.columns is not None else ():
            self._places.hear(self._places.known(host), now)
        for raw in batch.events:
            if raw.host and "told_by" not in raw.attrs:  # what another machine says of it is no sign of its life
                self._places.hear(self._places.met(raw.host, now), now)
        self._learn_past(session, batch, now)
        self._follow(session, batch, now)
        self._save(session, now)

    def _catch_up(self, session: Session, batch: Batch) -> None:
        """Nodes that another process met first: what it wrote of them is taken in, not written over; silence too."""
        named = {f.name for f in batch.nodes} | {e.host for e in batch.events} | {s.label.node for s in batch.series}
        named |= {label.node for label in labels_of(batch)}
        hosts = named.union(*(a.nodes for a in batch.attempts))
        strange = {name for name in hosts if name and not self._places.known(name)}
        places, cards = rows.met(session, self.cluster, strange | {name.partition(".")[0] for name in strange})
        for row in places:
            if self._places.restore(row, self.cluster):
                self._sounds.unsure()  # whether it is noted as silent must be read
        self._restore(cards)

    def _restore(self, devices: Iterable[Device]) -> None:
        for device in devices:
            if device.node in self._places and device.kind == "gpu":
                self._cards.restore(device, self.cluster)
            elif device.node in self._places and device.kind in MOST:
                self._parts.restore(device, self.cluster)

    @property
    def fleet(self) -> Fleet:
        """The fleet of now. ``epoch`` rises when rows come or go; a job that starts makes a new Fleet of the same."""
        if self._fleet is None or self._journal.stale:
            places, cards = list(self._places), list(self._cards)
            held, parts = self._work.held.values(), self._parts.drawn()
            self._fleet = draw_fleet(self.cluster, self._journal.epoch, places, cards, held, parts)
            self._journal.stale = False
        return self._fleet

    def take_renamed(self) -> dict[str, str]:
        """Old id to new id of devices that got a better one since the last call."""
        renamed, self._cards.renamed = self._cards.renamed, {}
        return renamed

    def take_left(self) -> list[str]:
        """Nodes that were found to have left the fleet since the last call."""
        self._told_left, self._left = self._left, []
        return self._told_left

    def place(self, host: str) -> Place | None:
        """What is known of a node."""
        return self._places.known(host)

    def slot(self, label: DeviceLabel) -> int | None:
        """The row of a label: by UUID or serial, else by place on its node. None for one that is not known."""
        if label.axis == "node":
            place = self._places.known(label.node)
            return place.slot if place else None
        if label.axis != "gpu":
            return self._parts.slot(label)
        card = self._cards.by_id(label.uuid) or self._cards.at(label.node, label.pci, label.index)
        return card.slot if card else None

    def entity(self, host: str, pci: str = "", job: str = "") -> Entity:
        """The GPU at ``pci`` of a host, else the host, else the job, else the cluster."""
        place = self._places.known(host)
        name = place.name if place else host
        card = self._cards.at(name, pci) if normal_pci(pci) else None
        if card is not None:
            return Entity(self.cluster, "gpu", card.id, card.name, name)
        if name:
            return Entity(self.cluster, "node", name, name, name)
        if job:
            return Entity(self.cluster, "job", job, f"job:{job}")
        return Entity(self.cluster, "cluster", self.cluster, f"cluster:{self.cluster}")

    def driver(self, host: str) -> int:
        """The major version of a node's GPU driver; 0 = not known."""
        place = self._places.known(host)
        said = self._ledger.said(place.name, "driver").get("", "") if place else ""
        major = said.partition(".")[0]
        return int(major) if major.isascii() and major.isdigit() and len(major) < 6 else 0

    def port(self, host: str, pci: str, attrs: Mapping[str, str]) -> str:
        """The name under which telemetry knows the port that a kernel line is about; "" where nothing joins the two."""
        place = self._places.known(host)
        if place is None:
            return ""
        at = {name: address(value) for name, value in self._ledger.said(place.name, ADDRESS).items() if name}
        return port_named(at, attrs, pci, self._parts.named("nic", place.name))

    # --- nodes and cards --------------------------------------------------------------------------------------------

    def _learn_nodes(self, session: Session, batch: Batch, now: datetime) -> None:
        known = ((self._places.describe(facts, batch.source, now), facts) for facts in batch.nodes)
        told = [(place, facts) for place, facts in known if place is not None]
        self._back(place for place, facts in told if facts.read_at > 0)
        for place, facts in told:
            if facts.read_at > 0:
                self._outs.watch(place, facts.read_at)
            self._cards.describe(place, facts, now)
        read_at = self._places.listed(batch)
        if read_at is None:
            return
        rows.mark(session, self.cluster, rows.SCHEDULER, read_at)
        left = self._places.left(batch, now)
        self._cards.leave(set(left))
        for place in left:
            self._outs.leave(place.name, unix(now))
            self._left.append(place.name)

    def _back(self, places: Iterable[Place]) -> None:
        since = {place: self._places.back(place) for place in places if place.retired_at is not None}
        self._cards.come_back({place: at for place, at in since.items() if at is not None})

    def _learn_series(self, batch: Batch, now: datetime) -> None:
        labels = {id(label): label for label in labels_of(batch)}
        self._back(self._back_again(labels.values()))
        for label in labels.values():
            if label.axis == "node":
                self._places.hear(self._places.met(label.node, now), now)
            elif label.axis == "gpu":
                card = self._cards.by_id(label.uuid)
                if card is None or card.label != label:
                    card = self._cards.learn(label, now, exporter=True)
                self._places.hear(card.place if card else None, now)
            elif label.axis in MOST and (place := self._places.met(label.node, now)) is not None:
                self._parts.learn(label, place, now)
                self._places.hear(place, now)
        for one in batch.series:
            if one.metric == UP and one.values.size and one.values[-1] > 0:
                self._places.hear(self._places.known(one.label.node), now)

    def hear(self, batch: Batch, now: datetime) -> bool:
        """Whether the labels of a batch that holds nothing but samples say no more than is known; if so, the nodes that
        it speaks of were heard of, and nothing is to be written."""
        if not all(map(self._says_nothing_new, labels_of(batch))):
            return False
        hosts = {label.node for label in labels_of(batch)} | set(batch.columns.nodes if batch.columns else ())
        hosts |= {one.label.node for one in batch.series if one.metric == UP and one.values.size and one.values[-1] > 0}
        for host in hosts:
            self._places.hear(self._places.known(host), now)
        return True

    def _says_nothing_new(self, label: DeviceLabel) -> bool:
        place = self._places.known(label.node)
        if place is None or place.retired_at is not None:
            return False
        if label.axis == "gpu":
            card = self._cards.by_id(label.uuid)
            return card is not None and card.label == label and card.place is place
        return label.axis == "node" or self._parts.knows(label, place)

    def _back_again(self, labels: Iterable[DeviceLabel]) -> set[Place]:
        """Nodes that had left, and are heard of."""
        left = {place for place in self._places if place.retired_at is not None}
        if not left:
            return left
        cards = (self._cards.by_id(label.uuid) for label in labels if label.axis == "gpu" and not label.node)
        heard = {card.place for card in cards if card is not None}
        heard |= {place for label in labels if label.node and (place := self._places.known(label.node)) is not None}
        return left & heard

    # --- work and what was ------------------------------------------------------------------------------------------

    def _follow(self, session: Session, batch: Batch, now: datetime) -> None:
        """Attempts that are new or have changed since they were told."""
        told = [self._named(attempt, batch, now) for attempt in batch.attempts]
        idle = {facts.name for facts in batch.nodes if facts.read_at > 0 and facts.state == "idle"}
        idle -= {facts.name for facts in batch.nodes if "COMPLETING" in facts.flags}
        news = self._work.news(told, idle, unix(now))
        if news:
            self._work.take(record_attempts(session, self.cluster, news, now))
            self._journal.stale = True

    def _named(self, attempt: AttemptFacts, batch: Batch, now: datetime) -> AttemptFacts:
        """With the names that its nodes have here. An attempt of long ago makes no node: it may have left since."""
        past = attempt.end is not None and attempt.state in OVER and unix(now) - attempt.end > PAST_S
        name = {host: self._name(host, now, make=not past) for host in attempt.nodes}
        return replace(
            attempt,
            nodes=tuple(dict.fromkeys(name[host] for host in attempt.nodes if name[host])),
            gpus=tuple((name.get(host) or host, tuple(held)) for host, held in attempt.gpus),
            roles=tuple((name.get(host) or host, role) for host, role in attempt.roles),
            source=attempt.source or batch.source,
        )

    def _name(self, host: str, now: datetime, *, make: bool) -> str:
        place = self._places.met(host, now) if make else self._places.known(host)
        if place is None and not make:
            return self._places.readable(host)
        return place.name if place else ""

    def _learn_past(self, session: Session, batch: Batch, now: datetime) -> None:
        """Versions, outages, maintenance and cables; none of them makes a node."""
        whose = ((self._name(one.node, now, make=False), one) for one in batch.versions)
        told = [replace(one, node=name) for name, one in whose if name or not one.node]
        for place, at in self._places.take_boots():
            told.append(VersionFacts(place.name, BOOT, at.isoformat(timespec="seconds"), unix(at), source=OBSERVED))
        self._ledger.hear(told, batch.source)
        named = ((self._name(one.node, now, make=False), one) for one in batch.outages)
        out = [replace(one, node=name, source=one.source or batch.source) for name, one in named if name]
        outages.put_outages(session, self.cluster, [*out, *self._outs.take()])
        outages.put_maintenances(session, self.cluster, batch.maintenances, batch.source)
        tied = [replace(one, node=self._name(one.node, now, make=False)) for one in batch.cables]
        cables.follow(session, self.cluster, [one for one in tied if one.node], batch.source, now)

    # --- rows -------------------------------------------------------------------------------------------------------

    def _save(self, session: Session, now: datetime) -> None:
        touched = self._journal.touched
        write_places(session, self.cluster, [one for one in touched if isinstance(one, Place)], now)
        gone, self._cards.to_drop = self._cards.to_drop, {}
        write_cards(session, self.cluster, [one for one in touched if isinstance(one, Card)], gone, now)
        self._ledger.save(session)
        write_parts(session, self.cluster, [one for one in touched if isinstance(one, Part)], now)
        touched.clear()
        self._sounds.save(session, list(self._places))

    def _distrust(self, _session: Session) -> None:
        """The transaction was rolled back: nothing that was written in it can be counted on."""
        everything: Iterable[Place | Card | Part] = (*self._places, *self._cards, *self._parts)
        for row in everything:
            row.saved = None
            self._journal.touched.add(row)
        self._work.distrust()
        self._cards.to_drop |= self._cards.old_ids
        self._outs.distrust()
        self._ledger.distrust()
        self._ledger_read = False
        self._left, self._told_left = [*self._told_left, *self._left], []
        self._sounds.distrust()
