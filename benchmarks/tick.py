"""A telemetry tick of 10,000 GPUs through all detectors, against numpy adding up the same arrays: every metric that a
detector asks for, of GPUs, nodes, ports, mounts and NFS calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks.ratio import Ratio, measure
from detectors.catalogue import Catalogue, load
from detectors.model import Axis, Fleet, FloatArray, MetricKey, Tick
from detectors.registry import detectors

NODES, GPUS, METRICS = 1250, 8, 20
INTERVAL_S = 15.0
#: Different ticks, so that no branch and no cache learns one of them by heart.
VARIANTS = 8
#: Sizes of the jobs, in nodes, until all nodes are taken: few large ones, many small ones.
JOBS = (512, 256, 128, 64, 64, 32, 32, 16, 16, 16, 8, 8, 8, 8, 4, 4, 4, 4, 2, 2)
#: Usual level of the metrics that detectors compare; the others are flat.
LEVELS = {"temperature_c": 62.0, "power_w": 640.0, "sm_clock_mhz": 1830.0, "utilisation_pct": 97.0, "node_up": 1.0}
LEVELS |= {"pcie_width_lanes": 16.0, "fabric_health": 1.0, "fabric_manager_state": 3.0, "health_amd": 1.0}
LEVELS |= {
    "nic_state": 4.0,
    "nic_carrier": 1.0,
    "nic_rate_bytes_s": 5e10,
    "nic_speed_bytes_s": 5e10,
    "nic_tx_bytes": 1e10,
}
LEVELS |= {"nic_rx_bytes": 1e10, "nic_tx_wait": 1000.0, "mount_avail_bytes": 5e14, "mount_size_bytes": 1e15}
LEVELS |= {"op_requests": 50.0, "op_request_s": 0.5, "op_queue_s": 0.1, "node_uptime_s": 1e6, "node_clock_synced": 1.0}
LEVELS |= {"node_memory_available_bytes": 1e12, "node_memory_total_bytes": 2e12, "node_procs_running": 60.0}
#: What never differs between two rows or two looks.
FLAT = ("enum", "since")
#: Rows of a node on the other axes, as their ids end.
PARTS = {"nic": [f"nic:mlx5_{n}" for n in range(8)], "mount": ["mount:/", "mount:/scratch"]}
PARTS |= {"mount_op": [f"mount:store:/x#{call}" for call in ("READ", "WRITE", "GETATTR", "COMMIT")]}


def run() -> Iterator[Ratio]:
    catalogue = load()
    fleet = fleet_of(NODES)
    quiet = [tick_of(catalogue, fleet, seed, 0.0) for seed in range(VARIANTS)]
    sick = [tick_of(catalogue, fleet, seed, 0.01) for seed in range(VARIANTS)]
    for name, ticks in (("a quiet tick", quiet), ("a tick with 1 % of GPUs in trouble", sick)):
        for only in ("", *(d.name for d in detectors(catalogue))):
            yield compared(Course(catalogue, fleet, quiet, only), ticks, name)


class Course:
    """All detectors, or ``only`` one of them, that have seen a healthy fleet before; time goes on with each step."""

    def __init__(self, catalogue: Catalogue, fleet: Fleet, quiet: list[Tick], only: str = "") -> None:
        self.words = only or "all detectors"
        self.detectors = [d for d in detectors(catalogue) if only in ("", d.name)]
        self.states: dict[str, Any] = {d.name: d.start(fleet) for d in self.detectors}
        self.fleet = fleet
        self.now = 1_800_000_000.0
        self.findings = 0
        for tick in quiet:
            self.step(tick)

    def step(self, seen: Tick) -> None:
        self.now += INTERVAL_S
        tick = Tick(self.now, seen.values, seen.sampled)
        judged = [detector.step(self.states[detector.name], tick, self.fleet) for detector in self.detectors]
        self.findings = sum(len(each.findings) for each in judged)


def compared(course: Course, ticks: list[Tick], name: str) -> Ratio:
    """The course over ``ticks`` against the sum of all arrays of the same ticks."""
    coming, summed = cycle(ticks), cycle(ticks)

    def peer() -> None:
        for array in next(summed).values.values():
            array.sum()

    found = measure("", "numpy summing it", lambda: course.step(next(coming)), peer, n=40, warm=12)
    return replace(found, promise=f"{name} through {course.words} ({course.findings} findings)")


def fleet_of(nodes: int) -> Fleet:
    """``nodes`` nodes of eight GPUs, in racks of 16, all in a job."""
    names = tuple(f"gpu-{n:04}" for n in range(nodes))
    sizes = [size for size, _ in zip(cycle(JOBS), range(nodes), strict=False)]
    job_of = np.repeat(np.arange(nodes), sizes)[:nodes].astype(np.int32)
    jobs = tuple(f"{48000 + n}" for n in range(int(job_of.max()) + 1))
    racks = tuple(f"r{n:03}" for n in range(nodes // 16 + 1))
    node = axis_of("node", names, names, np.arange(nodes), job_of)
    of_gpu = np.repeat(np.arange(nodes), GPUS)
    uuids = tuple(f"GPU-{n:06}" for n in range(nodes * GPUS))
    gpu = axis_of("gpu", uuids, tuple(f"{names[n // GPUS]}/gpu{n % GPUS}" for n in range(nodes * GPUS)), of_gpu, job_of)
    axes = {"node": node, "gpu": gpu}
    for kind, ends in PARTS.items():
        ids = tuple(f"{name}/{end}" for name in names for end in ends)
        axes[kind] = axis_of(kind, ids, ids, np.repeat(np.arange(nodes), len(ends)), job_of)
    slots = {(a.kind, id_): slot for a in axes.values() for slot, id_ in enumerate(a.ids)}
    return Fleet("main", 1, axes, names, jobs, ("",), ("H100",), racks, slots)


def axis_of(kind: str, ids: tuple[str, ...], names: tuple[str, ...], node_of: Any, job_of_node: Any) -> Axis:
    job_of = job_of_node[node_of].astype(np.int32)
    none = np.zeros(len(ids), np.int32)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(job_of)) + 1, [len(ids)]]).astype(np.int32)
    return Axis(
        kind=kind,
        ids=ids,
        names=names,
        live=np.ones(len(ids), np.bool_),
        node_of=node_of.astype(np.int32),
        job_of=job_of,
        role_of=none,
        model_of=none,
        rack_of=(node_of // 16).astype(np.int32),
        by_peers=np.arange(len(ids), dtype=np.int32),
        peer_starts=starts,
    )


def tick_of(catalogue: Catalogue, fleet: Fleet, seed: int, bad: float) -> Tick:
    """METRICS arrays of GPUs at least, and those of the other axes. ``bad``: the share of GPUs that run hot, a quarter
    of them gone."""
    random = np.random.default_rng(seed)
    sick = np.random.default_rng(0).random(len(fleet.axes["gpu"])) < bad
    values: dict[MetricKey, FloatArray] = {}
    needs = {need for detector in detectors(catalogue) for need in detector.needs if isinstance(need, tuple)}
    named = sorted(needs)
    named += [("gpu", f"other_{n}") for n in range(METRICS - sum(axis == "gpu" for axis, _ in named))]
    for key in named:
        n = len(fleet.axes[key[0]])
        level = LEVELS.get(key[1], 0.0)
        known = catalogue.metrics.get(key[1])
        flat = level in (0.0, 1.0) or (known is not None and known.kind in FLAT)
        noise = random.standard_normal(n, np.float32) * np.float32(0.0 if flat else 0.01 * level)
        values[key] = (np.float32(level) + noise).astype(np.float32)
    values["gpu", "temperature_c"][sick] += 30
    values["gpu", "sm_clock_mhz"][sick] -= 600
    for key in named:
        if key[0] == "gpu":
            values[key][np.flatnonzero(sick)[::4]] = np.nan
    return Tick(0.0, values, {key: np.ones(array.size, np.bool_) for key, array in values.items()})
