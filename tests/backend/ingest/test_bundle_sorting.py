"""Rows beyond memory: sorted on disk, read back whole and in order, within the limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.ingest.bundle.folder import BundleError
from backend.ingest.bundle.spill import Spill

SMALL = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SMALL
@given(st.lists(st.lists(st.integers(0, 12), max_size=9), max_size=9), st.integers(1, 30), st.booleans())
def test_rows_come_back_by_key_and_ties_in_the_order_they_came(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[list[int]], max_rows: int, single: bool
) -> None:
    spill = Spill(tmp_path_factory.mktemp("spill"), "a", (np.int32,), max_rows)
    keys = [float(key) for piece in pieces for key in piece]
    place = 0
    for piece in pieces:
        places = range(place, place + len(piece))
        if single:
            spill.add_rows(list(zip(map(float, piece), places, strict=True)))
        else:
            spill.add(np.array(piece, np.float64), np.array(places, np.int32))
        place += len(piece)
    found = spill.finish()
    blocks = list(found.blocks())
    expected = sorted(zip(keys, range(len(keys)), strict=True))
    assert [(k, i) for block in blocks for k, i in zip(*(c.tolist() for c in block), strict=True)] == expected
    assert list(found.each()) == expected
    assert found.size == len(keys)
    assert (found.first, found.last) == (min(keys, default=None), max(keys, default=None))
    for before, after in zip(blocks, blocks[1:], strict=False):
        assert before[0][-1] < after[0][0]


@SMALL
@given(st.permutations(range(60)), st.integers(1, 40))
def test_no_more_than_the_limit_is_held_at_once(
    tmp_path_factory: pytest.TempPathFactory, keys: list[int], max_rows: int
) -> None:
    spill = Spill(tmp_path_factory.mktemp("spill"), "a", (), max_rows)
    for at in range(0, 60, 7):
        spill.add(np.array(keys[at : at + 7], np.float64))
    found = spill.finish()
    assert max(run.size for run in found.runs) <= max_rows + 7
    assert all(block[0].size <= max(max_rows, len(found.runs)) for block in found.blocks())


def test_a_file_that_was_cut_meanwhile_is_said(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "a", (np.int32,), 4)
    spill.add(np.arange(8.0), np.arange(8, dtype=np.int32))
    found = spill.finish()
    path = found.runs[0].path
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(BundleError, match="has become shorter"):
        list(found.blocks())
    path.unlink()
    with pytest.raises(BundleError, match="cannot be read"):
        list(found.blocks())


def test_a_folder_that_cannot_be_written_is_said_with_what_is_needed(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "nowhere", "a", (), 4)
    with pytest.raises(BundleError, match="Free 32 bytes"):
        spill.add(np.arange(4.0))
