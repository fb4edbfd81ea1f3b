"""A watch that runs live on a clock which only the test turns, recorded and written along as it goes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from backend import pipeline, proposals, returns
from backend.changes import Changes
from backend.clock import ManualClock, utc
from backend.facts import AttemptFacts, Batch, DeviceLabel, GpuFacts, NodeFacts, Series
from backend.feed import Feed
from backend.incidents.record import Delta
from backend.ingest.logs import logs_batch, read_rows
from backend.registry import rules_of, watch_of
from backend.replay.files import Output, line
from backend.replay.record import Recorder
from backend.replay.run import own_store
from backend.settings import Cluster, Settings
from backend.store.cluster import ensure_cluster
from backend.store.engine import Store
from backend.watch import Watch
from detectors.catalogue import load
from detectors.kernel.lines import parse
from detectors.model import Tick

#: A Tuesday in 2026, on a multiple of the interval.
T0 = 1_770_120_000.0
TICK_S = 15.0
LEVELS = {"temperature_c": 60.0, "power_w": 600.0, "sm_clock_mhz": 1755.0, "utilisation_pct": 97.0}
XID = "NVRM: Xid (PCI:0000:{pci:02x}:00): {code}, pid=77, name=python3, GPU has fallen off the bus."


@dataclass(frozen=True, slots=True)
class Step:
    """Something that comes at a time: a batch, or word that a source fell silent or came back."""

    at: float
    batch: Batch | None = None
    source: str = ""
    dark: bool = False


@dataclass
class Live:
    """One process that watches: loops turn when a tick closes and when a line came, as live."""

    watch: Watch
    output: Output
    recorder: Recorder | None = None
    closed: float = T0
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch.stepped = self._stepped

    def _stepped(self, tick: Tick, delta: Delta) -> None:
        self.output.step(tick, delta, self.watch.ledger, self.watch.clock.now())

    @property
    def clock(self) -> ManualClock:
        assert isinstance(self.watch.clock, ManualClock)
        return self.watch.clock

    def take(self, step: Step) -> None:
        self.close_until(step.at)
        self.clock.set(utc(step.at))
        if step.source:
            self.watch.darken(step.source, step.dark)
        if step.batch is not None:
            pipeline.accept(self.watch, step.batch)
            if step.batch.events or pipeline.rows_of_training(step.batch):
                self.turn()

    def close_until(self, at: float) -> None:
        while (due := self._next()) <= at:
            self.closed = due
            self.clock.set(utc(due))
            self.turn()

    def _next(self) -> float:
        ring = self.watch.ring
        n = math.floor((self.closed - ring.lateness_s) / ring.interval_s + 1e-9) + 1
        return n * ring.interval_s + ring.lateness_s

    def turn(self) -> None:
        while pipeline.observe(self.watch):
            pass
        proposals.propose(self.watch)
        returns.settle_returns(self.watch)

    def finish(self, at: float) -> None:
        self.close_until(at)
        self.clock.set(utc(at))


def watch_on(store: Store, clock: ManualClock) -> Watch:
    """As the registry makes it for ``serve``, in observe mode."""
    catalogue = load()
    with store.write() as session:
        ensure_cluster(session, "main")
    rules = replace(rules_of(Settings(), (), False), mode="observe", hold_s=120.0)
    cluster = Cluster(name="main", interval_s=TICK_S)
    watch = watch_of(cluster, rules, clock, store, catalogue, Changes(), None, "live")
    watch.load()
    return watch


def recorded(folder: Path, steps: Sequence[Step], end: float) -> tuple[Path, Path]:
    """Run ``steps`` live; (what its own writer left, the bundle that was recorded)."""
    (folder / "live").mkdir(parents=True)
    with own_store(folder / "live") as store:
        watch = watch_on(store, ManualClock(utc(T0)))
        watch.feed = Feed(folder / "live" / "feed")
        live = Live(watch, Output(folder / "live"))
        live.recorder = Recorder(watch, folder / "bundle")
        for step in steps:
            live.take(step)
        live.finish(end)
        assert live.recorder.left_out == 0
        live.recorder.close()
        # the ticks that were still open when the recording ended close after it, as in a replay
        live.finish(end + watch.ring.lateness_s + watch.ring.interval_s)
        live.output.conclude(store, "main", lambda *_: {})
    return folder / "live" / "out", folder / "bundle"


# --- what comes -----------------------------------------------------------------------------------------------------


def name(node: int) -> str:
    return f"gpu-{node:04d}"


def label(node: int, gpu: int) -> DeviceLabel:
    return DeviceLabel("gpu", name(node), f"GPU-{node:04d}-{gpu}", f"0000:{16 + gpu:02x}:00", str(gpu), "H100", "7")


def nodes(count: int, gpus: int, read_at: float = 0.0) -> tuple[NodeFacts, ...]:
    return tuple(
        NodeFacts(
            name=name(n),
            state="allocated" if read_at else "unknown",
            rack=f"r{n // 2}",
            gpus=tuple(GpuFacts(g, f"GPU-{n:04d}-{g}", f"0000:{16 + g:02x}:00", "H100") for g in range(gpus)),
            expected_gpus=gpus,
            read_at=read_at,
        )
        for n in range(count)
    )


def jobs(at: float, count: int) -> Batch:
    attempt = AttemptFacts("7", 0, "train", "ada", "RUNNING", T0, T0, T0, None, tuple(name(n) for n in range(count)), 8)
    return Batch("jobs", at, at, attempts=(attempt,))


def scrape(
    at: float, devices: Sequence[DeviceLabel], *, off: dict[str, float] | None = None, odd: str = "", replays: float = 0
) -> Batch:
    """One read at ``at`` of ``devices``; the device with the UUID ``odd`` reads otherwise by ``off``; all of them have
    counted ``replays``."""
    series = []
    for device in devices:
        for metric, level in LEVELS.items():
            value = level + (off or {}).get(metric, 0.0) * (device.uuid == odd)
            series.append(Series(metric, device, np.array([at]), np.array([value])))
        series.append(Series("pcie_replay", device, np.array([at]), np.array([replays])))
    for host in sorted({device.node for device in devices}):
        series.append(Series("node_up", DeviceLabel("node", host), np.array([at]), np.array([1.0])))
    return Batch("prometheus", at - TICK_S, at, series=tuple(series))


def kernel(ts: float, arrival: float, node: int, gpu: int, code: int) -> Batch:
    row = {"ts": ts, "host": name(node), "source": "kernel", "line": XID.format(pci=16 + gpu, code=code)}
    return logs_batch(read_rows(line(row), "application/jsonl", arrival), arrival, parse)
