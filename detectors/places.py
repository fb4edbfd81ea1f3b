"""Which nodes stand behind an entity: below a switch, in a rack, of a job, with a file system mounted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detectors.model import Fleet, IntArray
from detectors.telemetry.storage_phrases import system_of


def hosts_of(fleet: Fleet, kind: str, id_: str) -> frozenset[str]:
    """Names of nodes; none where the fleet does not say. A cluster has all of them, a device is not asked for."""
    nodes = fleet.axes.get("node")
    if kind == "cluster":
        return frozenset(fleet.nodes)
    if kind in ("rack", "switch") and nodes is not None:
        names, codes = (fleet.racks, nodes.rack_of) if kind == "rack" else (fleet.switches, nodes.leaf_of)
        return _named(fleet, nodes.node_of, codes, names.index(id_) if id_ in names else -1)
    if kind == "job" and id_ in fleet.jobs:
        code = fleet.jobs.index(id_)
        axes = (axis for axis in (fleet.axes.get("gpu"), nodes) if axis is not None)
        return frozenset[str]().union(*(_named(fleet, axis.node_of, axis.job_of, code) for axis in axes))
    return _clients(fleet, id_) if kind == "fs" else frozenset()


def _clients(fleet: Fleet, name: str) -> frozenset[str]:
    """Nodes that mount a file system, called by its mount point or by its server."""
    calls = fleet.axes.get("mount_op")
    if calls is None:
        return frozenset()
    points = {point for point in set(calls.names) if system_of(point.partition("mount:")[2]) == name}
    served = {code for code, model in enumerate(fleet.models) if model.partition(":/")[0] == name}
    uses = np.array([point in points for point in calls.names], np.bool_) | np.isin(calls.model_of, list(served))
    return _named(fleet, calls.node_of, np.where(uses, 0, -1).astype(np.int32), 0)


def system_names(fleet: Fleet) -> dict[str, str]:
    """Server -> the one file system that clients mount from it. Kernels name the server, exporters the mount."""
    calls, found = fleet.axes.get("mount_op"), dict[str, set[str]]()
    if calls is None:
        return {}
    pairs, first = np.unique(calls.model_of, return_index=True)
    for code, row in zip(pairs, first, strict=True):
        server, colon, _ = (fleet.models[code] if code >= 0 else "").partition(":/")
        if colon:
            found.setdefault(server, set()).add(system_of(calls.names[row].partition("mount:")[2]))
    return {server: systems.pop() for server, systems in found.items() if len(systems) == 1}


def _named(fleet: Fleet, node_of: IntArray, codes: IntArray, code: int) -> frozenset[str]:
    if code < 0 or len(codes) != len(node_of):
        return frozenset()
    rows: NDArray[np.int32] = node_of[(codes == code) & (node_of >= 0)]
    return frozenset(fleet.nodes[row] for row in np.unique(rows))
