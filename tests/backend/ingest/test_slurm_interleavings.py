"""No attempt is lost and none is doubled, however Slurm, its accounting and Watchkeeper interleave."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.store.engine import Store, migrate, open_store
from tests.backend.ingest.interleavings import tell

QUICK, ALL = 30, 10_000


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = open_store("", tmp_path, durable=False)
    migrate(opened)
    return opened


def test_no_attempt_is_lost_or_doubled(store: Store) -> None:
    for seed in range(QUICK):
        assert tell(seed, store) == ([], []), f"interleaving {seed}: (lost, doubled)"


@pytest.mark.slow
def test_no_attempt_is_lost_or_doubled_in_ten_thousand_interleavings(tmp_path: Path) -> None:
    told: dict[int, tuple[list[str], list[str]]] = {}
    for first in range(0, ALL, 500):  # a new database now and then: each story has a cluster of its own in it
        opened = open_store("", tmp_path / str(first), durable=False)
        migrate(opened)
        told |= {seed: tell(seed, opened) for seed in range(first, first + 500)}
    wrong = {seed: found for seed, found in told.items() if found != ([], [])}
    assert not wrong, f"{len(wrong)} of {ALL} interleavings: {dict(list(wrong.items())[:3])}"
