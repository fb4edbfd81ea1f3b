"""Who ran on this GPU then, in 90 days of 100,000 GPUs, against one bare indexed query of the same table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path

import numpy as np
from sqlalchemy import bindparam, select
from sqlmodel import Session, col

from backend.model.work import Allocation
from backend.store.allocations import beside, holders, size_of
from backend.store.engine import Store, migrate, open_store
from backend.store.upsert import table_of
from benchmarks.ratio import Ratio, measure
from tests.services.postgres import running_postgres

NODES, DAYS = 12_500, 90
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
#: Attempts: many short ones of a few GPUs, fewer long ones of many nodes; sizes as published for such clusters lie
#: between. (share of all, nodes, GPUs of each, mean length in s)
KINDS = ((0.62, 1, 1, 1800.0), (0.25, 1, 8, 14_400.0), (0.1, 16, 8, 43_200.0), (0.03, 256, 8, 172_800.0))
ATTEMPTS, PAIRS = 160_000, 400
PORTION = 50_000
#: cluster, job, life, restart, node, GPUs, size, start, end.
Span = tuple[str, str, int, int, str, str, int, str, str]


def run() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store("", Path(folder), durable=False)
        yield from measured(store, "SQLite")
        store.close()
    with tempfile.TemporaryDirectory() as folder, running_postgres() as server:
        store = open_store(server.url(server.create()), Path(folder))
        yield from measured(store, "PostgreSQL")
        store.close()


def measured(store: Store, name: str) -> Iterator[Ratio]:
    """Both questions at random nodes and moments."""
    migrate(store)
    rows = filled(store)
    dice = np.random.default_rng(7)
    asked = [(f"gpu-{int(dice.integers(NODES)):05}", moment(dice), int(dice.integers(8))) for _ in range(PAIRS)]
    table = table_of(Allocation)
    before = (table.c.cluster == "main", table.c.node == bindparam("node"), table.c.size == 2)
    bare = select(Allocation).where(*before, col(Allocation.start) <= bindparam("at", type_=table.c.start.type))
    bare = bare.order_by(col(Allocation.start).desc()).limit(1)
    span = f"{DAYS} days of {NODES * 8:,} GPUs ({rows:,} spans), {name}"
    with store.read() as session:
        ours, peer = cycle(asked), cycle(asked)

        def one(of: Iterator[tuple[str, datetime, int]]) -> object:
            node, at, gpu = next(of)
            return holders(session, "main", node, at, gpu)

        def indexed(times: int = 1) -> Callable[[], object]:
            def ask() -> object:
                node, at, _ = next(peer)
                return [list(session.scalars(bare, {"node": node, "at": at})) for _ in range(times)]

            return ask

        yield measure(f"who ran on a GPU: {span}", "one bare indexed query", lambda: one(ours), indexed(), PAIRS, 50)
        small = cycle([a for a in asked if fewer(session, a)])

        def with_peers() -> object:
            node, at, gpu = next(small)
            return [beside(session, row, at) for row in holders(session, "main", node, at, gpu)]

        yield measure(f"its peers then: {span}", "two bare indexed queries", with_peers, indexed(2), PAIRS, 50)


def fewer(session: Session, asked: tuple[str, datetime, int]) -> bool:
    """One holder, of at most 16 nodes: what is timed is the lookup, not the making of hundreds of rows."""
    node, at, gpu = asked
    found = holders(session, "main", node, at, gpu)
    return len(found) == 1 and len(beside(session, found[0], at)) <= 16


def moment(dice: np.random.Generator) -> datetime:
    return BEGIN + timedelta(seconds=float(dice.uniform(0, DAYS * 86_400)))


def filled(store: Store) -> int:
    """Spans of ATTEMPTS attempts, in order of start; how many there are. One row an attempt and node."""
    dice = np.random.default_rng(1)
    kinds = dice.choice(len(KINDS), ATTEMPTS, p=[kind[0] for kind in KINDS])
    starts = np.sort(dice.uniform(0, DAYS * 86_400, ATTEMPTS))
    portion: list[Span] = []
    count = 0
    for job, (kind, at) in enumerate(zip(kinds.tolist(), starts.tolist(), strict=True)):
        _, nodes, gpus, length_s = KINDS[kind]
        start = BEGIN + timedelta(seconds=at)
        end = start + timedelta(seconds=float(dice.exponential(length_s)) + 1)
        first = int(dice.integers(NODES))
        held = "[0,1,2,3,4,5,6,7]" if gpus == 8 else f"[{int(dice.integers(8))}]"
        begin, last, size = (f"{start:%Y-%m-%d %H:%M:%S.%f}", f"{end:%Y-%m-%d %H:%M:%S.%f}", size_of(start, end))
        portion += [
            ("main", str(job), 0, 0, f"gpu-{(first + i) % NODES:05}", held, size, begin, last) for i in range(nodes)
        ]
        if len(portion) >= PORTION:
            count += write(store, portion)
            portion = []
    return count + write(store, portion)


def write(store: Store, portion: Sequence[Span]) -> int:
    """By the driver's own fast way; what is measured is reading."""
    columns = 'cluster, job, life, restart, node, gpus, size, start, "end"'
    with store.write() as session:
        raw = session.connection().connection
        if store.dialect == "sqlite":
            raw.cursor().executemany(f"INSERT INTO allocation ({columns}) VALUES ({', '.join('?' * 9)})", portion)
        else:
            with raw.cursor().copy(f"COPY allocation ({columns}) FROM STDIN") as copy:
                for row in portion:
                    copy.write_row([f"{value}+00" if i > 6 else value for i, value in enumerate(row)])
    return len(portion)
