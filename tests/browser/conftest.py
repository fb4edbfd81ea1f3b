"""One Chromium a module, and a served site of its own for each test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page
from sqlmodel import select

from backend.auth import COOKIE, sign_in_as
from backend.clock import ManualClock
from backend.model.cluster import Node
from backend.registry import Parts
from tests.backend.web import site, tales
from tests.browser.pictures import chromium
from tests.browser.server import served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not longer: while playwright's own event loop runs, no other test of this thread can run one."""
    with chromium() as found:
        yield found


@pytest.fixture
def parts(tmp_path: Path, migrated_sqlite: Path, clock: ManualClock) -> Iterator[Parts]:
    """The filled site, read from its scheduler a moment ago, so that guards may allow."""
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    shutil.copy(migrated_sqlite, folder / "watchkeeper.db")
    made = site.parts_of(folder, clock)
    tales.fill(made)
    with made.store.write() as session:
        for node in session.exec(select(Node)).all():
            node.state_at = clock.now()
            session.add(node)
    yield made
    made.store.close()


@pytest.fixture
def base(parts: Parts) -> Iterator[str]:
    with served(parts) as url:
        yield url


@dataclass
class Visitor:
    """A person at a browser; ``said`` holds every complaint of the console."""

    context: BrowserContext
    page: Page
    said: list[str]


@pytest.fixture
def visitor(browser: Browser, base: str, parts: Parts) -> Iterator[Callable[..., Visitor]]:
    """A browser window of its own for each call, signed in where a role is named. No console complaint is allowed."""
    made: list[Visitor] = []

    def come(role: str = "", width: int = 1280, height: int = 900, **more: object) -> Visitor:
        context = browser.new_context(base_url=base, viewport={"width": width, "height": height}, **more)  # type: ignore[arg-type]
        if role:
            cookie = sign_in_as(parts.store, parts.settings.security, role, parts.clock.now(), parts.secret)
            context.add_cookies([{"name": COOKIE, "value": cookie, "url": base}])
        page = context.new_page()
        page.set_default_timeout(15_000)
        said: list[str] = []
        page.on("console", lambda m: said.append(f"{m.type}: {m.text}") if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: said.append(f"pageerror: {e}"))
        made.append(Visitor(context, page, said))
        return made[-1]

    yield come
    complaints = [line for one in made for line in one.said]
    for one in made:
        one.context.close()
    assert not complaints
