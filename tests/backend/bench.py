"""One watched cluster in a test's hands: the simulated cluster's own hand and scheduler, telemetry at will, a clock
that only the test turns. Loops do not run: ``turn`` takes every step until nothing more is to do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

import numpy as np
import orjson

from backend import orders, pipeline, proposals, returns, telling
from backend.auth import Person
from backend.changes import Changes
from backend.clock import ManualClock, unix
from backend.decide.guards import Limits
from backend.facts import Batch, DeviceLabel, Mode, Series
from backend.incidents.record import Held
from backend.ingest.jobs import jobs_batch
from backend.ingest.logs import logs_batch, read_rows
from backend.inventory.inventory import Inventory
from backend.model.actions import Decision, Exclusion, Order
from backend.model.incidents import Incident
from backend.ring import Ring
from backend.simulate.backend import SimulatedBackend
from backend.simulate.site import Card, Machine
from backend.simulate.world import begin, step
from backend.store import actions, incidents
from backend.store.cluster import ensure_cluster
from backend.store.engine import Store
from backend.watch import Rules, Watch
from detectors import registry
from detectors.catalogue import load
from detectors.kernel.lines import parse
from detectors.model import Severity

APPROVER = Person("ada", "approver")
OPERATOR = Person("bob", "operator")
VIEWER = Person("eve", "viewer")
TICK_S = 15.0


class Bench:
    """A cluster of 48 nodes named gpu-001 ... with three running jobs."""

    def __init__(self, store: Store, clock: ManualClock, mode: Mode = "propose", hold_s: float = 60.0) -> None:
        self.clock = clock
        self.world = begin(1, unix(clock.now()))
        self.world.planned.clear()  # nothing breaks here but what the test breaks
        self.backend = SimulatedBackend(self.world)
        self.watch = self.restarted(store, Rules(mode, hold_s, 2100.0, 30.0, Severity.HIGH, Limits(), ("email",)))
        self.read_cluster()

    def restarted(self, store: Store, rules: Rules) -> Watch:
        """A Watch as a new process makes it; the store and the cluster are what they were."""
        catalogue = load()
        with store.write() as session:
            ensure_cluster(session, "main")
        watch = Watch(
            cluster="main",
            rules=rules,
            clock=self.clock,
            store=store,
            catalogue=catalogue,
            changes=Changes(),
            inventory=Inventory("main"),
            ring=Ring(catalogue.metrics, TICK_S, 0.0),
            detectors=registry.detectors(catalogue),
            backend=self.backend,
            who="bench",
        )
        watch.load()
        return watch

    def restart(self) -> None:
        """Kill -9 and start: only what was committed is left."""
        self.watch = self.restarted(self.watch.store, self.watch.rules)
        self.read_cluster()

    # --- what the cluster shows -----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return unix(self.clock.now())

    def machine(self, name: str) -> Machine:
        return next(m for m in self.world.site.machines if m.name == name)

    def busy_node(self, run: int = 0) -> str:
        """A node of the first, second or third running job."""
        return sorted(self.world.scheduler.jobs.values(), key=lambda job: job.id)[run].nodes[0]

    def job_of(self, node: str) -> str:
        job = self.world.scheduler.job_on(node)
        return job.id if job is not None else ""

    def read_cluster(self) -> None:
        """Nodes and jobs, as the scheduler's source reads them."""
        step(self.world, self.now)
        nodes = tuple(self.backend.inventory())
        jobs, rejected = jobs_batch(orjson.dumps(self.world.scheduler.table()), "application/json", self.now)
        assert not rejected
        pipeline.accept(self.watch, Batch("scheduler", self.now, self.now, nodes=nodes))
        pipeline.accept(self.watch, jobs)

    def line(self, node: str, text: str, *, unproven: bool = False) -> pipeline.Accepted:
        """One kernel line of a node, pushed as an agent does; ``unproven``: as read of a log that holds everybody's."""
        row = {"ts": self.now, "host": node, "source": "kernel", "line": text}
        rows = read_rows(orjson.dumps([row]), "application/json", self.now)
        batch = logs_batch(rows, self.now, parse)
        if unproven:
            told = (replace(event, attrs={**event.attrs, "unproven": "1"}) for event in batch.events)
            batch = replace(batch, events=tuple(told))
        return pipeline.accept(self.watch, batch)

    def xid(self, node: str, gpu: int, code: int, text: str = "GPU has fallen off the bus.") -> pipeline.Accepted:
        card = self.machine(node).cards[gpu]
        return self.line(node, f"NVRM: Xid (PCI:{card.pci}): {code}, pid=77, name=python3, {text}")

    def telemetry(self, silent: Collection[tuple[str, int]] = (), dark: Collection[str] = ()) -> None:
        """One scrape of every GPU at this moment, without the silent GPUs and the dark nodes."""
        cards = [c for c in self.world.site.cards if c.node not in dark and (c.node, c.index) not in silent]
        series = tuple(s for card in cards for s in self._scrape(card))
        pipeline.accept(self.watch, Batch("prometheus", self.now - TICK_S, self.now, series=series))

    def _scrape(self, card: Card) -> list[Series]:
        label = DeviceLabel("gpu", card.node, card.uuid, card.pci, str(card.index), "H100")
        times = np.array([self.now])
        rest = {"temperature_c": 60.0, "power_w": 600.0, "sm_clock_mhz": 1755.0}
        return [Series(metric, label, times, np.array([value])) for metric, value in rest.items()]

    # --- time -----------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Every loop's step, until none has more to do."""
        for _ in range(50):
            worked = pipeline.observe(self.watch)
            worked |= proposals.propose(self.watch)
            worked |= orders.act(self.watch)
            worked |= returns.settle_returns(self.watch)
            worked |= telling.tell_due(self.watch)
            if not worked:
                return
        raise AssertionError("the loops never come to rest")

    def ticks(self, count: int, silent: Collection[tuple[str, int]] = (), dark: Collection[str] = ()) -> None:
        """So many telemetry intervals, each with a scrape, a look at the scheduler and a turn."""
        for _ in range(count):
            self.clock.set(self.clock.now() + timedelta(seconds=TICK_S))
            self.telemetry(silent, dark)
            self.read_cluster()
            self.turn()

    # --- what stands in the store ---------------------------------------------------------------------------------

    def incidents(self) -> list[Incident]:
        with self.watch.store.read() as session:
            return list(reversed(incidents.page(session, "main", (), 100)))

    def incident(self) -> Incident:
        found = self.incidents()
        assert len(found) == 1, [row.headline for row in found]
        return found[0]

    def decision(self) -> Decision:
        with self.watch.store.read() as session:
            found = actions.decisions(session, "main", (), 1)
        assert found
        return found[0]

    def orders(self) -> list[Order]:
        with self.watch.store.read() as session:
            return list(reversed(actions.orders(session, "main", (), 100)))

    def exclusions(self) -> list[Exclusion]:
        with self.watch.store.read() as session:
            return list(actions.live_exclusions(session, "main", self.clock.now()))

    def texts(self) -> list[str]:
        """The timeline of the one incident, word for word."""
        with self.watch.store.read() as session:
            return [entry.text for entry in incidents.timeline(session, self.incident().id or 0)]

    def held(self) -> dict[str, Held]:
        return dict(self.watch.ledger)
