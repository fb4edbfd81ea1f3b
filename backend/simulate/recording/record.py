"""Writes a whole replay bundle of a make-believe cluster, with its truth: the same arguments, the same bytes."""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from backend.simulate.recording import plant as plants
from backend.simulate.recording.accounts import sacct, scheduler_lines
from backend.simulate.recording.columns import Columns
from backend.simulate.recording.doings import Doings
from backend.simulate.recording.effects import Field
from backend.simulate.recording.exporters import gpu_metrics
from backend.simulate.recording.lessons import Lessons
from backend.simulate.recording.matter import BLANK, Cards
from backend.simulate.recording.noise import Noise
from backend.simulate.recording.openmetrics import Spans, Telemetry
from backend.simulate.recording.papers import write_logs, write_training, write_truth
from backend.simulate.recording.scenario import scene
from backend.simulate.recording.scene import Scene
from backend.simulate.recording.scrapes import Scrapes, scrapes
from backend.simulate.recording.surroundings import Hosts
from backend.simulate.recording.work import Segments, segments

Floats = NDArray[np.float64]
Tell = Callable[[str, float], None]

#: A Tuesday morning; every recording of a seed begins some days after it.
EPOCH = 1_772_524_800.0
DAY_S = 86_400.0
SITE_JOBS = ("slurm-exporter", "log-shipper")


class RecordingError(ValueError):
    """A recording that cannot be made: what is wrong and how to mend it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What to record. ``interval_s`` between scrapes."""

    seed: int = 1
    scenario: str = "mixed"
    nodes: int = 24
    gpus: int = 8
    hours: float = 24.0
    interval_s: float = 30.0


