"""The 48 h history: a tick of 100,000 GPUs x 10 metrics against numpy copying its arrays; what a page reads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path

import numpy as np

from backend.history import KEPT, History
from backend.history_file import CELL_S, CELLS
from benchmarks.ratio import Ratio, measure
from benchmarks.tick import INTERVAL_S, fleet_of
from detectors.model import Fleet, FloatArray, MetricKey, Tick

NODES = 12_500
#: Of the page: 8 GPUs of one node, and what is drawn of each.
GPUS = 8
DRAWN = ("temperature_c", "power_w", "sm_clock_mhz")
METRICS = [key for key in KEPT if key[0] == "gpu"]
#: A cell begins every 20 ticks: so many pairs of measurements hold ten of the dear ticks that begin one.
PAIRS = 200
T0 = 1_800_000_000.0


def run() -> Iterator[Ratio]:
    fleet = fleet_of(NODES)
    with tempfile.TemporaryDirectory() as folder:
        yield added(fleet, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield read(fleet_of(1), Path(folder))


def arrays(fleet: Fleet, seed: int) -> dict[MetricKey, FloatArray]:
    """Ten arrays; one GPU in a hundred says nothing."""
    random = np.random.default_rng(seed)
    n = len(fleet.axes["gpu"])
    made = {key: (600 + 10 * random.standard_normal(n, np.float32)).astype(np.float32) for key in METRICS}
    for array in made.values():
        array[random.random(n) < 0.01] = np.nan
    return made


def added(fleet: Fleet, folder: Path) -> Ratio:
    """A tick with all that it takes, cells that begin included."""
    history = History.open(folder, "main", METRICS, "write")
    variants = [arrays(fleet, seed) for seed in range(4)]
    ours, peers, ticks = cycle(variants), cycle(variants), count(1)

    def ours_() -> None:
        history.add(Tick(T0 + next(ticks) * INTERVAL_S, next(ours)), fleet)

    def peer() -> None:
        for array in next(peers).values():
            array.copy()

    promise = f"a tick of {len(fleet.axes['gpu']):,} GPUs x {len(METRICS)} metrics into the history"
    return measure(promise, "numpy copying its arrays", ours_, peer, n=PAIRS)


def read(fleet: Fleet, folder: Path) -> Ratio:
    """48 h of 8 GPUs x 3 metrics as a page reads them, against reading an array of just the same numbers."""
    history = History.open(folder, "main", METRICS, "write")
    values = arrays(fleet, 0)
    for cell in range(CELLS):
        history.add(Tick(T0 + cell * CELL_S + INTERVAL_S, values), fleet)
    reader, ids = History.open(folder, "main", METRICS), fleet.axes["gpu"].ids[:GPUS]
    plain = folder / "plain.npy"
    np.save(plain, np.zeros((CELLS, len(DRAWN), 3, GPUS), np.float32))

    def ours() -> None:
        for metric in DRAWN:
            reader.read_many("gpu", ids, metric, T0, T0 + CELLS * CELL_S)

    promise = f"48 h of {GPUS} GPUs x {len(DRAWN)} metrics for a page"
    return measure(promise, "numpy loading a file of the same numbers", ours, lambda: np.load(plain), n=100)
