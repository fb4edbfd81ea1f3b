"""Stories that hypothesis makes up: small fleets, gaps, jobs that come and go, codes, boots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from detectors.check_detector import Story
from detectors.model import BoolArray, Event, Fleet, FloatArray, MetricKey, Tick
from tests.detectors.fleets import T0, USUAL, boot, entity, fleet_of, kernel, verdict, xid

CODES = (79, 79, 48, 94, 94, 95, 13, 31, 43, 45, 63, 64, 74, 119, 145, 149, 154, 162, 999)
CLASSES = ("ecc_uncorrectable", "cuda_oom", "nccl_timeout_hang", "clean_success", "a_class_of_tomorrow")
HOST_USUAL = {"node_load1": 40.0, "node_memory_available_bytes": 1e12, "node_procs_running": 30.0}
#: By metric, what it may read: the first in health, the last at what is ill.
PARTS_READ: dict[MetricKey, tuple[float, ...]] = {
    ("nic", "nic_state"): (4.0, 4.0, 1.0),
    ("nic", "nic_link_downed"): (0.0, 0.0, 0.1),
    ("nic", "nic_symbol_errors"): (0.0, 0.0, 5.0),
    ("nic", "nic_rate_bytes_s"): (5e10, 5e10, 2.5e10),
    ("nic", "nic_tx_bytes"): (1e9, 2e9, 2e8),
    ("nic", "nic_tx_wait"): (10.0, 100.0, 1e5, np.nan),
    ("nic", "nic_retransmits"): (0.0, 1.0, 500.0),
    ("mount", "mount_avail_bytes"): (5e11, 1e11, 1e9),
    ("mount", "mount_size_bytes"): (1e12,),
    ("mount", "mount_readonly"): (0.0, 0.0, 1.0),
    ("mount_op", "op_requests"): (10.0, 0.0, 100.0),
    ("mount_op", "op_request_s"): (0.1, 5.0, 100.0),
    ("mount_op", "op_queue_s"): (0.01, 3.0),
    ("mount_op", "op_major_timeouts"): (0.0, 0.0, 0.1),
    ("node", "node_procs_blocked"): (0.0, 20.0),
    ("node", "node_uptime_s"): (1e6, 1e6, 50.0),
    ("node", "node_oom_kills"): (0.0, 0.0, 1.0),
    ("node", "node_edac_ce"): (0.0, 0.0, 2.0),
    ("node", "node_clock_behind_s"): (0.1, 0.1, 40.0),
    ("node", "node_memory_available_bytes"): (5e11, 1e9),
    ("node", "node_memory_total_bytes"): (1e12,),
}
WORDS = ("", "RLW_SRC_TRACK Nonfatal XC1 i0 Link 10 (0x0 0x1)", "NETIR_LINK_EVT Fatal XC0 i0 Link 02 (0x0 0x1)")
#: Of the other families: what opens, what comes again, what ends.
OTHERS = (
    "nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
    "systemd[1]: Failed to start NVIDIA fabric manager service.",
    "systemd[1]: Started NVIDIA fabric manager service.",
    "amdgpu 0000:9b:00.0: amdgpu: socket: 4, die: 0, 1 new deferred hardware errors detected in umc block",
    "nvidia 0000:9b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
    "nvidia 0000:9b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
    "mlx5_core 0000:4b:00.0 enp75s0np0: Link down",
    "mlx5_core 0000:4b:00.0 enp75s0np0: Link up",
    "nfs: server nfs-17 not responding, still trying",
    "nfs: server nfs-17 OK",
    "EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=s,mems_allowed=0,oom_memcg=/slurm/job_7,task=a,pid=1",
    "INFO: task python3:4242 blocked for more than 120 seconds.",
    "watchdog: BUG: soft lockup - CPU#5 stuck for 22s! [python3:4242]",
)
#: What a scheduler says of a node.
SAID = (
    ("slurm", "node_down", ""),
    ("slurm", "node_not_responding", ""),
    ("slurm", "node_state", "DRAINED"),
    ("slurm", "node_state", "RESUME"),
    ("slurm", "node_reason", ""),
    ("slurm", "node_back", ""),
    ("slurm", "controller_lost", ""),
    ("k8s", "NodeNotReady", ""),
    ("k8s", "NodeReady", ""),
)
ACTIONS = (
    "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
)


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Some GPUs are ill and some mute for good, so that levels have time to rise; all else changes by tick."""
    gpus = draw(st.integers(1, 8))
    fleet = fleet_of(draw(st.integers(1, 3)), gpus)
    everywhere = [f"gpu-{1 + n:04d}/gpu{g}" for n in range(4) for g in range(gpus)]
    ill = draw(st.lists(st.sampled_from(everywhere), max_size=3))
    mute = draw(st.lists(st.sampled_from([*everywhere, "gpu-0002"]), max_size=3))
    at, steps = T0, []
    for _ in range(draw(st.integers(1, 10))):
        at += draw(st.sampled_from((0.5, 15.0, 15.0, 15.0, 90.0, 400.0)))
        if draw(st.integers(0, 5)) == 0:
            fleet = draw(fleets(gpus))
        steps.append((fleet, draw(ticks(fleet, at, ill, mute))))
    return Story(tuple(steps))