def record(out: Path, wish: Wish, tell: Tell = lambda what, share: None) -> int:
    """Write the bundle into ``out``, which must be new or empty; how many faults its truth holds.

    ``tell`` hears what is being done and the share of it. Raises RecordingError or ScenarioError.
    """
    _check(out, wish)
    start = EPOCH + wish.seed % 200 * DAY_S
    ticks = max(2, round(wish.hours * 3600.0 / wish.interval_s))
    end = start + ticks * wish.interval_s
    site = plants.plant(wish.seed, wish.nodes, wish.gpus)
    stage = scene(site, wish.scenario, start, end)
    scheduler_lines(stage)
    planned = [segments(attempt, end + 1.0) for attempt in stage.table.attempts]
    times = scrapes(wish.seed, start, ticks, wish.interval_s, wish.nodes)
    for folder in ("telemetry", "logs", "jobs", "training"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    _write_json(
        out / "bundle.json", {"version": 1, "cluster": site.cluster, "start": start, "end": end, "timezone": "UTC"}
    )
    _write_json(out / "topology.json", plants.topology(site))
    (out / "jobs" / "sacct.txt").write_text("".join(f"{line}\n" for line in sacct(site, stage.table.attempts, end)))
    with tempfile.TemporaryDirectory(dir=out, prefix=".columns-") as folder:
        columns = Columns(Path(folder))
        speeds = _observe(stage, planned, times, columns, tell)
        _write_telemetry(out / "telemetry", stage, times, columns, tell)
    lessons = [_lessons(stage, run.row, speeds, times) for run in stage.table.runs]
    write_training(out, stage, planned, lessons)
    tell("logs", 0.0)
    write_logs(out, stage, lessons)
    return write_truth(out, stage, times, planned, lessons)


def _check(out: Path, wish: Wish) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RecordingError(f"{out} exists and is not empty; give a new folder")
    if not (2 <= wish.nodes <= 4096 and 1 <= wish.gpus <= 16):
        raise RecordingError("a site has 2 to 4096 nodes of 1 to 16 GPUs")
    if not (0.25 <= wish.hours <= 24.0 * 60 and 1.0 <= wish.interval_s <= 300.0):
        raise RecordingError("a recording lasts 0.25 hours to 60 days, scraped every 1 to 300 s")


def _lessons(stage: Scene, run: int, speeds: Floats, times: Scrapes) -> Lessons:
    begins = times.ticks

    def speed_at(at: float) -> float:
        return float(speeds[max(bisect_right(begins, at) - 1, 0), run])

    who = stage.table.runs[run]
    dips = [dip for dip in stage.dips if dip.run == who.name]
    return Lessons(who, dips, speed_at, stage.start, stage.end, stage.site.cards_a_node)


def _observe(stage: Scene, planned: list[Segments], times: Scrapes, columns: Columns, tell: Tell) -> Floats:
    """Let the world live from scrape to scrape and keep what it shows; speeds float64[ticks, runs]."""
    site, field = stage.site, Field(stage.effects)
    doings = Doings(stage.table.attempts, planned)
    cards = Cards(site, stage.table.runs, times.interval_s)
    hosts = Hosts(site, stage.start, times.interval_s)
    watch = _Watch(stage, field, times)
    boots = sorted(stage.boots, key=lambda boot: -boot[1])
    ticks = len(times.gpu)
    speeds = np.ones((ticks, len(stage.table.runs)))
    for tick in range(ticks):
        at_gpu, at_node = times.gpu[tick], times.node[tick]
        noise = Noise.of(site.seed, tick)
        by_gpu, by_node = doings.at(at_gpu, at_node)
        if tick == 0:
            cards.settle(by_gpu, at_gpu[site.node_of_card], field)
        while boots and boots[-1][1] <= float(at_gpu[boots[-1][0]]):
            row, at = boots.pop()
            cards.reboot(np.flatnonzero(site.node_of_card == row))
            hosts.reboot(row, at)
        cards.forget_codes(np.flatnonzero(watch.restarted(at_gpu)[site.node_of_card]))
        seen = cards.step(by_gpu, at_gpu[site.node_of_card], field, noise)
        speeds[tick] = cards.speed
        around = hosts.step(by_node, speeds[max(tick - 1, 0)], at_node, field, noise)
        columns.add(watch.shown(tick, seen, around))
        if tick % 20 == 0:
            tell("world", tick / ticks)
    columns.flush()
    return speeds


class _Watch:
    """What of a moment the exporters show: nothing while they are away, the old while they are frozen."""

    def __init__(self, stage: Scene, field: Field, times: Scrapes) -> None:
        self._site, self._field, self._times, self._start = stage.site, field, times, stage.start
        self._wanted = {metric.reading for metric in gpu_metrics()}
        self._profiled = {m.reading for m in gpu_metrics() if "_PROF_" in m.name and m.reading != "none"}
        self._held: dict[str, Floats] = {}
        self._away = np.zeros(len(stage.site.nodes), np.bool_)

    def restarted(self, now: Floats) -> NDArray[np.bool_]:
        """Nodes whose GPU exporter is back since the last time this was asked."""
        away = self._field.read("gpu_dark", now) > 0
        back, self._away = self._away & ~away, away
        return back

    def shown(self, tick: int, cards: dict[str, Floats], around: dict[str, dict[str, Floats]]) -> dict[str, Floats]:
        """All columns of one tick; NaN where a series has no sample."""
        site, field = self._site, self._field
        up = {name: self._up(name, tick) for name in ("gpu", "node")}
        at_cards = self._times.gpu[tick][site.node_of_card]
        gone, blank = field.read("gone", at_cards) > 0, field.read("blank", at_cards) > 0
        found: dict[str, Floats] = {}
        for name in self._wanted:
            values = np.where(blank, BLANK, cards[name]) if name in self._profiled else cards[name]
            found[f"gpu.{name}"] = np.where(gone, np.nan, values)
        of = {"node": np.arange(len(site.nodes)), "nic": site.node_of_port,
              "call": np.repeat(np.arange(len(site.nodes)), 3),
              "mount": np.tile(np.arange(len(site.nodes)), 2)}  # fmt: skip
        for axis, readings in around.items():
            found |= {f"{axis}.{name}": values for name, values in readings.items()}
        self._freeze(found, {**of, "gpu": site.node_of_card}, tick)
        for name in found:
            axis = name.partition(".")[0]
            alive = (up["gpu"] == 1)[site.node_of_card] if axis == "gpu" else (up["node"] == 1)[of[axis]]
            found[name] = np.where(alive, found[name], np.nan)
        found["up.gpu"], found["up.node"] = up["gpu"], up["node"]
        site_at = np.full(1, self._times.node[tick, 0])
        found["up.site"] = np.array([1.0 - field.read(name, site_at)[0] for name in ("scheduler_away", "shipper_away")])
        return found

    def _up(self, exporter: str, tick: int) -> Floats:
        """1 up, 0 down, NaN where no scrape was made."""
        gpu = exporter == "gpu"
        now = self._times.gpu[tick] if gpu else self._times.node[tick]
        fate = self._times.gpu_fate[tick] if gpu else self._times.node_fate[tick]
        down = (self._field.read("off", now) > 0) | (self._field.read(f"{exporter}_dark", now) > 0) | (fate == 1)
        return np.where((fate == 2) | (self._field.read("unseen", now) > 0), np.nan, np.where(down, 0.0, 1.0))

    def _freeze(self, found: dict[str, Floats], of: dict[str, NDArray[np.intp]], tick: int) -> None:
        frozen = (self._field.read("frozen", self._times.gpu[tick]) > 0)[of["gpu"]]
        if frozen.any():
            for name in [one for one in found if one.startswith("gpu.") and one in self._held]:
                found[name] = np.where(frozen, self._held[name], found[name])
        self._held = dict(found)


def _write_telemetry(folder: Path, stage: Scene, times: Scrapes, columns: Columns, tell: Tell) -> None:
    telemetry = Telemetry(folder, stage.site, times, columns)
    total, done = len(gpu_metrics()) + 40, [0]

    def one_more() -> None:
        done[0] += 1
        tell("telemetry", min(done[0] / total, 1.0))

    telemetry.cards([_spans(stage, row) for row in range(len(stage.site.nodes))], stage.twins, one_more)
    telemetry.hosts(one_more)
    telemetry.ups(SITE_JOBS)


def _spans(stage: Scene, row: int) -> Spans:
    """What the labels of a node's cards say over time: the job that holds it, the driver it runs."""
    node = stage.site.nodes[row]
    jobs = [(a.start, stage.end + 1e6 if a.end is None else a.end, {"hpc_job": a.job})
            for a in stage.table.attempts if row in a.nodes and not node.pods]  # fmt: skip
    said = [
        *jobs,
        *((begin, end, more) for one, begin, end, more in stage.relabels if one == row and node.style != "amd"),
    ]
    edges = sorted({float("-inf"), float("inf"), *(x for begin, end, _ in said for x in (begin, end))})
    spans: list[tuple[float, float, dict[str, str]]] = []
    for begin, end in zip(edges, edges[1:], strict=False):
        more: dict[str, str] = {}
        for a, b, labels in said:
            if a <= begin and end <= b:
                more |= labels
        spans.append((begin, end, more))
    return spans


def _write_json(path: Path, value: object) -> None:
    path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")
