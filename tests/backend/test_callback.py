"""The file that trainers copy: our formulas, whole weights or a refusal by name, within its share of time."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import backend
from detectors.training import dynamics

FILE = Path(backend.__path__[0]) / "deploy" / "training" / "watchkeeper_callback.py"


@pytest.fixture(scope="module")
def callback() -> ModuleType:
    spec = importlib.util.spec_from_file_location("watchkeeper_callback", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def weights(seed: int, heads: int = 4, kv: int = 4, size: int = 8, d: int = 32) -> tuple[Any, Any, Any, Any]:
    dice = np.random.default_rng(seed)
    q, k = dice.normal(size=(heads * size, d)), dice.normal(size=(kv * size, d))
    return q, k, q + 0.01 * dice.normal(size=q.shape), k + 0.01 * dice.normal(size=k.shape)


def test_it_says_what_the_formulas_of_the_detectors_say(callback: ModuleType) -> None:
    q, k, q1, k1 = weights(1, kv=2)
    found = callback.attention("layer 3", (q, k), (q1, k1), 4, 2)
    theirs = []
    for head in range(4):
        mine, key = slice(head * 8, head * 8 + 8), slice(head // 2 * 8, head // 2 * 8 + 8)
        theirs.append(dynamics.qk_spectrum(q[mine].T, k[key].T, (q1 - q)[mine].T, (k1 - k)[key].T))
    assert found["qk_entropy"] == pytest.approx(np.mean([one.entropy for one in theirs]), rel=1e-3)
    assert found["qk_entropy_min"] == pytest.approx(min(one.entropy for one in theirs), rel=1e-3)
    assert found["qk_stable_rank"] == pytest.approx(np.mean([one.stable_rank for one in theirs]), rel=1e-3)
    rows = np.random.default_rng(2).normal(size=(8, 16))
    router = callback.router("router", rows, [0.5, 0.5, 0, 0, 0, 0, 0, 0])
    assert router["router_similarity"] == pytest.approx(dynamics.router_similarity(rows), abs=1e-6)
    assert router["router_conditioning"] == pytest.approx(dynamics.router_conditioning(rows), rel=1e-5)
    assert router["router_dead"] == 6


class DTensor:
    def __init__(self, shard: Any, parts: list[Any]) -> None:
        self._parts = parts

    def full_tensor(self) -> Any:
        return np.concatenate(self._parts)


def test_a_sharded_weight_is_gathered_and_a_flat_shard_refused_by_name(callback: ModuleType) -> None:
    q, k, q1, k1 = weights(3)
    parts = [DTensor(w[:16], [w[:16], w[16:]]) for w in (q, k, q1, k1)]
    found = callback.attention("layer 3", tuple(parts[:2]), tuple(parts[2:]), 4)
    assert found == callback.attention("layer 3", (q, k), (q1, k1), 4)
    for flat in (q.ravel()[:100], np.zeros((0, 4)), type("FlatParameter", (), {})()):
        with pytest.raises(callback.ShardError, match=r"layer 3\.q .*shard"):
            callback.attention("layer 3", (flat, k), (q1, k1), 4)
    with pytest.raises(callback.ShardError, match="layer 3: Q"):
        callback.attention("layer 3", (q[:30], k), (q1[:30], k1), 4)


def test_norms_are_summed_over_whatever_shards(callback: ModuleType) -> None:
    q, _, q1, _ = weights(4)
    whole = callback.norms([q1], [q])
    others = float(np.square(q1[16:]).sum()), float(np.square((q1 - q)[16:]).sum())
    sums = iter(others)
    split = callback.norms([q1[:16].ravel()], [q[:16].ravel()], lambda mine: mine + next(sums))
    assert split == pytest.approx(whole)


def test_layers_take_turns_within_their_share_of_the_time(callback: ModuleType) -> None:
    class Clock:
        at = 0.0

        def __call__(self) -> float:
            self.at += 0.00017  # each look at it is work
            return self.at

    clock, rows = Clock(), []
    told = callback.Callback("r", "7", 0, write=lambda row: rows.append(json.loads(row)), clock=clock)
    q, k, q1, k1 = weights(5)
    for step in range(400):
        told.before(step, {"0": (q, k), "1": (q, k)}, heads=4)
        clock.at += 0.05
        told.after(step, {"0": (q1, k1), "1": (q1, k1)}, loss=2.5, grad_norm=float("nan"))
    layers = [row["layer"] for row in rows if "layer" in row]
    assert {"0", "1"} == set(layers)
    assert layers[:4] == ["0", "1", "0", "1"]
    assert len(layers) < 400
    assert rows[0]["loss"] == 2.5
    assert next(row for row in rows if "grad_norm" in row)["grad_norm"] == "nan"


def test_ranks_that_gather_look_at_the_same_steps_whatever_their_clocks_say(callback: ModuleType) -> None:
    q, k, q1, k1 = weights(6)
    whole = [DTensor(w[:16], [w[:16], w[16:]]) for w in (q, k, q1, k1)]
    looked = []
    for speed in (1e-6, 10.0):
        rows: list[Any] = []
        ticks = iter(np.arange(1e6) * speed)
        told = callback.Callback(
            "r", write=lambda row, rows=rows: rows.append(json.loads(row)), every=5, clock=lambda t=ticks: next(t)
        )
        for step in range(20):
            told.before(step, {"0": whole[:2], "1": whole[:2]}, heads=4)
            told.after(step, {"0": whole[2:], "1": whole[2:]}, loss=1.0)
        looked.append([(row["step"], row["layer"]) for row in rows if "layer" in row])
    assert looked[0] == looked[1] == [(0, "0"), (5, "1"), (10, "0"), (15, "1")]


def test_it_runs_with_numpy_alone_and_is_printed_by_deploy(tmp_path: Path) -> None:
    alone = tmp_path / "watchkeeper_callback.py"
    alone.write_text(FILE.read_text())
    code = (
        "import watchkeeper_callback, sys; print([m for m in sys.modules if m[:7] in ('backend', 'detecto', 'torch')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
