"""Saves and loads are told from counters of mounts, once, across restarts and as nodes come and go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backend.moved import Moved
from backend.rollups.storage import storage_json
from detectors.model import Axis, Fleet, MetricKey, Tick
from tests.conftest import NOW

T0 = NOW.timestamp()
STEP = 30.0


def fleet(nodes: int) -> Fleet:
    """Each node with a READ and a WRITE row of one mount."""
    names = tuple(f"n{i:02d}" for i in range(nodes))
    rows = 2 * nodes
    codes = np.repeat(np.arange(nodes, dtype=np.int32), 2)
    none = np.full(rows, -1, np.int32)
    ids = tuple(f"{names[i // 2]}/ckpt#{'READ' if i % 2 == 0 else 'WRITE'}" for i in range(rows))
    role = np.tile(np.array([0, 1], np.int32), nodes)
    axis = Axis(
        "mount_op", ids, ids, np.ones(rows, np.bool_), codes, none, role, none, none, np.zeros(0, np.int32),
        np.zeros(1, np.int32),
    )  # fmt: skip
    slots = {("mount_op", id_): i for i, id_ in enumerate(ids)}
    return Fleet("main", 1, {"mount_op": axis}, names, (), ("READ", "WRITE"), (), (), slots)


def tick(at: float, nodes: int, write: float = 0.0, read: float = 0.0, slow: int = -1) -> Tick:
    sent, received = np.zeros(2 * nodes, np.float32), np.zeros(2 * nodes, np.float32)
    sent[1::2], received[0::2] = write, read
    if slow >= 0:
        sent[:] = 0
        sent[2 * slow + 1] = write
    values: dict[MetricKey, np.ndarray] = {
        ("mount_op", "op_sent_bytes"): sent,
        ("mount_op", "op_received_bytes"): received,
        ("mount_op", "op_requests"): np.full(2 * nodes, 100.0, np.float32),
        ("mount_op", "op_request_s"): np.full(2 * nodes, 10.0, np.float32),
        ("mount_op", "op_queue_s"): np.full(2 * nodes, 9.5, np.float32),
    }
    return Tick(at, values)


def follow(moved: Moved, start: int = 0, end: int = 60, nodes: int = 8) -> None:
    """A save from tick 10 to 16, for which all wait till node 3 is done at 24; a load from 40 to 50."""
    for place in range(start, end):
        at, save = T0 + STEP * place, 10 <= place < 16
        late = 3 if 16 <= place < 24 else -1
        moved.add(
            tick(at, nodes, 5e9 if save or late >= 0 else 0.0, 2e9 if 40 <= place < 50 else 0.0, late), fleet(nodes)
        )


def test_a_save_and_a_load_are_told_with_what_held_them_up(tmp_path: Path) -> None:
    moved = Moved(tmp_path / "moved" / "main.jsonl", write=100e9)
    follow(moved)
    save, load = moved.phases(T0, T0 + 3600)
    assert (save.kind, save.begin, save.end) == ("save", T0 + 9 * STEP, T0 + 23 * STEP)
    assert (load.kind, load.end - load.begin, load.clients) == ("load", 10 * STEP, 8)
    assert [one.client for one in save.stragglers] == ["n03"] and save.held_by == "stragglers"
    assert load.queue_share == pytest.approx(0.95) and load.held_by == "rpc slots"
    assert save.of_ceiling is not None and load.of_ceiling is None
    told = storage_json([save, load])
    assert (told["saves"]["n"], told["loads"]["n"]) == (1, 1) and told["stragglers"] == [{"client": "n03", "times": 1}]
    assert [row["kind"] for row in told["phases"]] == ["load", "save"]


def test_what_was_told_is_told_once_and_outlives_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "main.jsonl"
    moved = Moved(file)
    follow(moved, 0, 30)
    assert [p.kind for p in moved.phases(T0, T0 + 9e9)] == ["save"]
    assert [p.kind for p in moved.phases(T0, T0 + 9e9)] == ["save"]
    with file.open("ab") as torn:
        torn.write(b'{"kind":"sa')
    again = Moved(file)
    follow(again, 20, 60)  # it begins inside the end of the save
    assert [p.kind for p in again.phases(T0, T0 + 9e9)] == ["save", "load"]
    assert again.phases(T0 + 9e5, T0 + 9e9) == []
    assert [p.kind for p in Moved(file).phases(T0, T0 + 9e9)] == ["save", "load"]


def test_a_phase_that_goes_on_is_not_told_yet(tmp_path: Path) -> None:
    moved = Moved(tmp_path / "main.jsonl")
    follow(moved, 0, 45)
    assert [p.kind for p in moved.phases(T0, T0 + 9e9)] == ["save"]


def test_nodes_that_come_are_followed_and_ticks_without_mounts_are_let_be(tmp_path: Path) -> None:
    moved = Moved(tmp_path / "main.jsonl")
    moved.add(Tick(T0 - 60), fleet(2))
    follow(moved, 0, 30)
    follow(moved, 30, 60, nodes=12)
    follow(moved, 0, 5)  # an old tick again
    assert [p.clients for p in moved.phases(T0, T0 + 9e9)] == [8, 12]