@st.composite
def fleets(draw: st.DrawFn, gpus: int) -> Fleet:
    nodes = draw(st.integers(1, 4))
    jobs = draw(st.sampled_from(({"1": range(nodes)}, {}, {"1": range(1), "2": range(1, nodes)})))
    retired = ["gpu-0001/gpu0"] if draw(st.booleans()) else []
    return fleet_of(nodes, gpus, jobs, draw(st.integers(2, 9)), retired)


@st.composite
def ticks(draw: st.DrawFn, fleet: Fleet, at: float, ill: Sequence[str], mute: Sequence[str]) -> Tick:
    events = tuple(draw(st.lists(events_of(fleet, at), max_size=2)))
    if draw(st.integers(0, 4)) == 0:
        return Tick(at, events=events)
    dice = np.random.default_rng(draw(st.integers(0, 2**16)))
    gaps, asking = draw(st.sampled_from((0.0, 0.0, 0.1))), draw(st.sampled_from((1.0, 1.0, 1.0, 0.5)))
    axis = fleet.axes["gpu"]
    odd = np.array([name in ill for name in axis.names], np.bool_)
    gone = np.array([name in mute or name.split("/")[0] in mute for name in axis.names], np.bool_)
    gone &= draw(st.integers(0, 9)) > 0
    hot = draw(st.booleans())
    values, sampled = {}, {}
    for metric, usual in USUAL.items():
        key: MetricKey = ("gpu", metric)
        column: FloatArray = (usual * (1 + 0.01 * dice.standard_normal(len(axis)))).astype(np.float32)
        column[odd] *= {"temperature_c": 1.4 if hot else 1.0, "sm_clock_mhz": 0.6, "power_w": 0.7}.get(metric, 1.0)
        column[gone | (dice.random(len(axis)) < gaps)] = np.nan
        asked: BoolArray = axis.live & (dice.random(len(axis)) < asking)
        values[key], sampled[key] = column, asked
    nodes, unwell = fleet.axes["node"], {name.split("/")[0] for name in ill}
    mute_nodes = np.array([name in mute for name in nodes.names], np.bool_)
    for metric, usual in HOST_USUAL.items():
        column = (usual * (1 + 0.05 * dice.standard_normal(len(nodes)))).astype(np.float32)
        column[mute_nodes | (dice.random(len(nodes)) < gaps)] = np.nan
        values["node", metric], sampled["node", metric] = column, nodes.live & (dice.random(len(nodes)) < asking)
    for key, readings in PARTS_READ.items():
        rows = fleet.axes[key[0]]
        bad = np.array([fleet.nodes[node] in unwell for node in rows.node_of], np.bool_) & (
            dice.random(len(rows)) < 0.8
        )
        column = np.where(bad, readings[-1], dice.choice(readings[: max(len(readings) - 1, 1)], len(rows)))
        column[dice.random(len(rows)) < gaps] = np.nan
        values[key], sampled[key] = column.astype(np.float32), rows.live & (dice.random(len(rows)) < asking)
    return Tick(at, values, sampled, events)


@st.composite
def events_of(draw: st.DrawFn, fleet: Fleet, at: float) -> Event:
    names = fleet.axes["gpu"].names
    name = draw(st.sampled_from([*names, *fleet.nodes]))
    when, seq = at - draw(st.sampled_from((0.0, 1.0, 30.0))), draw(st.integers(1, 10**6))
    if draw(st.integers(0, 5)) == 0:
        return boot(fleet, entity(fleet, name).host, when)
    if draw(st.integers(0, 5)) == 0:
        namespace, word, state = draw(st.sampled_from(SAID))
        host = entity(fleet, entity(fleet, name).host)
        return Event(when, host, namespace, word, "", seq, attrs={"state": state} if state else {})
    if draw(st.integers(0, 9)) == 0:
        told = {"fingerprint": draw(st.sampled_from("abc")), "alert": "NodeDown", "severity": "critical"}
        return Event(
            when, entity(fleet, name), "alert", draw(st.sampled_from(("firing", "resolved"))), "", seq, attrs=told
        )
    if draw(st.integers(0, 2)) == 0:
        return kernel(fleet, name, when, draw(st.sampled_from(OTHERS)), seq, late=draw(st.integers(0, 9)) == 0)
    if draw(st.integers(0, 5)) == 0:
        return verdict(fleet, draw(st.sampled_from(["", *fleet.nodes])), when, draw(st.sampled_from(CLASSES)), seq)
    code = draw(st.sampled_from(CODES))
    rest = draw(st.sampled_from(ACTIONS if code == 154 else WORDS))
    return xid(fleet, name, when, code, rest, seq, late=draw(st.integers(0, 9)) == 0)
