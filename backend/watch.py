"""One watched cluster: its inventory, ring, detector states and open levels, and how they are saved and restored."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from sqlmodel import Session

from backend import teaching
from backend.act.base import ClusterBackend
from backend.act.checks import Check
from backend.changes import Changes
from backend.clock import Clock, unix, utc
from backend.decide.guards import Limits
from backend.facts import Batch, Mode
from backend.feed import Feed, Place
from backend.history import History
from backend.incidents.record import Delta, Held, held_of
from backend.ingest.job_verdicts import Verdicts
from backend.inventory.inventory import Inventory
from backend.model.events import DetectorState
from backend.model.learning import ModelArtifact
from backend.moved import Moved
from backend.notify.routing import Routing
from backend.ring import Ring
from backend.store import cluster as cluster_rows
from backend.store import findings as finding_rows
from backend.store import models, system
from backend.store.arrays import pack, unpack
from backend.store.claims import take_turn
from backend.store.engine import Store
from backend.trained import Trained
from detectors.catalogue import Catalogue
from detectors.detector import Detector, arrays_of, state_from
from detectors.model import Axis, Fleet, Severity, Tick
from detectors.training.signals import Signals
from detectors.training.signals import load as load_signals

log = logging.getLogger("watchkeeper.watch")

#: Names of the cursor over the event log, and of the one over telemetry ticks (unix s).
EVENTS = "events"
TICKS = "ticks"
#: Names of the saved-state rows that hold the ids behind the slots, and what the ring remembers of each slot.
SLOTS = "(slots)"
RING = "(ring)"
#: And how far the rows of training were read.
FEED = "(feed)"
#: Telemetry ticks that are kept to be judged again when a commit fails: what comes between two saves.
MOST_UNSAVED = 20


def unwatched(point: str) -> None:
    """Default for ``Watch.reached``: nobody looks. The kill tests pass one that dies at a named point."""


def unfollowed(tick: Tick, delta: Delta) -> None:
    """Default for ``Watch.stepped``: nobody writes along. Replay passes one that does."""


def unfenced(session: Session) -> None:
    """Default for ``Watch.fence``: nobody else may watch this cluster."""


def unrecorded(batch: Batch) -> None:
    """Default for ``Watch.taken``: nobody records."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The numbers of one cluster's watch, from the settings. Times in seconds."""

    mode: Mode
    hold_s: float
    fold_s: float
    lease_s: float
    notify_from: Severity
    limits: Limits
    channels: tuple[str, ...] = ()
    url: str = ""
    simulated: bool = False
    save_every_s: float = 60.0
    check_s: float = 0.0
    routing: Routing = field(default_factory=Routing)
    shadow: tuple[str, ...] = ()


