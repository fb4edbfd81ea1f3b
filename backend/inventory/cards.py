"""GPUs: a card is its UUID or serial, then its address; never its index, which moves on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime

from backend.facts import DeviceLabel, NodeFacts
from backend.inventory.journal import Card, Journal, Place
from backend.inventory.places import Places
from backend.model.cluster import Device
from detectors.kernel.lines import normal_pci

#: What no database and no page would take as the id of a device.
_ID = re.compile(r"[!-~]{1,200}")


class Cards:
    """Every GPU that was ever met, in the order of their slots."""

    def __init__(self, journal: Journal, places: Places) -> None:
        self._journal = journal
        self._places = places
        self._cards: list[Card] = []
        self._by_id: dict[str, Card] = {}
        self._by_pci: dict[tuple[str, str], Card] = {}
        self._by_index: dict[tuple[str, str], Card] = {}
        #: Old id to new id of cards that got a better one: since ``take_renamed``, since the last commit, ever.
        self.renamed: dict[str, str] = {}
        self.to_drop: dict[str, str] = {}
        self.old_ids: dict[str, str] = {}

    def __iter__(self) -> Iterator[Card]:
        return iter(self._cards)

    def by_id(self, id_: str) -> Card | None:
        return self._by_id.get(id_)

    def at(self, node: str, pci: str, index: str = "") -> Card | None:
        """The card at an address of a node, else at an index of it."""
        place = self._places.known(node)
        if place is None:
            return None
        if pci:
            return self._by_pci.get((place.name, normal_pci(pci)))
        return self._by_index.get((place.name, index)) if index else None

    def describe(self, place: Place, facts: NodeFacts, now: datetime) -> None:
        """The GPUs of a node as its owner describes it."""
        for gpu in facts.gpus:
            index = str(gpu.index) if gpu.index >= 0 else ""
            self.learn(DeviceLabel("gpu", place.name, gpu.uuid, gpu.pci, index, gpu.model), now, exporter=False)

    def learn(self, label: DeviceLabel, now: datetime, *, exporter: bool) -> Card | None:
        """The card that a label speaks of, made or corrected. None where it names none, or a place that is no host."""
        place = self._places.met(label.node, now) if label.node else None
        uuid, pci = label.uuid if _ID.fullmatch(label.uuid) else "", normal_pci(label.pci)
        if label.uuid and not uuid:
            self._journal.rejected["device ids with spaces, control characters or over 200 characters"] += 1
        card = self._by_id.get(uuid) or (self.at(place.name, pci, label.index) if place else None)
        if card is not None and uuid and card.id != uuid:
            card = self._better_id(card, uuid) if card.pci == pci and pci else None
        if card is None:
            if place is None or not (uuid or pci):
                return None
            id_ = uuid or f"pci:{place.name}:{pci}"
            card = self._by_id.get(id_) or self._new(id_, place, now)
        self._correct(card, place, pci, label, now, exporter=exporter)
        return card

    def _new(self, id_: str, place: Place, now: datetime) -> Card:
        card = Card(len(self._cards), id_, place, now)
        self._cards.append(card)
        self._by_id[id_] = card
        self._journal.note(card, rows_moved=True)
        return card

    def _better_id(self, card: Card, uuid: str) -> Card | None:
        """A card known by its address shows its UUID: the same card. One with another UUID was taken out: None."""
        if not card.id.startswith("pci:"):
            return None
        for known in (self.renamed, self.to_drop, self.old_ids):
            known[card.id] = uuid
        del self._by_id[card.id]
        card.id, card.saved = uuid, None
        self._by_id[uuid] = card
        self._journal.note(card, rows_moved=True)
        return card

    def _correct(
        self, card: Card, place: Place | None, pci: str, label: DeviceLabel, now: datetime, *, exporter: bool
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
        self._journal.note(card, rows_moved=moved, redraw=before != (card.name, card.model, card.job))

    def _take_pci(self, card: Card, pci: str, now: datetime) -> None:
        """Only one card can sit at an address; another one that was known there has been taken out."""
        other = self._by_pci.get((card.place.name, pci))
        if other is not None:
            self._forget_place(other)
            other.retired_at = other.retired_at or now
            self._journal.note(other, rows_moved=True)
        if self._by_pci.get((card.place.name, card.pci)) is card:
            del self._by_pci[(card.place.name, card.pci)]
        card.pci = pci
        self._by_pci[(card.place.name, pci)] = card

    def _take_index(self, card: Card, index: str) -> None:
        """The index moves on; the card that had it goes by its address from now on."""
        other = self._by_index.get((card.place.name, index))
        if other is not None and other is not card:
            other.index = ""
            self._journal.note(other, rows_moved=False, redraw=True)
        if self._by_index.get((card.place.name, card.index)) is card:
            del self._by_index[(card.place.name, card.index)]
        card.index = index
        self._by_index[(card.place.name, index)] = card

    def _forget_place(self, card: Card) -> None:
        for known, key in ((self._by_pci, card.pci), (self._by_index, card.index)):
            if known.get((card.place.name, key)) is card:
                del known[(card.place.name, key)]
        card.index, card.label = "", None

    # --- with their node --------------------------------------------------------------------------------------------

    def leave(self, places: Collection[Place]) -> None:
        """The cards of nodes that left, left with them; they keep their places for when those come back."""
        for card in self._cards if places else ():
            if card.place in places and card.retired_at is None:
                card.retired_at, card.label = card.place.retired_at, None
                self._journal.note(card, rows_moved=True)

    def come_back(self, left: Mapping[Place, datetime]) -> None:
        """The cards that left with their nodes, at these times, are expected in them again."""
        for card in self._cards if left else ():
            if card.retired_at is not None and left.get(card.place) == card.retired_at:
                card.retired_at = None
                self._journal.note(card, rows_moved=True)

    def restore(self, row: Device, cluster: str) -> None:
        """Take in a row of the store; its node is known."""
        card = self._by_id.get(row.id)
        if card is None:
            card = Card(len(self._cards), row.id, self._places[row.node], row.first_seen)
            self._cards.append(card)
            self._by_id[row.id] = card
            self._journal.epoch += 1
        self._forget_place(card)
        card.place, card.index, card.pci, card.model = self._places[row.node], row.index, row.pci, row.model
        card.first_seen, card.retired_at = row.first_seen, row.retired_at
        if card.retired_at is None or card.retired_at == card.place.retired_at:
            self._by_pci |= {(row.node, row.pci): card} if row.pci else {}
            self._by_index |= {(row.node, row.index): card} if row.index else {}
        card.saved = card.row(cluster)
