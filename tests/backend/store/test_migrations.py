"""The revisions and the tables agree, on both databases, up and down, and when two processes start at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import inspect
from sqlmodel import SQLModel

from alembic import command
from backend.store.engine import Store, StoreError, alembic_config, migrate, open_store

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store without tables."""
    store = open_store("" if request.param == "sqlite" else request.getfixturevalue("postgres_url"), tmp_path)
    yield store
    store.close()


def tables(store: Store) -> set[str]:
    return set(inspect(store.engine).get_table_names()) - {"alembic_version"}


def test_upgrade_from_empty_makes_every_table(empty: Store) -> None:
    migrate(empty)
    assert tables(empty) == set(SQLModel.metadata.tables)


def test_a_second_migration_changes_nothing(empty: Store) -> None:
    migrate(empty)
    migrate(empty)
    assert tables(empty)


def test_the_tables_are_what_the_models_say(empty: Store, capsys: pytest.CaptureFixture[str]) -> None:
    migrate(empty)
    with empty.engine.begin() as connection:
        command.check(alembic_config(connection))


def test_one_step_down_and_up_again(empty: Store) -> None:
    migrate(empty)
    with empty.engine.begin() as connection:
        command.downgrade(alembic_config(connection), "-1")
    migrate(empty)
    assert tables(empty) == set(SQLModel.metadata.tables)


def test_all_the_way_down_leaves_nothing(empty: Store) -> None:
    migrate(empty)
    with empty.engine.begin() as connection:
        command.downgrade(alembic_config(connection), "base")
    assert not tables(empty)


def test_two_that_start_at_once_both_find_the_tables(empty: Store, tmp_path: Path) -> None:
    url = empty.engine.url.render_as_string(hide_password=False)
    stores, errors = [open_store(url, tmp_path) for _ in range(2)], []
    start = threading.Barrier(2)

    def up(store: Store) -> None:
        start.wait(20)
        try:
            migrate(store)
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=up, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for store in stores:
        store.close()
    assert not errors and tables(empty) == set(SQLModel.metadata.tables)


def test_tables_of_a_later_version_stop_the_start(empty: Store) -> None:
    migrate(empty)
    with empty.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match="not of this version") as caught:
        migrate(empty)
    assert "Run the version" in caught.value.fix


def test_a_migration_that_fails_changes_nothing(empty: Store) -> None:
    with empty.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE secret (n INTEGER)")
    with pytest.raises(StoreError):
        migrate(empty)
    assert tables(empty) == {"secret"}


def test_the_command_of_alembic_works_from_the_shell_on_the_configured_database(tmp_path: Path) -> None:
    command_line = [sys.executable, "-m", "alembic", "-c", str(ROOT / "pyproject.toml"), "upgrade", "head"]
    environ = {**os.environ, "WATCHKEEPER_STORE__FOLDER": str(tmp_path / "shell")}
    done = subprocess.run(
        command_line, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    store = open_store("", tmp_path / "shell")
    assert tables(store) == set(SQLModel.metadata.tables)
    store.close()
