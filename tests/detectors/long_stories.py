"""Stories long enough for detectors that learn: most of an hour of one small cluster, in which much goes wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from detectors.check_detector import Story
from detectors.model import BoolArray, Event, Fleet, FloatArray, MetricKey, Tick
from tests.detectors.fleets import T0, entity, fleet_of, kernel, verdict

NODES, GPUS, TICKS, STEP_S = 3, 4, 44, 60.0
#: Metrics of a job at work, and while all of its ranks wait for one.
AT_WORK = {
    "temperature_c": 62.0,
    "power_w": 640.0,
    "sm_clock_mhz": 1905.0,
    "utilisation_pct": 99.0,
    "fb_used_mib": 70_000.0,
    "nvlink_bytes": 9e10,
    "tensor_active_ratio": 0.5,
    "dram_active_ratio": 0.4,
}
WAITING = {"power_w": 130.0, "nvlink_bytes": 1e5, "tensor_active_ratio": 0.001, "dram_active_ratio": 0.001}
#: What is ill from the middle on: by name of a GPU, node, port or mount, the metrics that read otherwise.
ILL: dict[str, dict[str, float]] = {
    "gpu-0001/gpu1": {"temperature_c": 88.0, "sm_clock_mhz": 1200.0, "throttle_mask": 64.0},
    "gpu-0002/gpu2": {"remap_correctable": 0.01, "ecc_sbe_volatile": 0.5, "pcie_replay": 0.9},
    "gpu-0002/gpu3": {"remap_failure": 1.0, "pcie_width_lanes": 4.0},
    "gpu-0002": {"node_edac_ue": 0.1, "node_oom_kills": 0.1, "node_clock_behind_s": 90.0,
                 "node_memory_available_bytes": 1e9},
    "gpu-0002/nic:mlx5_0": {"nic_state": 1.0, "nic_symbol_errors": 9.0, "nic_link_downed": 0.01},
    "gpu-0003/mount:/scratch": {"mount_readonly": 1.0, "mount_avail_bytes": 1e8},
    "gpu-0003/mount:store:/export/scratch#WRITE": {"op_request_s": 90.0, "op_queue_s": 80.0},
}  # fmt: skip
RESTS: dict[MetricKey, float] = {
    ("gpu", "throttle_mask"): 0.0, ("gpu", "remap_correctable"): 0.0, ("gpu", "ecc_sbe_volatile"): 0.0,
    ("gpu", "pcie_replay"): 0.0, ("gpu", "remap_failure"): 0.0, ("gpu", "pcie_width_lanes"): 16.0,
    ("gpu", "pcie_width_max_lanes"): 16.0,
    ("node", "node_load1"): 40.0, ("node", "node_procs_running"): 30.0, ("node", "node_memory_available_bytes"): 5e11,
    ("node", "node_memory_total_bytes"): 1e12, ("node", "node_uptime_s"): 1e6, ("node", "node_oom_kills"): 0.0,
    ("node", "node_edac_ue"): 0.0, ("node", "node_clock_behind_s"): 0.1, ("node", "node_procs_blocked"): 1.0,
    ("nic", "nic_state"): 4.0, ("nic", "nic_link_downed"): 0.0, ("nic", "nic_symbol_errors"): 0.0,
    ("nic", "nic_rate_bytes_s"): 5e10, ("nic", "nic_tx_bytes"): 1e9,
    ("mount", "mount_avail_bytes"): 5e11, ("mount", "mount_size_bytes"): 1e12, ("mount", "mount_readonly"): 0.0,
    ("mount_op", "op_requests"): 10.0, ("mount_op", "op_request_s"): 0.1, ("mount_op", "op_queue_s"): 0.01,
    ("mount_op", "op_response_s"): 0.08,
}  # fmt: skip
#: By tick: whom a line speaks of, and the line. Slurm's words have no line.
LINES = (
    (20, "gpu-0001/gpu0", "NVRM: Xid (PCI:0000:9b:00): 79, pid=42, name=python3, GPU has fallen off the bus."),
    (22, "gpu-0002", "mlx5_core 0000:4b:00.0 enp75s0np0: Link down"),
    (22, "gpu-0003", "watchdog: BUG: soft lockup - CPU#5 stuck for 22s! [python3:4242]"),
    (23, "gpu-0003", "nfs: server nfs-17 not responding, still trying"),
    (24, "gpu-0002", "systemd[1]: Failed to start NVIDIA fabric manager service."),
    (24, "gpu-0002/gpu1", "nvidia 0000:9b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, "
                          "(Requester ID)"),
)  # fmt: skip


def long_stories() -> Iterable[Story]:
    """An hour in which things break one after the other; then the same where the whole job stops in the end."""
    return (_told(1, halts=False), _told(2, halts=True))


def _told(seed: int, *, halts: bool) -> Story:
    dice, fleets = np.random.default_rng(seed), (fleet_of(NODES, GPUS), fleet_of(NODES, GPUS, epoch=2))
    return Story(tuple(_step(fleets[place >= TICKS // 2], place, dice, halts) for place in range(TICKS)))


def _step(fleet: Fleet, place: int, dice: np.random.Generator, halts: bool) -> tuple[Fleet, Tick]:
    at, late = T0 + STEP_S * place, place >= TICKS // 2
    stopped = halts and place >= TICKS - 10
    values: dict[MetricKey, FloatArray] = {}
    for metric, usual in AT_WORK.items():
        level = WAITING.get(metric, usual) if stopped else usual
        # One card is slow in the first of the two: the others wait for it.
        slower = 0.7 if late and not halts and metric in ("power_w", "nvlink_bytes") else 1.0
        column = level * (1 + 0.002 * dice.standard_normal(NODES * GPUS)) * slower
        column[5] /= slower if metric == "power_w" else 1.0
        values["gpu", metric] = column.astype(np.float32)
    for key, rest in RESTS.items():
        still = stopped and key[1] == "nic_tx_bytes"
        values[key] = np.full(len(fleet.axes[key[0]]), 1e4 if still else rest, np.float32)
    if late:
        for name, odd in ILL.items():
            _spoil(fleet, values, name, odd)
    _silence(values, place)
    sampled: dict[MetricKey, BoolArray] = {key: fleet.axes[key[0]].live.copy() for key in values}
    return fleet, Tick(at, values, sampled, tuple(_said(fleet, place, at)))


def _spoil(fleet: Fleet, values: dict[MetricKey, FloatArray], name: str, odd: dict[str, float]) -> None:
    for (kind, metric), column in values.items():
        axis = fleet.axes[kind]
        rows = [row for row in range(len(axis)) if name == (axis.names[row] if kind == "gpu" else axis.ids[row])]
        if metric in odd:
            column[rows] = odd[metric]


def _silence(values: dict[MetricKey, FloatArray], place: int) -> None:
    """From tick 12 a card is gone; from tick 30 the last node's exporter repeats itself."""
    for metric in AT_WORK:
        values["gpu", metric][3] = np.nan if place >= 12 else values["gpu", metric][3]
        if place >= 30:
            values["gpu", metric][2 * GPUS :] = AT_WORK[metric]


def _said(fleet: Fleet, place: int, at: float) -> list[Event]:
    said = [kernel(fleet, name, at - 1.0, line, place) for when, name, line in LINES if when == place]
    if place == 25:
        said.append(Event(at - 1.0, entity(fleet, "gpu-0003"), "slurm", "node_not_responding", "", place))
        said.append(Event(at - 1.0, entity(fleet, "gpu-0002"), "slurm", "node_down", "", place))
    if place == 26:
        said.append(replace(verdict(fleet, "gpu-0001", at - 1.0, "ecc_uncorrectable"), seq=place))
    if place in (27, 28, 29):
        said.append(Event(at - 1.0, entity(fleet, f"gpu-{place - 26:04d}"), "slurm", "controller_lost", "", place))
    if place in (31, 33, 35):
        tried = {"job": "48300", "run": "atlas", "user": "ada", "started": f"{at - 61.0:.0f}", "exclude": "no"}
        said.append(replace(verdict(fleet, "", at - 1.0, "python_exception", more=tried), seq=place))
    return said
