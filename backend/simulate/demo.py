"""The demo's cluster as one thing: its world, its hand, its saved file, and one step that moves and posts."""

from __future__ import annotations

import time
from pathlib import Path

from backend.clock import Clock, unix
from backend.simulate.backend import SimulatedBackend
from backend.simulate.bygone import Bygone, bygone
from backend.simulate.poster import Poster
from backend.simulate.saved import load, save
from backend.simulate.scheduler import Job
from backend.simulate.training import Told, Trainers
from backend.simulate.world import Report, begin, step

#: Distance of two steps of the demo: quick enough that a page visibly lives.
EVERY_S = 3.0
SAVE_EVERY_STEPS = 5
FILE = "simulated.json"


class Simulation:
    """A seeded cluster that lives while it is stepped. With a ``folder`` it goes on where it stopped."""

    def __init__(self, seed: int, clock: Clock, folder: Path | None = None) -> None:
        self._clock = clock
        self._path = folder / FILE if folder is not None else None
        now = unix(clock.now())
        self.world = load(seed, now, self._path) if self._path else begin(seed, now)
        self.backend = SimulatedBackend(self.world)
        self.error = ""
        self._trainers = Trainers()
        self.past: Bygone | None = None if self.world.steps else bygone(self.world.site, self._jobs_now(), now)

    def _jobs_now(self) -> list[Job]:
        return list(self.world.scheduler.jobs.values())

    def trained(self) -> dict[str, list[Told]]:
        """What trainers tell since the last time, by route."""
        with self.world.lock:
            return self._trainers.tell(self._jobs_now(), self.world.now, self.world.world_s)

    def step(self, now: float | None = None) -> Report:
        """Move on to unix time ``now``, else to the clock's, and say what shows."""
        report = step(self.world, unix(self._clock.now()) if now is None else now)
        if self.world.steps % SAVE_EVERY_STEPS == 0:
            self._save_or_say()
        return report

    def _save_or_say(self) -> None:
        """A full disk or a folder that is gone costs the memory of the next start, not the demo that runs."""
        try:
            self.save()
        except OSError as error:
            self.error = f"the simulated world cannot be saved: {error}"
        else:
            self.error = ""

    def save(self) -> None:
        """Keep the world for the next start; without a folder there is nothing to do. Raises OSError."""
        if self._path is not None:
            save(self.world, self._path)

    def jobs(self) -> list[dict[str, object]]:
        """The whole job table, for a server that knows nothing yet."""
        with self.world.lock:
            return self.world.scheduler.table()


def live(simulation: Simulation, poster: Poster) -> float:
    """One step of the demo's loop: the world moves on and what it shows is posted. How long to wait for the next, in
    seconds: steps keep their distance however long the posting took, as scrapes do."""
    began = time.monotonic()
    past = simulation.past
    if past is not None:
        for kind, rows in (("jobs", past.jobs), ("steps", past.steps), ("checkpoints", past.checkpoints)):
            poster.keep(kind, rows)
        simulation.past = None
    report = simulation.step()
    for kind, rows in simulation.trained().items():
        poster.keep(kind, rows)
    poster.post(report, simulation.jobs())
    return max(0.1, EVERY_S - (time.monotonic() - began))
