"""Export and archive: the same rows in every form, on both databases; nothing leaves that was not read back."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
from sqlmodel import func, select

from backend import archive, export
from backend.model.events import Event, Finding
from backend.store.engine import Store
from tests.backend.rollups import months
from tests.conftest import NOW

DAYS = 6
SINCE, UNTIL = NOW - timedelta(days=60), NOW + timedelta(days=1)


@pytest.fixture
def filled(store: Store) -> Store:
    with store.write() as session:
        months.fill(session, "main", NOW, DAYS)
    return store


@pytest.mark.parametrize("name", sorted(export.TABLES))
def test_a_table_is_the_same_in_every_form(filled: Store, name: str, tmp_path: Path) -> None:
    with filled.read() as session:
        plain = list(export.rows_of(session, "main", name, SINCE, UNTIL))
        assert orjson.loads(b"".join(export.as_json(iter(plain)))) == orjson.loads(orjson.dumps(plain))
    sheet = list(csv.DictReader(io.StringIO(b"".join(export.as_csv(name, iter(plain))).decode())))
    assert len(sheet) == len(plain)
    what = export.TABLES[name]
    assert export.to_parquet(name, iter(plain), tmp_path / "rows.parquet") == len(plain)
    back = export.from_parquet([tmp_path / "rows.parquet"], what.key, SINCE, UNTIL, what.at)
    assert len(back) == len(plain)
    for one, other in zip(back[:50], sorted(plain, key=lambda row: tuple(row[k] for k in what.key))[:50], strict=True):
        for column, value in other.items():
            told = orjson.dumps(value).decode() if isinstance(value, list | dict) else value
            assert one[column] == told, column


def test_a_cell_that_is_a_formula_is_quoted_off() -> None:
    assert export._cell("=1+1") == "'=1+1" and export._cell(-1.5) == -1.5


def count(store: Store) -> int:
    with store.read() as session:
        return sum(session.exec(select(func.count()).select_from(model)).one() for model in (Finding, Event))


def test_old_days_leave_and_are_read_back(filled: Store, tmp_path: Path) -> None:
    before, all_of = NOW - timedelta(days=3), count(filled)
    while archive.archive_day(filled, "main", tmp_path, before):
        pass
    with filled.read() as session:
        kept = list(export.rows_of(session, "main", "findings", SINCE, UNTIL))
    assert kept and all(row["raised_at"] >= before.replace(hour=0, minute=0, second=0) for row in kept)
    gone = [row for name in archive.OLD for row in archive.archived(tmp_path, "main", name, SINCE, UNTIL)]
    assert gone and len(gone) + count(filled) == all_of
    assert archive.archive_day(filled, "main", tmp_path, before) == ""


def test_a_crash_between_file_and_deletion_costs_nothing(
    filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_of = count(filled)
    with monkeypatch.context() as broken:
        broken.setattr(archive, "_drop", lambda *_: (_ for _ in ()).throw(OSError("the power went")))
        with pytest.raises(OSError, match="power"):
            archive.archive_day(filled, "main", tmp_path, NOW)
    assert count(filled) == all_of
    while archive.archive_day(filled, "main", tmp_path, NOW):
        pass
    gone = [row for name in archive.OLD for row in archive.archived(tmp_path, "main", name, SINCE, UNTIL)]
    assert len(gone) + count(filled) == all_of


def test_a_file_that_holds_less_deletes_nothing(filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    all_of = count(filled)
    whole = export.from_parquet
    monkeypatch.setattr(export, "from_parquet", lambda *a: whole(*a)[1:])
    with pytest.raises(archive.Lost, match="nothing was deleted"):
        archive.archive_day(filled, "main", tmp_path, NOW)
    assert count(filled) == all_of
