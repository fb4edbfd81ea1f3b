"""A real server on loopback for the commands that ask one, and a configuration file for those that need a store."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import uvicorn

from backend.app import create_app
from backend.auth import Person
from backend.clock import SystemClock, unix
from backend.commands.server import listen, with_port
from backend.facts import Batch, NodeFacts
from backend.model.incidents import Incident
from backend.pipeline import accept
from backend.registry import Parts, build
from backend.settings import Cluster, Server, Settings
from backend.settings import Store as StoreSettings
from backend.writes import exclude

NODES = tuple(f"gpu-{n:04d}" for n in range(1, 13))


@dataclass(frozen=True)
class Served:
    """A server that answers, and its parts."""

    url: str
    parts: Parts

    def exclude(self, *nodes: str) -> None:
        watch = self.parts.watches["main"]
        until = self.parts.clock.now() + timedelta(hours=1)
        for node in nodes:
            exclude(watch, node, Person("bob", "operator"), "riser is swapped", until)

    def open_incident(self) -> None:
        now = self.parts.clock.now()
        with self.parts.store.write() as session:
            session.add(
                Incident(
                    cluster="main",
                    kind="gpu_bus_loss",
                    severity="critical",
                    headline="GPU 3 of gpu-0001 is lost.",
                    entity_kind="gpu",
                    entity_id="GPU-1",
                    entity_name="gpu-0001/gpu3",
                    node="gpu-0001",
                    job="48213",
                    opened_at=now,
                    changed_at=now,
                    last_asserted_at=now,
                )
            )


@pytest.fixture
def folder(tmp_path: Path, migrated_sqlite: Path) -> Path:
    """A data folder with an empty, migrated database."""
    made = tmp_path / "store"
    made.mkdir(mode=0o700)
    shutil.copy(migrated_sqlite, made / "watchkeeper.db")
    return made


@pytest.fixture
def config(tmp_path: Path, folder: Path) -> Path:
    """A configuration file for a store that is ready."""
    file = tmp_path / "watchkeeper.toml"
    file.write_text(f'[store]\nfolder = "{folder}"\n')
    return file


def served_with(folder: Path, *clusters: str) -> Iterator[Served]:
    settings = Settings(
        server=Server(port=0), store=StoreSettings(folder=folder), cluster=tuple(Cluster(name=c) for c in clusters)
    )
    listener = listen(settings.server)
    parts = build(with_port(settings, listener), SystemClock())
    server = uvicorn.Server(uvicorn.Config(create_app(parts, run_loops=False), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline and thread.is_alive(), "the server never came up"
        time.sleep(0.01)
    now = unix(parts.clock.now())
    facts = tuple(NodeFacts(name, state="idle", expected_gpus=8, read_at=now) for name in NODES)
    accept(parts.watches[clusters[0]], Batch("slurm", now, now, nodes=facts))
    try:
        yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}", parts)
    finally:
        server.should_exit = True
        thread.join(20)
        parts.store.close()


@pytest.fixture
def served(folder: Path) -> Iterator[Served]:
    yield from served_with(folder, "main")


@pytest.fixture
def two_clusters(folder: Path) -> Iterator[Served]:
    yield from served_with(folder, "main", "west")
