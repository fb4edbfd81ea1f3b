"""Pages on a filled store, and readers of each role."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from backend.auth import COOKIE, sign_in_as
from backend.clock import ManualClock
from backend.registry import Parts
from tests.backend.web import site, tales
from tests.conftest import NOW

Reader = Callable[[str], TestClient]


@pytest.fixture(scope="session")
def filled_sqlite(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole story, written once; tests copy it."""
    folder = folder_with(migrated_sqlite, tmp_path_factory.mktemp("filled"))
    made = site.parts_of(folder, ManualClock(NOW))
    tales.fill(made)
    made.store.close()
    return folder / "watchkeeper.db"


def folder_with(database: Path, folder: Path) -> Path:
    """A data folder of one's own with a copy of a database."""
    made = folder / "store"
    made.mkdir(mode=0o700)
    shutil.copy(database, made / "watchkeeper.db")
    return made


@pytest.fixture
def parts(tmp_path: Path, filled_sqlite: Path, clock: ManualClock) -> Iterator[Parts]:
    made = site.parts_of(folder_with(filled_sqlite, tmp_path), clock, people=False)
    yield made
    made.store.close()


@pytest.fixture
def bare(tmp_path: Path, migrated_sqlite: Path, clock: ManualClock) -> Iterator[Parts]:
    """Parts that have never heard of a node."""
    made = site.parts_of(folder_with(migrated_sqlite, tmp_path), clock)
    yield made
    made.store.close()


def client_of(parts: Parts, role: str = "") -> TestClient:
    """A reader on loopback; with a role, signed in."""
    client = TestClient(
        site.app_of(parts), base_url="http://127.0.0.1", client=("127.0.0.1", 50000), follow_redirects=False
    )
    if role:
        cookie = sign_in_as(parts.store, parts.settings.security, role, parts.clock.now(), parts.secret)
        client.cookies.set(COOKIE, cookie)
    return client


@pytest.fixture
def reader(parts: Parts) -> Reader:
    return lambda role: client_of(parts, role)