@dataclass
class Watch:
    """Everything one cluster's watch needs, handed down by the registry. Mutable parts belong to the observe loop;
    ``lock`` guards inventory and ring between it and the ingest routes."""

    cluster: str
    rules: Rules
    clock: Clock
    store: Store
    catalogue: Catalogue
    changes: Changes
    inventory: Inventory
    ring: Ring
    detectors: tuple[Detector[Any], ...]
    backend: ClusterBackend | None = None
    history: History | None = None
    verdicts: Verdicts | None = None
    trained: Trained | None = None
    feed: Feed | None = None
    signals: Signals = field(default_factory=load_signals)
    moved: Moved | None = None
    checks: tuple[Check, ...] = ()
    who: str = "watchkeeper"
    reached: Callable[[str], None] = unwatched
    stepped: Callable[[Tick, Delta], None] = unfollowed
    taken: Callable[[Batch], None] = unrecorded
    fence: Callable[[Session], None] = unfenced
    lock: threading.RLock = field(default_factory=threading.RLock)
    wake: threading.Event = field(default_factory=threading.Event)
    undecided: threading.Event = field(default_factory=threading.Event)
    # --- what the observe loop remembers
    fleet: Fleet | None = None
    states: dict[str, Any] = field(default_factory=dict)
    ledger: dict[str, Held] = field(default_factory=dict)
    cursor: int = 0
    place: Place = field(default_factory=Place)
    last_at: float = 0.0
    last_telemetry_at: float | None = None
    saved_at: float = 0.0
    saved_epoch: int = -1
    dark: tuple[str, ...] = ()
    broken: frozenset[str] = frozenset()
    stale: bool = True
    #: The same detectors with other thresholds, in force from the next turn on.
    tuned: tuple[Detector[Any], ...] | None = None
    #: Telemetry ticks that closed and are not judged yet, and those judged since the states were last saved.
    coming: deque[Tick] = field(default_factory=deque)
    unsaved: deque[Tick] = field(default_factory=deque)
    #: The last telemetry tick that the saved states have seen (unix s).
    saved_tick: float = -math.inf
    #: Versions of what detectors learnt, and when the last lesson was (unix s).
    lessons: dict[str, tuple[int, float]] = field(default_factory=dict)
    # --- what the decide loop remembers: incident and revision whose automatic plan a guard refused, and when to judge
    # it again
    judge_again: dict[tuple[int, int], datetime] = field(default_factory=dict)
    # --- what the ingest routes remember: rows by source since the start, and when each pulse was last written
    brought: dict[str, Counter[str]] = field(default_factory=dict)
    heard: dict[str, datetime] = field(default_factory=dict)
    #: Sources that pushed telemetry, and when they did last; also those of an earlier process.
    scraped: dict[str, datetime] = field(default_factory=dict)

    def load(self) -> None:
        """Take up where the last commit left off: inventory, event cursor, open levels, detector states."""
        with self.lock, self.store.read() as session:
            if self.tuned is not None:
                self.detectors, self.tuned = self.tuned, None
            self.inventory.load(session)
            self.cursor = system.cursor(session, self.cluster, EVENTS)
            self.ledger = {row.key: held_of(row) for row in finding_rows.active(session, self.cluster)}
            beats = system.beats(session, self.cluster)
            self.broken = frozenset(b.name for b in beats if b.kind == "detector" and b.failing_since is not None)
            pushed = {b.name: b.ok_at for b in beats if b.kind == "source" and b.counts.get("samples") and b.ok_at}
            self.scraped = pushed | self.scraped
            self.detectors, self.lessons = teaching.take_up(session, self.cluster, self.detectors)
            self._restore(session, self.inventory.fleet)
        # What the saved states have not seen is judged again; not what they have, though nobody heard of the commit.
        self.coming = deque(tick for tick in (*self.unsaved, *self.coming) if tick.at > self.saved_tick)
        self.unsaved.clear()
        self.stale = False

    @contextmanager
    def turn(self) -> Iterator[Session]:
        """A transaction that changes incidents, decisions or orders. Those of one cluster take turns until they
        commit, in all threads and processes, so that each judges by what the one before it left."""
        with self.store.write() as session:
            take_turn(session, self.cluster)
            yield session

    def darken(self, source: str, dark: bool) -> None:
        """Remember which sources do not answer; incidents say so."""
        with self.lock:
            if (source in self.dark) == dark:
                return
            others = [name for name in self.dark if name != source]
            self.dark = tuple(sorted([*others, source] if dark else others))
            now = unix(self.clock.now())
            self.taken(Batch("sources", now, now, dark=self.dark))

    def _restore(self, session: Session, fleet: Fleet) -> None:
        rows = finding_rows.states(session, self.cluster)
        before = fleet_of(self.cluster, rows[SLOTS].fleet) if SLOTS in rows else None
        better = self._better_ids(session)
        if self.history is not None:
            self.history.rename(better)  # it may have died before it heard of some
        if before is not None:
            before = rename(before, {old: id_ for old, id_ in better.items() if ("gpu", id_) not in before.slots})
        self.last_telemetry_at = system.cursor_at(session, self.cluster, TICKS)
        self.fleet, self.saved_epoch, self.states = fleet, -1, {}
        self.last_at = max((row.at.timestamp() for row in rows.values()), default=0.0)
        self.place = Place.of(rows[FEED].fleet) if FEED in rows else Place()
        for detector in self.detectors:
            fresh = detector.start(fleet)
            row = rows.get(detector.name)
            if row is not None and before is not None:
                fresh = self._saved(detector, row, before, fleet) or fresh
            self.states[detector.name] = fresh
        if RING in rows and before is not None:
            ring = unpack(rows[RING].arrays)
            self.saved_tick = float(ring["closed"][0]) * self.ring.interval_s
            if self.ring.restore(ring, unix(self.clock.now())):
                self.ring.move(before, fleet)

    def _better_ids(self, session: Session) -> dict[str, str]:
        """What devices were called while only their address was known, and their UUID now."""
        known = cluster_rows.devices(session, self.cluster, kind="gpu")
        now = {f"pci:{d.node}:{d.pci}": d.id for d in known if d.kind == "gpu" and d.pci and d.retired_at is None}
        return {old: id_ for old, id_ in now.items() if old != id_}

    def _saved(self, detector: Detector[Any], row: DetectorState, before: Fleet, fleet: Fleet) -> Any:
        """The saved state on the fleet of now; None where it has the layout of another release: it starts afresh."""
        try:
            saved = state_from(detector.start(before), unpack(row.arrays))
        except (ValueError, KeyError):
            log.warning("%s: the saved state of %s does not fit this release", self.cluster, detector.name)
            return None
        return detector.move(saved, before, fleet)

    def follow_fleet(self) -> Fleet:
        """The fleet of now; detector states move along when rows came or went."""
        with self.lock:
            new, renamed = self.inventory.fleet, self.inventory.take_renamed()
        if self.history is not None:
            self.history.rename(renamed)
        old = self.fleet
        if old is not None and new.epoch != old.epoch:
            before = rename(old, renamed)
            for detector in self.detectors:
                self.states[detector.name] = detector.move(self.states[detector.name], before, new)
            with self.lock:
                self.ring.move(before, new)
        self.fleet = new
        return new

    def learn(self, tick: Tick) -> list[ModelArtifact]:
        """Models that were due at ``tick``, in use from it on; ``keep`` them in the transaction that it makes."""
        made = teaching.lessons(self.cluster, self.detectors, self.states, self.lessons, tick.at)
        self.detectors = teaching.with_lessons(self.detectors, made)
        self.lessons |= {row.name: (row.version, tick.at) for row in made}
        return made

    def keep(self, session: Session, made: Sequence[ModelArtifact]) -> None:
        for row in made:
            models.add(session, row)

    def must_save(self, tick: Tick) -> bool:
        """Whether states were saved too long ago: ticks since then have to be judged again after a crash."""
        long_ago = tick.at - self.saved_at >= self.rules.save_every_s
        return long_ago or len(self.unsaved) + 1 >= MOST_UNSAVED

    def committed(self, tick: Tick, *, saved: bool, telemetry: bool) -> None:
        """What was concluded from ``tick`` stands in the store; with ``saved`` the states do too."""
        self.stale = False
        if saved:
            self.saved_at = tick.at
            self.saved_epoch = self.fleet.epoch if self.fleet is not None else self.saved_epoch
            self.unsaved.clear()
            if self.feed is not None:
                self.feed.drop_before(self.place)
        elif telemetry:
            self.unsaved.append(tick)

    def save(self, session: Session, at: datetime) -> None:
        """Detector states, what the ring remembers, and their event cursor, in the caller's transaction."""
        assert self.fleet is not None
        if self.saved_epoch != self.fleet.epoch:
            finding_rows.save_state(session, self.cluster, SLOTS, at, self.cursor, b"", slots_of(self.fleet))
        for detector in self.detectors:
            arrays = pack(arrays_of(self.states[detector.name]))
            finding_rows.save_state(session, self.cluster, detector.name, at, self.cursor, arrays, {})
        if ring := self.ring.saved(self.coming[0].at if self.coming else None):
            seen = utc(float(ring["closed"][0]) * self.ring.interval_s)  # up to here nothing is judged again
            finding_rows.save_state(session, self.cluster, RING, seen, self.cursor, pack(ring), {})
        if self.place.feed:
            finding_rows.save_state(session, self.cluster, FEED, at, self.cursor, b"", self.place.saved)
        system.set_cursor(session, self.cluster, EVENTS, self.cursor, at)


