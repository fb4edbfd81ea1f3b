"""What a node reads and writes: its disks, its NFS mounts, its ports."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from detectors.columns import column
from detectors.model import Fleet, MetricKey, Tick

#: Metric -> bytes in its unit. Counters of blocks, of NFS calls and of ports: a checkpoint shows in one of them.
MOVING: Mapping[MetricKey, float] = {
    ("node", "node_page_out_kib"): 1024.0,
    ("node", "node_page_in_kib"): 1024.0,
    ("mount_op", "op_sent_bytes"): 1.0,
    ("mount_op", "op_received_bytes"): 1.0,
    ("nic", "nic_tx_bytes"): 1.0,
    ("nic", "nic_rx_bytes"): 1.0,
}


def moved_bytes(tick: Tick, fleet: Fleet) -> NDArray[np.float64]:
    """float64[nodes + 1], by node code: bytes a second, -1 where nobody says; the last is that of no node."""
    total, told = np.zeros(len(fleet.nodes) + 1), np.zeros(len(fleet.nodes) + 1, np.bool_)
    for key, unit in MOVING.items():
        axis = fleet.axes.get(key[0])
        if axis is None or key not in tick.values:
            continue
        values = column(tick, key, len(axis))
        rows = ~np.isnan(values) & axis.live & (axis.node_of >= 0)
        total += unit * np.bincount(axis.node_of[rows], np.maximum(values[rows], 0.0), len(total))
        told[axis.node_of[rows]] = True
    return np.where(told, total, -1.0)
