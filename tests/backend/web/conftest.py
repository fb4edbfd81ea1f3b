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

Reader = Callable[[str], TestClient]


@pytest.fixture
def folder(tmp_path: Path, migrated_sqlite: Path) -> Path:
    """A data folder with an empty, migrated database."""
    made = tmp_path / "store"
    made.mkdir(mode=0o700)
    shutil.copy(migrated_sqlite, made / "watchkeeper.db")
    return made


@pytest.fixture
def parts(folder: Path, clock: ManualClock) -> Iterator[Parts]:
    made = site.parts_of(folder, clock)
    tales.fill(made)
    yield made
    made.store.close()


@pytest.fixture
def bare(folder: Path, clock: ManualClock) -> Iterator[Parts]:
    """Parts that have never heard of a node."""
    made = site.parts_of(folder, clock)
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
