"""Twenty simulated clusters, each replayed in two processes that hash and read differently: the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.ingest.bundle.bundle import open_bundle
from backend.replay.run import replay
from backend.simulate.recording.record import Wish, record
from detectors.catalogue import load

ROOT = Path(__file__).resolve().parents[3]
FILES = ("findings.jsonl", "incidents.jsonl", "runs.json", "reliability.json")
#: Nodes, GPUs of each, hours, seconds between scrapes.
SMALL, LARGER = (4, 4, 1.0, 30.0), (8, 4, 2.0, 30.0)


def silent(what: str, share: float) -> None: ...


def same_bytes(folder: Path, seed: int, scenario: str, size: tuple[int, int, float, float]) -> int:
    """Bytes of findings of one cluster, after both replays said the same."""
    record(folder / "bundle", Wish(seed, scenario, *size), silent)
    replay(open_bundle(folder / "bundle"), folder / "here", load())
    words = [sys.executable, "-m", "backend.cli", "replay", str(folder / "bundle"), "--out", str(folder / "there")]
    env = os.environ | {"PYTHONHASHSEED": str(seed + 1), "TZ": "Asia/Kathmandu", "LC_ALL": "C"}
    subprocess.run(words, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL, timeout=300)
    for name in FILES:
        assert (folder / "here" / name).read_bytes() == (folder / "there" / name).read_bytes(), name
    return (folder / "here" / "findings.jsonl").stat().st_size


def test_a_simulated_cluster_is_replayed_the_same_in_two_processes(tmp_path: Path) -> None:
    assert same_bytes(tmp_path, 1, "kind:gpu_bus_loss", SMALL) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_twenty_clusters_are_replayed_the_same_in_two_processes(tmp_path: Path, seed: int) -> None:
    same_bytes(tmp_path, seed, "quiet" if seed % 5 == 0 else "mixed", LARGER)
