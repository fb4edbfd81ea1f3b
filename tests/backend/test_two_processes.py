"""`serve --role observe` and `--role api` on one database: what one learns, the other neither loses nor undoes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from backend import pipeline, registry
from backend.app import create_app
from backend.clock import ManualClock, unix
from backend.facts import Batch, DeviceLabel, GpuFacts, NodeFacts, RawEvent
from backend.loops import all_loops
from backend.registry import Parts, build
from backend.settings import Settings
from backend.settings import Store as StoreSettings
from backend.store import cluster as rows
from backend.watch import Watch
from tests.services.postgres import Postgres

GPU = GpuFacts(3, "GPU-3", "0000:9b:00", "H100")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    if request.param == "sqlite":
        yield Settings(mode="propose", store=StoreSettings(folder=tmp_path))
        return
    server: Postgres = request.getfixturevalue("postgres")
    name = server.create()
    yield Settings(mode="propose", store=StoreSettings(url=server.url(name), folder=tmp_path))
    server.drop(name)


def process(settings: Settings, clock: ManualClock, role: registry.Role) -> Iterator[Parts]:
    parts = build(settings, clock, role=role)
    yield parts
    parts.store.close()


@pytest.fixture
def observe(settings: Settings, clock: ManualClock) -> Iterator[Parts]:
    yield from process(settings, clock, "observe")


@pytest.fixture
def api(settings: Settings, clock: ManualClock, observe: Parts) -> Iterator[Parts]:
    yield from process(settings, clock, "api")


def watch_of(parts: Parts) -> Watch:
    return next(iter(parts.watches.values()))


def scheduler(clock: ManualClock) -> Batch:
    now = unix(clock.now())
    facts = NodeFacts("gpu-1", "idle", frozenset({"DRAIN"}), "fan", "root", "rack-7", gpus=(GPU,), read_at=now)
    return Batch("slurm", now, now, nodes=(facts, NodeFacts("gpu-2", "idle", read_at=now)))


def line(clock: ManualClock, node: str) -> Batch:
    now = unix(clock.now())
    event = RawEvent(now, node, "xid", "79", "fell off the bus", f"{node} {now}", pci="0000:9b:00")
    return Batch("logs", now, now, events=(event,))


def test_a_line_pushed_to_the_api_does_not_wipe_what_observe_knows_of_its_node(
    observe: Parts, api: Parts, clock: ManualClock
) -> None:
    pipeline.accept(watch_of(observe), scheduler(clock))
    pipeline.accept(watch_of(api), line(clock, "gpu-1"))
    with observe.store.read() as session:
        node = rows.nodes(session, "main")[0]
    assert (node.rack, node.state, node.flags, node.expected_gpus) == ("rack-7", "idle", ["DRAIN"], 1)


def test_the_api_finds_the_gpu_that_observe_learnt(observe: Parts, api: Parts, clock: ManualClock) -> None:
    pipeline.accept(watch_of(observe), scheduler(clock))
    pipeline.accept(watch_of(api), line(clock, "gpu-1"))
    entity = watch_of(api).inventory.entity("gpu-1", "0000:9b:00")
    assert (entity.kind, entity.id) == ("gpu", "GPU-3")
    assert watch_of(api).inventory.slot(DeviceLabel("gpu", "gpu-1", "GPU-3")) == 0


def test_a_line_pushed_to_the_api_does_not_make_the_other_nodes_silent(
    observe: Parts, api: Parts, clock: ManualClock
) -> None:
    pipeline.accept(watch_of(observe), scheduler(clock))
    watch_of(api).load()
    for _ in range(3):
        clock.set(clock.now() + timedelta(seconds=60))
        pipeline.accept(watch_of(observe), scheduler(clock))
        pipeline.accept(watch_of(api), line(clock, "gpu-1"))
    with observe.store.read() as session:
        assert rows.silent(session, "main") == {}


def test_the_api_reads_the_inventory_again_and_again(observe: Parts, api: Parts, clock: ManualClock) -> None:
    pipeline.accept(watch_of(observe), scheduler(clock))
    loops = {loop.name: loop for loop in all_loops(api, threading.Event())}
    loops["inventory (api)"].step()
    assert watch_of(api).inventory.fleet.nodes == ("gpu-1", "gpu-2")


def test_telemetry_that_is_sent_to_the_api_is_refused_and_not_swallowed(api: Parts) -> None:
    """No ring is read there: a 2xx would promise what nobody keeps."""
    client = TestClient(create_app(api, run_loops=False), base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5))
    answer = client.post("/api/v1/ingest/remote-write", content=b"x", headers={"content-encoding": "snappy"})
    assert answer.status_code == 421
    assert "--role observe" in answer.json()["detail"]
