"""Reads of the pages of cost with many findings beside them, against the same reads where only rollups are.

``python -m benchmarks.rollups [FINDINGS ...]``: sizes to compare, 100,000 and 1,000,000 where none is named; the
promise is about 1,000,000 and 10,000,000 (ten minutes and some 10 GB).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import text
from sqlmodel import Session

from backend.store import reckoning
from backend.store.engine import Store, migrate, open_store
from benchmarks.ratio import Ratio, measure
from tests.services.postgres import running_postgres

NOW = datetime(2026, 6, 1, tzinfo=UTC)
HOURS, NODES, JOBS, RUNS, PAIRS = 28 * 24, 200, 20, 300, 60
SIZES = (100_000, 1_000_000)


def run(sizes: tuple[int, ...] = SIZES) -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        opened = [open_store("", Path(folder) / str(size), durable=False) for size in (0, *sizes)]
        yield from measured(opened, sizes, "SQLite")
    with tempfile.TemporaryDirectory() as folder, running_postgres() as server:
        opened = [open_store(server.url(server.create()), Path(folder)) for _ in (0, *sizes)]
        yield from measured(opened, sizes, "PostgreSQL")


def measured(opened: list[Store], sizes: tuple[int, ...], name: str) -> Iterator[Ratio]:
    """Each size against none, and the last against the first."""
    for store, size in zip(opened, (0, *sizes), strict=True):
        migrate(store)
        fill(store, size)
    for store, size in zip(opened[1:], sizes, strict=True):
        yield compared(store, opened[0], f"reads with {size:,} findings, {name}", "those with rollups only")
    if len(sizes) > 1:
        what = f"reads with {sizes[-1]:,} findings, {name}"
        yield compared(opened[-1], opened[1], what, f"those with {sizes[0]:,}")
    for store in opened:
        store.close()


def compared(ours: Store, peer: Store, promise: str, against: str) -> Ratio:
    with ours.read() as mine, peer.read() as theirs:
        return measure(promise, against, reads(mine), reads(theirs), PAIRS)


def reads(session: Session) -> Callable[[], object]:
    """What Runs, Run and Reliability ask, and 28 days of hours of the cluster, a job and a node."""
    since = NOW - timedelta(hours=HOURS)

    def ask() -> object:
        session.expunge_all()
        return (
            reckoning.runs_page(session, "main", 100),
            reckoning.run_named(session, "main", "run-7"),
            reckoning.reckoning(session, "main", 28),
            reckoning.sums(session, "main", since, NOW),
            reckoning.sums(session, "main", since, NOW, job="7"),
            reckoning.sums(session, "main", since, NOW, node="gpu-7"),
        )

    return ask


def fill(store: Store, findings: int) -> None:
    """Runs, sums and ``findings``, by the database's own counting: what is measured is reading."""
    with store.write() as session:
        rows = [
            {"cluster": "main", "name": f"run-{i}", "user": "lena", "account": "", "state": "RUNNING", "nodes": 16}
            | {"gpus": 128, "moved_at": NOW - timedelta(minutes=i), "began_at": NOW, "failed_at": None}
            | {"failed_why": "", "attempts": 3, "failures": 2, "infra_failures": 1, "ettr_low": 0.9, "ettr_high": 0.9}
            | {"lost_low_gpu_s": 1.0, "lost_high_gpu_s": 1.0, "digest": "", "document": {"attempts": [{}] * 20}}
            for i in range(RUNS)
        ]
        reckoning.put_runs(session, "main", rows, {})
        whole = {"cluster": "main", "days": 28, "at": NOW, "took_s": 1.0, "document": {"trend": [{}] * 28}}
        reckoning.put_reckonings(session, [whole])
        keys = [("", "")] + [(str(j), "") for j in range(JOBS)] + [("", f"gpu-{n}") for n in range(NODES)]
        values = (1.0,) * len(reckoning.SUMS)
        hours = [NOW - timedelta(hours=h + 1) for h in range(HOURS)]
        reckoning.put_sums(session, "main", {(job, node, hour): values for job, node in keys for hour in hours})
    with store.write() as session:
        session.connection().execute(text(FINDINGS[store.dialect]), {"n": findings})
    with store.engine.connect() as plain:
        plain.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("ANALYZE")


_COLUMNS = (
    "cluster, key, detector, kind, entity_kind, entity_id, entity_name, node, severity, score, since, reason, "
    "evidence, raised_at, emitted_at, cleared_at, victim"
)
_SAID = "'main', 'key-' || i, 'kernel/codes', 'gpu_bus_loss', 'node', '', '', 'gpu-' || (i % 200), 'high', 0.9"
#: One statement a database: rows spread over the 28 days.
FINDINGS = {
    "sqlite": f"WITH RECURSIVE c(i) AS (SELECT 1 WHERE :n > 0 UNION ALL SELECT i + 1 FROM c WHERE i < :n) "
    f"INSERT INTO finding ({_COLUMNS}) SELECT {_SAID}, t, 'lost', '[]', t, t, t, 0 FROM "
    "(SELECT i, strftime('%Y-%m-%d %H:%M:%f', '2026-06-01', '-' || (i % 2419200) || ' seconds') || '000' AS t FROM c)",
    "postgresql": f"INSERT INTO finding ({_COLUMNS}) SELECT {_SAID}, t, 'lost', '[]', t, t, t, false FROM "
    "(SELECT i, timestamptz '2026-06-01 00:00:00+00' - (i % 2419200) * interval '1 second' AS t "
    "FROM generate_series(1, :n) AS i) AS made",
}


if __name__ == "__main__":
    for ratio in run(tuple(int(word) for word in sys.argv[1:]) or SIZES):
        print(ratio, flush=True)
