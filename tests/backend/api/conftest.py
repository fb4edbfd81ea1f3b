"""A whole application without its loops, on a real store, asked over HTTP as programs and people would."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from backend import auth
from backend.api import routes
from backend.clock import ManualClock
from backend.registry import Parts, build
from backend.security import csrf, tokens
from backend.settings import Cluster, Server, Settings
from backend.settings import Store as StoreSettings
from backend.store import people
from backend.watch import Watch

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LOOPBACK = ("127.0.0.1", 50_000)


@dataclass
class Site:
    """One server under test: its parts, its clock, and callers of every sort."""

    parts: Parts
    clock: ManualClock
    app: FastAPI

    @property
    def watch(self) -> Watch:
        return next(iter(self.parts.watches.values()))

    def client(self, peer: tuple[str, int] = LOOPBACK, **headers: str) -> TestClient:
        return TestClient(
            self.app, base_url="http://127.0.0.1:8000", client=peer, headers=headers, raise_server_exceptions=False
        )

    def token(self, scope: str) -> str:
        text = tokens.new_token()
        with self.parts.store.write() as session:
            people.add_token(session, f"{scope} robot", scope, tokens.hash_token(text, self.parts.secret), NOW)
        return text

    def program(self, scope: str, peer: tuple[str, int] = LOOPBACK) -> TestClient:
        return self.client(peer, Authorization=f"Bearer {self.token(scope)}")

    def person(self, role: str) -> TestClient:
        """A signed-in browser that sends its CSRF header."""
        with self.parts.store.write() as session:
            people.ensure_user(session, role, role, NOW)
        cookie = auth.sign_in_as(self.parts.store, self.parts.settings.security, role, NOW, self.parts.secret)
        with self.parts.store.read() as session:
            person = auth.person_of(session, cookie, NOW, self.parts.secret)
        assert person is not None
        client = self.client(LOOPBACK, **{csrf.HEADER: person.csrf})
        client.cookies.set(auth.COOKIE, cookie)
        return client


def make(folder: Path, migrated: Path, **settings: Any) -> Iterator[Site]:
    shutil.copy(migrated, folder / "watchkeeper.db")
    clock = ManualClock(NOW)
    parts = build(Settings(store=StoreSettings(folder=folder), **settings), clock)
    app = FastAPI(title="Watchkeeper", docs_url=None)
    app.state.parts = parts
    routes.install(app)
    yield Site(parts, clock, app)
    parts.store.close()


@pytest.fixture
def site(tmp_path: Path, migrated_sqlite: Path) -> Iterator[Site]:
    yield from make(tmp_path, migrated_sqlite, mode="propose", server=Server(max_body_bytes=200_000))


@pytest.fixture
def two_clusters(tmp_path: Path, migrated_sqlite: Path) -> Iterator[Site]:
    yield from make(tmp_path, migrated_sqlite, cluster=(Cluster(name="east"), Cluster(name="west")))


@pytest.fixture
def local(site: Site) -> TestClient:
    """A program on this very machine, without a token."""
    return site.client()


def problem(answer: Any, status: int) -> dict[str, Any]:
    """The body of an error, once it is what every error has to be."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == status and body["title"] and body["type"].startswith("urn:watchkeeper:problem:")
    assert len(body["detail"]) > 15 and "Traceback" not in answer.text
    return body
