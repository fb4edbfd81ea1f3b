"""A bundle of 24 nodes x 8 GPUs x 60 metrics, scraped every 30 s, replayed on one core: against real time, and how the
memory grows with its length."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from detectors.catalogue import Metric, load
from detectors.registry import detectors

NODES, GPUS, METRICS = 24, 8, 60
SCRAPE_S = 30.0
BEGIN = 1_770_120_000.0
HOURS = (1, 6)
RUNS = 5
XID = "NVRM: Xid (PCI:0000:{pci:02x}:00): {code}, pid=77, name=python3, Ch 00000008"
#: Usual level of the metrics that detectors compare.
LEVELS = {"temperature_c": 62.0, "power_w": 640.0, "sm_clock_mhz": 1830.0, "utilisation_pct": 97.0, "node_up": 1.0}
#: What GPU 5 of node 3 adds to them in the last ten minutes of each hour.
ILL = {"temperature_c": 30.0, "sm_clock_mhz": -600.0}
HEADER = "JobIDRaw|JobID|JobName|User|State|Restarts|Submit|Eligible|Start|End|NNodes|NodeList|AllocTRES|SubmitLine"


@dataclass(frozen=True, slots=True)
class Speed:
    """How much faster than real time one bundle was replayed in each run, and the peak memory of each, in bytes."""

    hours: int
    samples: int
    bundle_bytes: int
    wall: tuple[float, ...]
    cpu: tuple[float, ...]
    rss: tuple[int, ...]

    def __str__(self) -> str:
        what = f"replay of {self.hours} h x {NODES} nodes x {GPUS} GPUs x {METRICS} metrics / {SCRAPE_S:.0f} s"
        size = f"{self.samples / 1e6:.2f} M samples, {self.bundle_bytes / 1e6:.0f} MB"
        peak = f"peak memory {max(self.rss) / 1e6:.0f} MB"
        return f"{what} ({size}): {_spread(self.cpu)} x real time by CPU, {_spread(self.wall)} by the wall; {peak}"


def _spread(values: tuple[float, ...]) -> str:
    q1, median, q3 = np.percentile(values, (25, 50, 75))
    return f"{median:.0f} (quartiles {q1:.0f} to {q3:.0f}, n = {len(values)})"


def run() -> Iterator[Speed]:
    with tempfile.TemporaryDirectory(prefix="watchkeeper-bench-") as folder:
        for hours in HOURS:
            bundle = Path(folder) / f"{hours}h"
            samples = write(bundle, hours)
            yield measured(bundle, Path(folder) / "out", hours, samples, RUNS if hours == 1 else 2)


def measured(bundle: Path, out: Path, hours: int, samples: int, runs: int) -> Speed:
    """Each run is a process of its own, with its imports, held to one core."""
    found = [_replayed(bundle, out) for _ in range(runs)]
    size = sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file())
    return Speed(
        hours,
        samples,
        size,
        tuple(3600 * hours / one["wall_s"] for one in found),
        tuple(3600 * hours / one["cpu_s"] for one in found),
        tuple(one["peak_rss_bytes"] for one in found),
    )


def _replayed(bundle: Path, out: Path) -> dict[str, Any]:
    core = {sorted(os.sched_getaffinity(0))[0]}
    done = subprocess.run(
        [sys.executable, "-m", "backend.cli", "replay", str(bundle), "--out", str(out), "--json"],
        check=True,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.sched_setaffinity(0, core),
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    summary: dict[str, Any] = orjson.loads(done.stdout)["summary"]
    return summary


def write(folder: Path, hours: int) -> int:
    """A quiet cluster with one job, where each hour one GPU speaks an Xid and one throttles. Returns its samples."""
    (folder / "telemetry").mkdir(parents=True)
    (folder / "logs").mkdir()
    (folder / "jobs").mkdir()
    (folder / "topology.json").write_bytes(orjson.dumps({"nodes": [_node(n) for n in range(NODES)]}))
    times = BEGIN + SCRAPE_S * np.arange(round(3600 * hours / SCRAPE_S))
    samples = _gpu_telemetry(folder / "telemetry" / "dcgm.om", times)
    samples += _up(folder / "telemetry" / "up.om", times)
    line = XID.format(pci=16, code=94)
    said = ((BEGIN + 3600 * hour + 1800, _name(hour % NODES)) for hour in range(hours))
    lines = [{"ts": ts, "host": host, "source": "kernel", "line": line} for ts, host in said]
    (folder / "logs" / "kernel.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in lines))
    nodes = f"gpu-[0000-{NODES - 1:04d}]"
    tres = f"gres/gpu={NODES * GPUS},node={NODES}"
    row = f"7|7|train|ada|RUNNING|0|{BEGIN:.0f}|{BEGIN:.0f}|{BEGIN:.0f}|Unknown|{NODES}|{nodes}|{tres}|sbatch train.sh"
    (folder / "jobs" / "sacct.txt").write_text(f"{HEADER}\n{row}\n")
    return samples


def _name(node: int) -> str:
    return f"gpu-{node:04d}"


def _uuid(node: int, gpu: int) -> str:
    return f"GPU-{node:08x}-0000-0000-0000-{gpu:012x}"


def _node(node: int) -> dict[str, Any]:
    gpus = [{"index": g, "uuid": _uuid(node, g), "pci_bus_id": f"00000000:{16 + g:02X}:00.0"} for g in range(GPUS)]
    return {"name": _name(node), "rack": f"r{node // 8}", "switch": f"s{node // 8}", "model": "H100", "gpus": gpus}


def _gpu_telemetry(path: Path, times: np.ndarray[Any, Any]) -> int:
    """METRICS metrics of GPUs, family by family as scrapes are dumped: those that detectors ask for, others of the
    catalogue, and a quarter that nobody knows."""
    catalogue = load()
    asked = {need for detector in detectors(catalogue) for need in detector.needs}
    gpu = sorted((m for m in catalogue.metrics.values() if m.axis == "gpu"), key=lambda m: m.key not in asked)
    named: list[tuple[str, Metric | None]] = [(m.aliases[0], m) for m in gpu[: METRICS * 3 // 4]]
    named += [(f"DCGM_FI_PROF_OTHER_{n:02d}", None) for n in range(METRICS - len(named))]
    dice = np.random.default_rng(1)
    jitter = np.round(dice.uniform(0, 0.02, NODES), 3)
    with path.open("w") as out:
        for name, metric in named:
            out.write(f"# TYPE {name} gauge\n")
            for node in range(NODES):
                at = [f"{t:.3f}" for t in (times + jitter[node]).tolist()]
                for gpu in range(GPUS):
                    labels = f'gpu="{gpu}",UUID="{_uuid(node, gpu)}",pci_bus_id="00000000:{16 + gpu:02X}:00.0"'
                    labels += f',device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="{_name(node)}"'
                    head = f'{name}{{{labels},hpc_job="7",instance="{_name(node)}:9400",job="dcgm"}} '
                    values = _values(metric, times.size, dice)
                    if metric is not None and (node, gpu) == (3, 5):
                        values[(times - BEGIN) % 3600 > 3000] += ILL.get(metric.name, 0.0)
                    out.writelines(f"{head}{v:g} {t}\n" for v, t in zip(values.tolist(), at, strict=True))
        out.write("# EOF\n")
    return len(named) * NODES * GPUS * times.size


def _values(metric: Metric | None, size: int, dice: np.random.Generator) -> np.ndarray[Any, Any]:
    if metric is None:
        return np.round(dice.uniform(0, 1, size), 4)
    if metric.kind == "counter":
        rises = dice.integers(0, 1_000_000, size) if metric.name == "nvlink_bytes" else np.zeros(size)
        return np.cumsum(rises).astype(np.float64)
    level = LEVELS.get(metric.name, 0.0)
    return np.round(level * (1 + 0.01 * dice.standard_normal(size)), 1)


def _up(path: Path, times: np.ndarray[Any, Any]) -> int:
    with path.open("w") as out:
        out.write("# TYPE up gauge\n")
        for node in range(NODES):
            head = f'up{{instance="{_name(node)}:9400",job="dcgm"}} 1 '
            out.writelines(f"{head}{t:.3f}\n" for t in times.tolist())
        out.write("# EOF\n")
    return NODES * times.size
