"""A watch that dies now and then, in this process or by kill -9, and what it is told meanwhile."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backend import pipeline
from backend.clock import ManualClock, unix, utc
from backend.facts import Batch, Series
from backend.incidents.record import Delta
from backend.store.engine import Store, migrate, open_store
from detectors.model import Tick
from tests.backend.replay.live import T0, TICK_S, Live, Step, jobs, kernel, label, nodes, scrape, watch_on

NODES, GPUS = 3, 4
END = T0 + 900.0
#: The first tick has closed and been saved by then.
FIRST_S = 3 * TICK_S + 5.0
#: Where a process may die, beside between two things that come.
POINTS = ("line committed", "incident committed", "before the commit")


class Killed(BaseException):
    """What no bulkhead catches."""


class Silent:
    """An output that writes nothing: what was found stands in the store."""

    def step(self, *_: object) -> None: ...


def story(dice: random.Random) -> list[Step]:
    """As long as an hour's quarter: a GPU is lost, one runs hot and cools down, an exporter goes dark, codes come, also
    twice; the scheduler moves a job. Every scrape comes before its tick closes."""
    found = [Step(T0 + 0.5, Batch("topology", T0, T0, nodes=nodes(NODES, GPUS))), Step(T0 + 1.5, jobs(T0, NODES))]
    devices = [label(n, g) for n in range(NODES) for g in range(GPUS)]
    lost, hot = dice.sample(devices, 2)
    dark, lost_at, dark_from = dice.randrange(NODES), T0 + dice.uniform(200, 500), T0 + dice.uniform(100, 600)
    for n in range(1, 55):
        at = T0 + n * TICK_S + dice.uniform(0, 0.02)
        gone = {lost.uuid} if at > lost_at else set()
        if dark_from < at < dark_from + 150:
            gone |= {d.uuid for d in devices if d.node == f"gpu-{dark:04d}"}
        off = {"temperature_c": 30.0, "sm_clock_mhz": -600.0} if 200 < at - T0 < 500 else {}
        batch = scrape(at, [d for d in devices if d.uuid not in gone], off=off, odd=hot.uuid, replays=float(n * 3 % 50))
        found.append(Step(at + dice.uniform(0.1, 3.0), batch))
    for _ in range(4):
        at = T0 + dice.uniform(60, 800)
        said = kernel(at, at + 0.3, dice.randrange(NODES), dice.randrange(GPUS), dice.choice((94, 31, 63, 48)))
        found += [Step(at + 0.3, said), Step(at + dice.choice((0.4, 90.0)), said)]
    found.append(Step(lost_at + 1.0, kernel(lost_at, lost_at + 1.0, int(lost.node[-4:]), int(lost.index), 79)))
    return sorted(found, key=lambda step: step.at)


class Mortal:
    """Runs a story and dies now and then; Prometheus, which does not die, is asked for what was missed."""

    def __init__(self, store: Store, kills: int, dice: random.Random) -> None:
        self.store = store
        self.clock = ManualClock(utc(T0))
        self.judged: Counter[int] = Counter()
        self.kills = 0
        self._wanted = kills
        self._dice = dice
        self._scraped: list[Batch] = []
        self._point = ""
        self.live = self._born()

    def run(self, steps: Sequence[Step]) -> None:
        """It lives to see its first tick: what came before one was ever saved, no process can know that it missed."""
        lived = [place for place, step in enumerate(steps) if step.at > T0 + FIRST_S]
        doomed = Counter(self._dice.choices(lived, k=self._wanted))
        for place, step in enumerate(steps):
            for _ in range(doomed[place]):
                self._kill_during(step)
            self.take(step)
        self.live.finish(END)

    def _kill_during(self, step: Step) -> None:
        """Dead before the step comes, or inside it: then its sender pushes again, as for anything without a 2xx."""
        self._point = self._dice.choice(("", *POINTS))
        try:
            if self._point:
                self.take(step)
        except Killed:
            pass
        self._point = ""
        self.kills += 1
        self.go_on(self._scraped)

    def go_on(self, scraped: list[Batch]) -> None:
        """A new process: what the store holds, then the first read of the source, from where the ring had seen all."""
        self._scraped = scraped
        self.live = self._born()
        since, now = self.live.watch.ring.behind_since(), unix(self.clock.now())
        self.live.closed = now
        if since is not None and scraped:
            pipeline.accept(self.live.watch, between(scraped, since, now), pushed=False)
        self.live.turn()

    def _born(self) -> Live:
        watch = watch_on(self.store, self.clock)
        live = Live(watch, Silent())  # type: ignore[arg-type]  # it has what is called
        watch.reached = self._reached
        watch.stepped = self._stepped
        save = watch.committed

        def committed(tick: Tick, *, saved: bool, telemetry: bool) -> None:
            self.judged.update(event.seq for event in tick.events)
            save(tick, saved=saved, telemetry=telemetry)

        watch.committed = committed  # type: ignore[method-assign]
        turn = watch.turn
        watch.turn = lambda: self._doomed(turn())  # type: ignore[method-assign]
        return live

    def _doomed(self, turn: Any) -> Any:
        if self._point == "before the commit":
            raise Killed
        return turn

    def take(self, step: Step) -> None:
        if step.batch is not None and step.batch.source == "prometheus" and step.batch not in self._scraped:
            self._scraped.append(step.batch)
        self.live.take(step)

    def _reached(self, point: str) -> None:
        if point == self._point:
            raise Killed

    def _stepped(self, tick: Tick, delta: Delta) -> None: ...


def between(scraped: Sequence[Batch], since: float, now: float) -> Batch:
    """One read over (since, now] of what the source had by then."""
    found = [one for batch in scraped for one in batch.series if since < one.times[-1] <= now]
    by_row: dict[tuple[str, Any], list[Series]] = {}
    for one in found:
        by_row.setdefault((one.metric, one.label), []).append(one)
    series = [
        Series(metric, who, np.concatenate([s.times for s in some]), np.concatenate([s.values for s in some]))
        for (metric, who), some in by_row.items()
    ]
    return Batch("prometheus", since, now, series=tuple(series))


def main(folder: Path, seed: int, position: int) -> None:
    """Go on with the story at its ``position``-th step; says each step that is done, so that the parent can kill."""
    store = open_store("", folder)
    migrate(store)
    steps = story(random.Random(seed))
    mortal = Mortal(store, 0, random.Random(seed))
    if position:
        mortal.clock.set(utc(steps[position - 1].at))
        mortal.go_on([s.batch for s in steps[:position] if s.batch is not None and s.batch.source == "prometheus"])
    for place, step in enumerate(steps[position:], position):
        mortal.take(step)
        print(place + 1, flush=True)
    mortal.live.finish(END)
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
