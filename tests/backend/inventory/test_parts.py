"""Ports, mounts and NFS calls have rows that survive a restart, and cannot grow without bound."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from backend.facts import Batch, DeviceLabel, NodeFacts, Series
from backend.inventory.inventory import Inventory
from backend.store.engine import Store

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PORT = DeviceLabel("nic", "gpu-0001", index="mlx5_0")
MOUNT = DeviceLabel("mount", "gpu-0001", index="/scratch", export="store:/x")
CALL = DeviceLabel("mount_op", "gpu-0001", export="store:/x", operation="READ")


def batch(*labels: DeviceLabel) -> Batch:
    names = {"nic": "nic_state", "mount": "mount_avail_bytes", "mount_op": "op_requests"}
    series = tuple(Series(names[one.axis], one, np.array([10.0]), np.array([4.0])) for one in labels)
    nodes = (NodeFacts("gpu-0001", rack="r1", switch="leaf-1"),)
    return Batch("test", 0.0, 10.0, series, nodes=nodes)


def absorbed(store: Store, *batches: Batch) -> Inventory:
    inventory = Inventory("main")
    with store.write() as session:
        for one in batches:
            inventory.absorb(session, one, NOW)
    return inventory


def test_parts_are_printed_as_outsiders_know_them_and_know_their_switch(store: Store) -> None:
    inventory = absorbed(store, batch(PORT, CALL, MOUNT))
    fleet = inventory.fleet
    assert str(fleet.entity("nic", 0)) == "gpu-0001/nic:mlx5_0"
    assert str(fleet.entity("mount", 0)) == "gpu-0001/mount:/scratch"
    assert fleet.axes["mount_op"].names == ("gpu-0001/mount:/scratch",)
    assert fleet.switches[fleet.axes["nic"].leaf_of[0]] == "leaf-1"
    assert fleet.entity("nic", 0).node == "gpu-0001"
    assert [inventory.slot(one) for one in (PORT, MOUNT, CALL)] == [0, 0, 0]


def test_parts_are_there_again_after_a_restart(store: Store) -> None:
    before = absorbed(store, batch(PORT, CALL, MOUNT)).fleet
    again = Inventory("main")
    with store.read() as session:
        again.load(session)
    for kind in ("nic", "mount", "mount_op"):
        assert again.fleet.axes[kind].ids == before.axes[kind].ids
        assert again.fleet.axes[kind].names == before.axes[kind].names


def test_names_that_come_and_go_do_not_fill_the_memory(store: Store) -> None:
    churn = [DeviceLabel("mount", "gpu-0001", index=f"/home/u{n}", export=f"home:/u{n}") for n in range(300)]
    inventory = absorbed(store, batch(*churn))
    assert len(inventory.fleet.axes["mount"]) == 64
    assert inventory.rejected.total() == 300 - 64
