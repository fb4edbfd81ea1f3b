"""Everything that is true in the make-believe cluster at one moment."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from backend.simulate.faults import Fault, Kind, Planned
from backend.simulate.physics import Floats, Silicon
from backend.simulate.scheduler import Job, Scheduler
from backend.simulate.site import Card, Site


@dataclass(slots=True, eq=False)
class World:
    """``world_s`` counts seconds while somebody simulates; ``now`` is unix s of the last step.

    Hold ``lock`` while reading or writing: the poster steps the world, the backend acts on it from other threads.
    """

    site: Site
    scheduler: Scheduler
    silicon: Silicon
    now: float
    world_s: float = 0.0
    steps: int = 0
    starts: int = 1
    planned: list[Planned] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    lines: list[dict[str, object]] = field(default_factory=list)
    performed: dict[str, dict[str, object]] = field(default_factory=dict)
    last_xid: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    dbe: Floats = field(default_factory=lambda: np.zeros(0))
    remapped: Floats = field(default_factory=lambda: np.zeros(0))
    replays: Floats = field(default_factory=lambda: np.zeros(0))
    link_bytes: Floats = field(default_factory=lambda: np.zeros(0))
    interrupts: Floats = field(default_factory=lambda: np.zeros(0))
    load: Floats = field(default_factory=lambda: np.zeros(0))
    lock: threading.RLock = field(default_factory=threading.RLock)

    def say(self, host: str, text: str) -> None:
        """One kernel line of a host, stamped with the step it belongs to."""
        self.lines.append({"ts": self.now, "host": host, "source": "kernel", "line": text})

    def faults_on(self, node: str) -> list[Fault]:
        return [fault for fault in self.faults if fault.node == node]

    def card(self, row: int) -> Card:
        return self.site.cards[row]

    def lost(self) -> NDArray[np.bool_]:
        """Cards that are off the bus."""
        gone = np.zeros(len(self.site.cards), dtype=bool)
        gone[[fault.card for fault in self.faults if fault.kind is Kind.BUS]] = True
        return gone

    def exporters_down(self) -> set[str]:
        return {fault.node for fault in self.faults if fault.kind is Kind.EXPORTER}

    def victims(self) -> list[Job]:
        """Jobs a mishap may strike now: warm, stepping, nothing else wrong on any of their nodes."""
        broken = {fault.node for fault in self.faults if fault.kind is not Kind.EXPORTER}
        return [
            job
            for job in self.scheduler.jobs.values()
            if job.steps(self.world_s) and not all(node in broken for node in job.nodes)
        ]

    def dice(self, what: str) -> random.Random:
        """Fresh dice for one purpose in this step."""
        return random.Random(f"{what}/{self.site.seed}/{self.starts}/{self.steps}")
