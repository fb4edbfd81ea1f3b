"""Pictures of every page, light and dark, 390 and 1280 px wide: to look at, and for the README."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.services.need import need

#: Chromium as root in a container, without a graphics card.
ARGUMENTS = ("--no-sandbox", "--disable-gpu")
WIDTHS = ((1280, 900), (390, 844))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A real Chromium; skips where none is installed."""
    program = need("chromium", "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield browser
        browser.close()


def drawn(page: Page) -> None:
    """Wait until every figure on the page is drawn."""
    page.wait_for_function(
        "() => [...document.querySelectorAll('[data-figure]')].every((el) => el.dataset.drawn)", timeout=20_000
    )


def take(browser: Browser, base: str, cookie: str, pages: dict[str, str], folder: Path) -> list[str]:
    """One picture a page, theme and width into ``folder``. Returns what the console complained about."""
    folder.mkdir(parents=True, exist_ok=True)
    said: list[str] = []
    for width, height in WIDTHS:
        for theme in ("light", "dark"):
            context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce")
            names = {"theme": theme} | ({"watchkeeper_session": cookie} if cookie else {})
            context.add_cookies([{"name": name, "value": value, "url": base} for name, value in names.items()])
            page = context.new_page()
            page.on("console", lambda m: said.append(f"{m.type}: {m.text}") if m.type in ("error", "warning") else None)
            page.on("pageerror", lambda e: said.append(f"pageerror: {e}"))
            for name, path in pages.items():
                page.goto(base + path)
                drawn(page)
                page.screenshot(path=folder / f"{name}-{width}-{theme}.png", full_page=True)
            context.close()
    return said
