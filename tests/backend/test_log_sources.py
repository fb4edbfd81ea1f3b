"""Logs by configuration: what is named is read, and a line in a file becomes an incident without anybody pushing it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from backend.clock import ManualClock, SystemClock, unix
from backend.facts import AttemptFacts, Batch, GpuFacts, NodeFacts
from backend.loops import Loops
from backend.pipeline import accept
from backend.registry import Parts, build, lately, log_sources
from backend.settings import Cluster, Logs, Settings, Slurm
from backend.settings import Store as StoreSettings
from backend.store import incidents, system
from backend.store.engine import Store
from tests.backend.bench import Bench
from tests.conftest import NOW

XID = "NVRM: Xid (PCI:0000:9d:00): 79, pid=1, name=python, GPU has fallen off the bus."


def names(store: Store, tmp_path: Path, cluster: Cluster) -> list[str]:
    parts = build(Settings(store=StoreSettings(folder=tmp_path / "x"), cluster=(cluster,)), SystemClock())
    try:
        return [source.name for source, _ in parts.sources[cluster.name]]
    finally:
        parts.store.close()


def test_each_stream_that_is_named_is_a_source(sqlite_store: Store, tmp_path: Path) -> None:
    read = Logs(files=("/var/log/*.log", "/dev/kmsg"), journal=True, loki_url="http://127.0.0.1:1")
    assert names(sqlite_store, tmp_path, Cluster(logs=read)) == ["files", "kmsg", "journal", "loki"]


def test_nothing_is_read_where_nothing_is_named(sqlite_store: Store, tmp_path: Path) -> None:
    assert names(sqlite_store, tmp_path, Cluster()) == []


def test_logs_of_jobs_are_followed_where_a_scheduler_names_them_unless_switched_off(tmp_path: Path) -> None:
    from_slurm = Cluster(slurm=Slurm(cli=False))
    off = Cluster(slurm=Slurm(cli=False), logs=Logs(job_logs=False))
    parts = build(Settings(store=StoreSettings(folder=tmp_path)), SystemClock())
    found = [log_sources(one, parts.store, parts.tails["main"], None) for one in (from_slurm, off)]
    parts.store.close()
    assert [[source.name for source, _ in each] for each in found] == [["job logs"], []]


def test_attempts_that_run_or_ended_lately_are_followed_with_the_logs_they_name(store: Store) -> None:
    bench = Bench(store, ManualClock(NOW))
    now = unix(NOW)
    told = [
        AttemptFacts("1", state="RUNNING", start=now - 60, nodes=("gpu-001",), outputs=("/home/a/1.out",)),
        AttemptFacts(
            "2", state="FAILED", start=now - 600, end=now - 60, nodes=("gpu-002",), outputs=("/home/a/2.out",)
        ),
        AttemptFacts("3", state="FAILED", start=now - 90_000, end=now - 80_000, nodes=("gpu-003",), outputs=("/x",)),
        AttemptFacts("4", state="RUNNING", start=now - 60, nodes=("gpu-004",)),
    ]
    accept(bench.watch, Batch("slurm", now, now, attempts=tuple(told)))
    found = {one.job: one for one in lately(store, "main", now)}
    assert {"1", "2", "4"} <= set(found) and "3" not in found
    assert found["1"].outputs == ("/home/a/1.out",) and found["1"].end is None and found["2"].end == now - 60


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "kern.log"


@pytest.fixture
def running(tmp_path: Path, log: Path) -> Iterator[Parts]:
    """A server without HTTP that follows one file."""
    read = Logs(files=(str(log),), interval_s=0.2, timezone="UTC")
    settings = Settings(store=StoreSettings(folder=tmp_path / "state"), cluster=(Cluster(logs=read),))
    parts = build(settings, SystemClock())
    node = NodeFacts("gpu-7", "allocated", expected_gpus=1, gpus=(GpuFacts(0, "GPU-a", "0000:9d:00"),))
    at = unix(parts.clock.now())
    accept(parts.watches["main"], Batch("topology", at, at, nodes=(node,)))
    loops = Loops(parts)
    loops.start()
    yield parts
    loops.stop()
    parts.store.close()


def until(held: Callable[[], bool], deadline_s: float = 30.0) -> bool:
    deadline = time.monotonic() + deadline_s
    while not held():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_line_in_a_followed_file_becomes_an_incident_and_what_it_cost_is_shown(running: Parts, log: Path) -> None:
    at = (running.clock.now() - timedelta(seconds=1)).strftime("%b %e %H:%M:%S")
    log.write_text(f"{at} gpu-7 systemd[1]: Started session\n{at} gpu-7 kernel: {XID}\n")

    def opened() -> bool:
        with running.store.read() as session:
            return any(row.node == "gpu-7" for row in incidents.page(session, "main", (), 10))

    def counted() -> bool:
        with running.store.read() as session:
            beats = [one for one in system.beats(session, "main") if (one.kind, one.name) == ("source", "files")]
        return bool(beats) and beats[0].counts.get("lines") == 2 and beats[0].counts["files"] == 1

    assert until(opened)
    assert until(counted)
