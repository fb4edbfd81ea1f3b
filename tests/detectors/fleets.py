"""Small fleets and their ticks, made to measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from detectors.kernel.lines import parse
from detectors.model import Axis, BoolArray, Entity, Event, Fleet, FloatArray, IntArray, MetricKey, Tick

STORE = "store:/export/scratch"
#: The parts of a node by axis, as their ids end.
PARTS: Mapping[str, tuple[str, ...]] = {
    "nic": ("nic:mlx5_0", "nic:mlx5_1"),
    "mount": ("mount:/scratch",),
    "mount_op": (f"mount:{STORE}#READ", f"mount:{STORE}#WRITE"),
}
ROLES = ("mlx5_0", "mlx5_1", "/scratch", "READ", "WRITE")
#: A Tuesday in 2026, on a multiple of 15 s.
T0 = 1_770_120_000.0
USUAL: Mapping[str, float] = {
    "temperature_c": 62.0,
    "power_w": 640.0,
    "sm_clock_mhz": 1905.0,
    "utilisation_pct": 99.0,
    "fb_used_mib": 70_000.0,
}


def fleet_of(
    nodes: int = 4,
    gpus: int = 8,
    jobs: Mapping[str, Sequence[int]] | None = None,
    epoch: int = 1,
    retired: Sequence[str] = (),
) -> Fleet:
    """``gpu-0001`` and so on with ``gpus`` GPUs each. jobs: which nodes each holds; the default is one for all.
    retired: names of GPUs whose rows are no longer live."""
    names = tuple(f"gpu-{1 + n:04d}" for n in range(nodes))
    held = {"48213": range(nodes)} if jobs is None else jobs
    job_names = tuple(held)
    job_of_node = np.full(nodes, -1, np.int32)
    for place, job in enumerate(job_names):
        job_of_node[list(held[job])] = place
    node_of = np.repeat(np.arange(nodes, dtype=np.int32), gpus)
    gpu_names = [f"{names[n]}/gpu{g}" for n in range(nodes) for g in range(gpus)]
    gpu_ids = [f"GPU-{n:04d}-{g}" for n in range(nodes) for g in range(gpus)]
    live = np.array([name not in retired for name in gpu_names], np.bool_)
    axes = {
        "gpu": axis_of("gpu", gpu_ids, gpu_names, live, node_of, job_of_node[node_of]),
        "node": axis_of("node", names, names, np.ones(nodes, np.bool_), np.arange(nodes, dtype=np.int32), job_of_node),
        **{kind: parts_of(kind, names, job_of_node) for kind in PARTS},
    }
    axes["node"] = replace(axes["node"], leaf_of=np.zeros(nodes, np.int32))
    slots = {(kind, id_): row for kind, axis in axes.items() for row, id_ in enumerate(axis.ids)}
    return Fleet("main", epoch, axes, names, job_names, ROLES, ("H100", STORE), (), slots, ("leaf-1",))


def parts_of(kind: str, nodes: Sequence[str], job_of_node: IntArray) -> Axis:
    """Two ports, one mount and two calls on it for each node; all nodes on one leaf."""
    ends = PARTS[kind]
    ids = [f"{node}/{end}" for node in nodes for end in ends]
    names = [id_.partition("store:")[0] + "/scratch" if kind == "mount_op" else id_ for id_ in ids]
    of = np.repeat(np.arange(len(nodes), dtype=np.int32), len(ends))
    axis = axis_of(kind, ids, names, np.ones(len(ids), np.bool_), of, job_of_node[of])
    roles = np.tile(
        np.array([ROLES.index(end.rpartition(":")[2].rpartition("#")[2]) for end in ends], np.int32), len(nodes)
    )
    model = np.full(len(ids), -1 if kind == "nic" else 1, np.int32)
    return replace(axis, role_of=roles, model_of=model, leaf_of=np.zeros(len(ids), np.int32))


def axis_of(kind: str, ids: Sequence[str], names: Sequence[str], live: BoolArray, node_of: Any, job_of: Any) -> Axis:
    """An axis whose peers are the rows of one job."""
    n = len(ids)
    none, zero = np.full(n, -1, np.int32), np.zeros(n, np.int32)
    rows = np.flatnonzero(live & (job_of >= 0))
    rows = rows[np.argsort(job_of[rows], kind="stable")].astype(np.int32)
    edges = np.flatnonzero(np.diff(job_of[rows])) + 1
    starts: IntArray = np.array([0, *edges, len(rows)] if len(rows) else [0], np.int32)
    return Axis(kind, tuple(ids), tuple(names), live, node_of, job_of, none, zero, none, cast(IntArray, rows), starts)


def gpu(fleet: Fleet, name: str) -> int:
    """The row of ``gpu-0001/gpu3``."""
    return fleet.axes["gpu"].names.index(name)


def entity(fleet: Fleet, name: str) -> Entity:
    """The GPU or node people call ``name``."""
    kind = "gpu" if name in fleet.axes["gpu"].names else "node"
    return fleet.entity(kind, fleet.axes[kind].names.index(name))


def telemetry(
    fleet: Fleet, at: float, silent: Sequence[str] = (), off: Mapping[str, Mapping[str, float]] | None = None
) -> Tick:
    """A tick at which every GPU reports the usual. silent: names of GPUs, or of nodes with all of theirs, that report
    nothing. off: by name of a GPU the metrics that read otherwise."""
    axis = fleet.axes["gpu"]
    gone = [row for row, name in enumerate(axis.names) if name in silent or name.split("/")[0] in silent]
    values: dict[MetricKey, FloatArray] = {}
    for metric, usual in USUAL.items():
        column = np.full(len(axis), usual, np.float32)
        for name, changed in (off or {}).items():
            column[gpu(fleet, name)] = changed.get(metric, usual)
        column[gone] = np.nan
        values["gpu", metric] = column
    return Tick(at, values, {key: axis.live.copy() for key in values})


def kernel(fleet: Fleet, name: str, at: float, line: str, seq: int = 1, *, late: bool = False) -> Event:
    """The event that a real line becomes, once its GPU (or node) is known to be ``name``."""
    code = parse(line)
    assert code is not None, line
    attrs = dict(code.attrs) | ({"pci": code.pci} if code.pci else {})
    return Event(at, entity(fleet, name), code.namespace, code.code, code.text, seq, late, attrs)


def xid(fleet: Fleet, name: str, at: float, code: int, rest: str = "", seq: int = 1, *, late: bool = False) -> Event:
    said = rest or "pid=4242, name=python3, Ch 00000008"
    return kernel(fleet, name, at, f"NVRM: Xid (PCI:0000:9b:00): {code}, {said}", seq, late=late)


def verdict(
    fleet: Fleet,
    node: str,
    at: float,
    log_class: str,
    seq: int = 1,
    *,
    late: bool = False,
    more: Mapping[str, str] | None = None,
    **attrs: str,
) -> Event:
    """The verdict on the logs of job 48213; node "" = they name none."""
    entity = Entity("main", "node", node, node, node) if node else Entity("main", "job", "48213", "job:48213")
    usual = {"job": "48213", "whose": "hardware", "exclude": "yes", "confidence": "0.9", "first": "CUDA error"}
    return Event(at, entity, "log", log_class, "A fault of the machine.", seq, late, usual | dict(more or {}) | attrs)


def boot(fleet: Fleet, node: str, at: float) -> Event:
    return kernel(fleet, node, at, "[    0.000000] Linux version 5.15.0-91-generic (build@host) (gcc 11.4.0) #101 SMP")
