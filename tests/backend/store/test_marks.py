"""Marks of sources that follow: kept, moved and forgotten, each source and cluster apart, on both databases."""

from __future__ import annotations

from datetime import timedelta

from backend.store.engine import Store
from backend.store.marks import keep_marks, marks
from tests.conftest import NOW


def test_marks_are_kept_moved_and_forgotten(store: Store) -> None:
    with store.write() as session:
        keep_marks(session, "main", "files", {f"/log/{n}": "{}" for n in range(1200)}, NOW)
        keep_marks(session, "main", "journal", {"/log/1": "other"}, NOW)
        keep_marks(session, "two", "files", {"/log/1": "two"}, NOW)
    with store.write() as session:
        moved = {"/log/0": "far", **{f"/log/{n}": None for n in range(2, 1200)}, "/never": None}
        keep_marks(session, "main", "files", moved, NOW + timedelta(seconds=1))
    with store.read() as session:
        assert marks(session, "main", "files") == {"/log/0": "far", "/log/1": "{}"}
        assert marks(session, "main", "journal") == {"/log/1": "other"}
        assert marks(session, "two", "files") == {"/log/1": "two"}
        assert marks(session, "none", "files") == {}


def test_what_is_rolled_back_moves_no_mark(store: Store) -> None:
    class Stop(Exception):
        pass

    try:
        with store.write() as session:
            keep_marks(session, "main", "files", {"/log": "{}"}, NOW)
            raise Stop
    except Stop:
        pass
    with store.read() as session:
        assert marks(session, "main", "files") == {}
