"""From a kernel line to its committed incident, against a bare INSERT and commit of one row on the same database."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from sqlalchemy import insert

from backend import pipeline
from backend.clock import SystemClock, unix
from backend.ingest.logs import logs_batch, read_rows
from backend.loops import Loops
from backend.model.system import Secret
from backend.registry import Parts, build
from backend.settings import Settings, Store
from benchmarks.ratio import Ratio, measure
from benchmarks.verdict import inventory_of
from detectors.kernel.lines import parse
from tests.services.need import find
from tests.services.postgres import running_postgres

NODES, PAIRS, LONGEST_S = 200, 25, 30.0
#: Incidents that are open when measuring begins: an ordinary night, and a bad one.
OPEN = (5, 120)


def run() -> Iterator[Ratio]:
    """On SQLite, and on PostgreSQL where it is installed."""
    with tempfile.TemporaryDirectory() as folder:
        yield from on_database("SQLite", Store(folder=Path(folder)))
    if find("initdb") is None:
        print("line on PostgreSQL: not measured, PostgreSQL is not installed")
        return
    with running_postgres() as server, tempfile.TemporaryDirectory() as folder:
        yield from on_database("PostgreSQL (fsync off)", Store(url=server.url(server.create()), folder=Path(folder)))


def on_database(name: str, store: Store) -> Iterator[Ratio]:
    with running(store) as (parts, committed):
        nodes = (f"gpu-{n:04}" for n in count())
        rows = count()

        def ours() -> None:
            before = committed()
            push(parts, next(nodes))
            deadline = time.monotonic() + LONGEST_S
            while committed() == before:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"no incident within {LONGEST_S:g} s of its line")
                time.sleep(0.0002)

        def peer() -> None:
            values = {"name": f"row {next(rows)}", "value": "x" * 200, "created_at": parts.clock.now()}
            with parts.store.engine.begin() as connection:
                connection.execute(insert(Secret).values(values))

        for already in OPEN:
            words = f"line pushed to incident committed on {name}, {already} to {already + PAIRS} incidents open"
            yield measure(words, "INSERT and commit of one row", ours, peer, n=PAIRS, warm=already - committed())


@contextmanager
def running(store: Store) -> Iterator[tuple[Parts, Callable[[], int]]]:
    """A server without HTTP, its loops on; and how many ticks have committed a change of incidents."""
    clock = SystemClock()
    parts = build(Settings(store=store), clock)
    watch = parts.watches["main"]
    points: list[str] = []
    watch.reached = points.append
    pipeline.accept(watch, inventory_of([f"gpu-{n:04}" for n in range(NODES)], unix(clock.now())))
    loops = Loops(parts)
    loops.start()
    try:
        yield parts, lambda: points.count("incident committed")
    finally:
        loops.stop()
        parts.store.close()
        assert not [t for t in threading.enumerate() if t.name.startswith("main:")], "a loop did not stop"


def push(parts: Parts, node: str) -> None:
    """What POST ingest/logs does with one line."""
    now = unix(parts.clock.now())
    line = "NVRM: Xid (PCI:0000:13:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    body = json.dumps([{"ts": now, "host": node, "source": "kernel", "line": line}]).encode()
    batch = logs_batch(read_rows(body, "application/json", now), now, parse)
    accepted = pipeline.accept(parts.watches["main"], batch)
    if accepted.events != 1:
        raise RuntimeError(f"the line of {node} was not taken: {accepted}")
