"""Shared fixtures: a migrated store on SQLite and on PostgreSQL, and a clock that only tests turn."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.clock import ManualClock
from backend.store.engine import Store, migrate, open_store
from tests.services.postgres import Postgres, running_postgres

ENDED = ".tests-ended"
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def now() -> datetime:
    return NOW


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for the whole run; each test takes its own database on it."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """An empty database."""
    name = postgres.create()
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture(scope="session")
def migrated_postgres(postgres: Postgres) -> str:
    """The name of a migrated database that tests copy."""
    name = postgres.create()
    store = open_store(postgres.url(name), Path())
    migrate(store)
    store.close()
    return name


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database file that tests copy."""
    folder = tmp_path_factory.mktemp("migrated")
    store = open_store("", folder)
    migrate(store)
    store.close()
    return folder / "watchkeeper.db"


@pytest.fixture
def sqlite_store(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Store]:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    shutil.copy(migrated_sqlite, folder / "watchkeeper.db")
    store = open_store("", folder)
    yield store
    store.close()


@pytest.fixture
def postgres_store(postgres: Postgres, migrated_postgres: str, tmp_path: Path) -> Iterator[Store]:
    name = postgres.create(template=migrated_postgres)
    store = open_store(postgres.url(name), tmp_path)
    yield store
    store.close()
    postgres.drop(name)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services)])
def store(request: pytest.FixtureRequest) -> Store:
    """A migrated, empty store; the test runs once on each database."""
    found = request.getfixturevalue("sqlite_store" if request.param == "sqlite" else "postgres_store")
    assert isinstance(found, Store)
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file stays with one worker, so that what it starts once (a Slurm, a browser, a demo) is started once."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem + item.path.parent.name))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leaves a mark that the run came to its end: `make test` does not take a process that left early for a success.
    Workers leave none: one that dies is a failed test of the run that they belong to."""
    if not hasattr(session.config, "workerinput"):
        (session.config.rootpath / ENDED).touch()
