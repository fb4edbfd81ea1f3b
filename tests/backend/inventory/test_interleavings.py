"""Attempts told in any order, over restarts of Watchkeeper: each once, with one span a node, as it was."""

from __future__ import annotations

import random
from dataclasses import replace

from backend.clock import unix, utc
from backend.inventory.inventory import Inventory
from backend.store import cluster as rows
from backend.store.engine import Store
from tests.backend.store.test_merging import sightings, truth
from tests.backend.test_inventory import absorb, batch, reloaded

#: A clock of a whole second rounds a start down; a poll tells an end that nobody told at the moment of the poll.
ROUNDED_S = 1.0


def test_every_attempt_has_one_span_a_node_after_any_order_and_any_restart(sqlite_store: Store) -> None:
    for seed in range(25):
        dice = random.Random(seed)
        lives, job = truth(dice), f"job{seed}"
        inventory = Inventory("main")
        for at, record in sorted(sightings(lives, dice, 1), key=lambda pair: pair[0]):
            if dice.random() < 0.2:
                inventory = reloaded(sqlite_store)
            told = replace(record, job=job, nodes=(f"{job}-a", f"{job}-b") if record.nodes else ())
            absorb(sqlite_store, inventory, replace(batch(told), source=record.source), now=utc(at))
        with sqlite_store.read() as session:
            found = [one for one in rows.attempts(session, "main", [job]) if one.start is not None]
            spans = rows.allocations(session, "main", [job])
        assert [one.state for one in found] == [one.state for one in lives], seed
        assert len({(s.life, s.restart, s.node) for s in spans}) == len(spans) == 2 * len(lives), seed
        wanted = sorted((one.start, one.end) for one in lives for _ in "ab")
        for span, (start, end) in zip(sorted(spans, key=lambda s: s.start), wanted, strict=True):
            assert abs(unix(span.start) - start) <= ROUNDED_S and span.end is not None, seed
            assert abs(unix(span.end) - end) <= ROUNDED_S, (seed, unix(span.end) - end)
        assert job not in {one.job for one in inventory._work.held.values()}
