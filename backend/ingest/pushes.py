"""What earlier pushes of a cluster taught: which series is whose, so that most samples need no label read."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np

from backend.columns import Book, Columns, grown
from backend.facts import DeviceLabel
from backend.ingest import wire
from backend.ingest.labels import UUIDS, device_label, identity, is_instance, part_of
from backend.ingest.samples import PER_INSTANCE, UP, Scraped
from backend.ingest.versions import INFO, OF_DEVICE, OF_NODE
from backend.ingest.wire import FAST, FATES, INSTANCE, NOBODY, SLOW, UNKNOWN
from detectors.catalogue import Catalogue

#: A series that was away for this long, in s, is read anew: its device may be another's by now.
AWAY_S = 120.0
#: How long a word stands, in s, by fate: all is told again at times, lest something lost be lost for ever; who names
#: nobody may be known by the next time.
TOLD_S = {FAST: 6 * 3600.0, SLOW: 0.0, UNKNOWN: 24 * 3600.0, NOBODY: 300.0, INSTANCE: 6 * 3600.0}
#: A node is said to be heard of once in this time, in s.
HEAR_S = 10.0
#: A series that was away for this long, in s, is forgotten when the table is next made.
FORGOTTEN_S = 1800.0
#: What is counted of the fates that are dropped.
DROPPED = {
    UNKNOWN: "metric not in the catalogue",
    NOBODY: "no device or node in the labels",
    INSTANCE: "of a MIG instance",
}
REASONS = ("not a number", "infinite", "blank", "out of range")


class _Numbers:
    """A table from two words to a number, in arrays: a tenth of the memory of a dict."""

    def __init__(self, places: int = 4096) -> None:
        self.keys = np.zeros((places, 2), np.uint64)
        self.numbers = np.zeros(places, np.int32)
        self.used = 0

    def put(self, one: int, two: int, number: int) -> None:
        if 3 * (self.used + 1) > 2 * self.numbers.size:
            self.rebuild(np.arange(int(self.numbers.max()) + 1, dtype=np.int32), self.used + 1)
        wire.put(self.keys, self.numbers, np.uint64(one), np.uint64(two), number)
        self.used += 1

    def find(self, one: int, two: int) -> int:
        return int(wire.find(self.keys, self.numbers, np.uint64(one), np.uint64(two)))

    def rebuild(self, renumbered: Any, used: int) -> None:
        """With room for twice ``used``; ``renumbered`` int32[old] gives the new numbers, -1 lets go."""
        places = 4096
        while places < 2 * used:
            places *= 2
        keys, numbers = np.zeros((places, 2), np.uint64), np.zeros(places, np.int32)
        wire.refill(self.keys, self.numbers, keys, numbers, renumbered)
        self.keys, self.numbers, self.used = keys, numbers, int(np.count_nonzero(keys[:, 1]))


class Pushes:
    """Series, targets and devices by number. One for a cluster; one push at a time."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._metrics = {name: place for place, name in enumerate(catalogue.metrics)}
        listed = catalogue.metrics.values()
        self._low = np.array([metric.low for metric in listed])
        self._high = np.array([metric.high for metric in listed])
        self._of_gpu = np.array([metric.axis == "gpu" for metric in listed], np.uint8)
        self.book = Book(tuple(catalogue.metrics))
        self.lock = threading.Lock()
        self.seed = secrets.randbits(62)
        self._rooms: dict[str, Any] = {}
        self._stamp = 0
        self._forgets_at = 0.0
        # --- series: the hash of its labels -> fate, target, who, last seen and told (unix s)
        self._index = _Numbers()
        self._count = 0
        self._fate, self._target, self._who = (
            np.zeros(1024, np.uint8),
            np.zeros(1024, np.int32),
            np.zeros(1024, np.int32),
        )
        self._seen, self._told = _zeros(np.float64), _zeros(np.float64)
        # --- targets: who owns it, its series and the number of the last push that held it
        self._targets = _Numbers()
        self._owner, self._last, self._stamps = _zeros(np.int32), _zeros(np.int32), _zeros(np.int64)
        self._parts = {"": 0}
        self._read: dict[tuple[object, ...], DeviceLabel | None] = {}
        # --- who: label and versions as told -> number, node and identity of each
        self._known: dict[tuple[DeviceLabel, tuple[str, ...]], int] = {}
        self._identities: dict[tuple[str, ...], int] = {}
        self._nodes: dict[str, int] = {"": 0}
        self._node_names = [""]
        self._node_of, self._heard = _zeros(np.int32), _zeros(np.float64)

    def __len__(self) -> int:
        """How many series are known."""
        return self._count

    def room(self, name: str, kind: type, size: int) -> Any:
        """An array of ``size`` to work with, the same memory for the same name each time."""
        known = self._rooms.get(name)
        if known is None or known.size < size:
            known = self._rooms[name] = np.empty(size + size // 4, kind)
        return known[:size]

    def route(self, series: Any, firsts: Any, times: Any, now: float) -> Any:
        """The fate of each series of one push (uint8[m]); ``series`` as ``find`` gave them."""
        fates = np.empty(series.size, np.uint8)
        self._stamp += 1
        waits = np.array([AWAY_S, *(TOLD_S[fate] for fate in range(FATES))])
        of_series = (self._fate, self._target, self._who, self._seen, self._told)
        of_targets = (self._owner, self._last, self._stamps)
        wire.route(series, firsts, times, now, self._stamp, waits, of_series, of_targets, fates)
        return fates

    def find(self, hashes: Any) -> Any:
        """The number of each series (int32[m]), -1 for one that is new."""
        found = np.empty(hashes.shape[0], np.int32)
        wire.find_all(self._index.keys, self._index.numbers, hashes, found)
        return found

    def columns(self, series: Any, fates: Any, firsts: Any, times: Any, bits: Any, now: float) -> tuple[Columns, Any]:
        """Samples of the FAST ones that mean something, and counts: dropped by REASONS, then all by fate."""
        size = times.size
        out = (np.empty(size, np.int32), np.empty(size), np.empty(size), np.empty(series.size, np.int32))
        counts = np.zeros(len(REASONS) + FATES, np.int64)
        of_targets = (self.book.metric, self._low, self._high, self._of_gpu)
        of_nodes = (self._node_of, self._heard, now, HEAR_S)
        of_series = (self._target, self._who)
        samples = (firsts, times, bits)
        kept, told = wire.sort_out(series, fates, samples, of_series, of_targets, of_nodes, out, counts)
        nodes = tuple(self._node_names[node] for node in out[3][:told].tolist() if node)
        return Columns(self.book, out[0][:kept], out[1][:kept], out[2][:kept], nodes), counts

    # --- learning ---------------------------------------------------------------------------------------------------

    def learn(self, hashed: tuple[int, int], number: int, labels: Mapping[str, str], now: float) -> int:
        """What the labels of a series say, under the hash of theirs; ``number`` where it was known already. Returns its
        number."""
        if number < 0:
            number = self._index.find(*hashed)
        if number < 0:
            number = self._new_series()
            self._index.put(*hashed, number)
        fate, who, target = self._fate_of(labels)
        self._fate[number], self._who[number], self._target[number] = fate, who, target
        self._seen[number] = self._told[number] = now
        if fate == FAST:
            self._owner[target] = who
        return number

    def news(self, series: Any, fates: Any, read: Iterable[int]) -> tuple[DeviceLabel, ...]:
        """The labels of series that were read and are FAST now. Where those of one device differ, the series that say
        so become SLOW, for only all of them together say who it is."""
        by_identity: dict[tuple[str, ...], dict[int, list[int]]] = {}
        for place in read:
            if fates[place] == FAST:
                who = int(self._who[series[place]])
                by_identity.setdefault(identity(self._label(who)), {}).setdefault(who, []).append(place)
        told: list[DeviceLabel] = []
        for whos in by_identity.values():
            if len({self._label(who) for who in whos}) > 1:
                for places in whos.values():
                    fates[places] = SLOW
            else:
                told.append(self._label(next(iter(whos))))
        return tuple(told)

    def seen(self, scraped: Iterable[Scraped], labels: Iterable[DeviceLabel]) -> dict[str, set[str]]:
        """The nodes behind each exporter of GPUs that ``labels`` are news of."""
        nodes = {label.uuid: label.node for label in labels if label.axis == "gpu" and label.node}
        found: dict[str, set[str]] = {}
        for said, _, _ in scraped if nodes else ():
            node = next((nodes[said[name]] for name in UUIDS if said.get(name) in nodes), "")
            if node and (instance := said.get("instance")):
                found.setdefault(instance, set()).add(node)
        return found

    def _label(self, who: int) -> DeviceLabel:
        return cast(DeviceLabel, self.book.labels[who])

    def _fate_of(self, labels: Mapping[str, str]) -> tuple[int, int, int]:
        raw = labels.get("__name__", "")
        name = self._catalogue.alias.get(raw)
        if name is None:
            return (SLOW if raw in INFO else UNKNOWN), 0, 0
        metric = self._catalogue.metrics[name]
        label = self._label_of(metric.axis, labels) if name != UP else None
        if name == UP or (label is not None and (not label.node or (label.axis == "gpu" and not label.uuid))):
            return SLOW, 0, 0
        if label is None:
            return NOBODY, 0, 0
        if name in PER_INSTANCE and is_instance(labels):
            return INSTANCE, 0, 0
        versions = tuple(labels.get(item, "") for item in (*OF_NODE, *OF_DEVICE))
        who = self._who_of(label, versions)
        part = part_of(labels) if metric.join else ""
        return FAST, who, self._target_of(label, self._metrics[name], who, part)

    def _label_of(self, axis: str, labels: Mapping[str, str]) -> DeviceLabel | None:
        """The metrics of a device share their labels: those are read once."""
        said = (axis, *(pair for pair in labels.items() if pair[0] != "__name__"))
        if said not in self._read:
            self._read[said] = device_label(axis, labels)
        return self._read[said]

    def _who_of(self, label: DeviceLabel, versions: tuple[str, ...]) -> int:
        known = self._known.get((label, versions))
        if known is None:
            known = self._known[label, versions] = len(self.book.labels)
            self.book.labels.append(label)
            while known >= self._node_of.size:
                self._node_of = _grown(self._node_of)
            node = self._nodes.setdefault(label.node, len(self._nodes))
            if node == len(self._node_names):
                self._node_names.append(label.node)
                while node >= self._heard.size:
                    self._heard = _grown(self._heard)
            self._node_of[known] = node
        return known

    def _target_of(self, label: DeviceLabel, metric: int, who: int, part: str) -> int:
        place = self._parts.setdefault(part, len(self._parts))
        if place == len(self.book.parts):
            self.book.parts.append(part)
        one = self._identities.setdefault(identity(label), len(self._identities))
        mixed = (one * 0x9E3779B97F4A7C15 + metric * 0xC4CEB9FE1A85EC53 + place * 0xFF51AFD7ED558CCD) & (2**64 - 1)
        two = (one + 1) << 32 | metric << 20 | place
        found = self._targets.find(mixed, two)
        if found < 0:
            found = self.book.add(metric, who, place)
            self._targets.put(mixed, two, found)
            while found >= self._owner.size:
                self._owner, self._last, self._stamps = map(_grown, (self._owner, self._last, self._stamps))
        return found

    def _new_series(self) -> int:
        number, self._count = self._count, self._count + 1
        while number >= self._fate.size:
            self._fate, self._target, self._who = map(_grown, (self._fate, self._target, self._who))
            self._seen, self._told = _grown(self._seen), _grown(self._told)
        return number

    def forget(self, now: float) -> None:
        """Let series go that were away for long, where they are many: a fleet renames a part of them every minute."""
        if now < self._forgets_at:
            return
        self._forgets_at = now + AWAY_S
        self._read.clear()
        kept = self._seen[: self._count] >= now - FORGOTTEN_S
        if self._count < 4096 or np.count_nonzero(kept) > 0.8 * self._count:
            return
        renumbered = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        self._index.rebuild(renumbered, int(np.count_nonzero(kept)))
        for name in ("_fate", "_target", "_who", "_seen", "_told"):
            setattr(self, name, getattr(self, name)[: self._count][kept].copy())
        self._count = int(np.count_nonzero(kept))
        self._last[:] = -1


def dropped_of(counts: Iterable[int]) -> dict[str, int]:
    """The counts of ``columns`` by reason, without those that are none."""
    listed = [int(count) for count in counts]
    named = dict(zip(REASONS, listed, strict=False))
    named |= {reason: listed[len(REASONS) + fate] for fate, reason in DROPPED.items()}
    return {reason: count for reason, count in named.items() if count}


def _zeros(kind: type) -> Any:
    return np.zeros(1024, kind)


def _grown(array: Any) -> Any:
    return grown(array)