def slots_of(fleet: Fleet) -> dict[str, Any]:
    """The ids behind the slots: what ``move`` needs to follow rows over a restart."""
    return {"epoch": fleet.epoch, "ids": {kind: list(axis.ids) for kind, axis in fleet.axes.items()}}


def fleet_of(cluster: str, saved: Mapping[str, Any]) -> Fleet:
    """A Fleet that knows only ids: enough to be the ``old`` side of a move."""
    axes = {kind: _bare_axis(kind, tuple(ids)) for kind, ids in saved["ids"].items()}
    slots = {(kind, id_): slot for kind, axis in axes.items() for slot, id_ in enumerate(axis.ids)}
    return Fleet(cluster, int(saved["epoch"]), axes, (), (), (), (), (), slots)


def rename(fleet: Fleet, renamed: Mapping[str, str]) -> Fleet:
    """The same fleet with devices under their better ids (a PCI address that turned out to be a UUID)."""
    if not renamed:
        return fleet
    ids = {kind: [renamed.get(id_, id_) for id_ in axis.ids] for kind, axis in fleet.axes.items()}
    return fleet_of(fleet.cluster, {"epoch": fleet.epoch, "ids": ids})


def _bare_axis(kind: str, ids: tuple[str, ...]) -> Axis:
    none = np.full(len(ids), -1, np.int32)
    empty = np.zeros(0, np.int32)
    live = np.ones(len(ids), np.bool_)
    return Axis(kind, ids, ids, live, none, none, none, none, none, empty, np.zeros(1, np.int32))
