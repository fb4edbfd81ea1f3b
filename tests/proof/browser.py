"""A real Chromium that signs in as a person would, and complains about every console error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from tests.proof.site import PASSWORD
from tests.services.need import need

WIDTHS = (390, 1280)
THEMES = ("light", "dark")


@contextmanager
def browser_page(width: int = 1280) -> Iterator[Page]:
    program = need("chromium", "chromium")
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport={"width": width, "height": 900})
        errors: list[str] = []
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        chromium.close()
        assert errors == []


def sign_in(page: Page, url: str, name: str) -> None:
    page.goto(f"{url}/sign-in")
    page.fill("#name", name)
    page.fill("#password", PASSWORD)
    page.click("#sign-in")
    expect(page.locator("h1")).to_be_visible()


def approve(page: Page, url: str, incident: int) -> None:
    """Open the incident, read what is there, press Approve and confirm in the dialog."""
    page.goto(f"{url}/incidents/{incident}")
    expect(page.locator("#why")).to_contain_text("lost on PCIe")
    expect(page.locator("#seen")).to_contain_text("NVRM: Xid")
    expect(page.locator(".guards li")).to_have_count(21)
    page.click("#approve-open")
    page.click("#approve-confirm")
    expect(page.locator("#approve-open")).to_have_count(0)


def screenshots(page: Page, url: str, paths: dict[str, str], folder: Path) -> list[Path]:
    """Each page in both themes and widths; no page may scroll sideways."""
    taken = []
    for theme in THEMES:
        page.context.add_cookies([{"name": "theme", "value": theme, "url": url}])
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            for name, path in paths.items():
                page.goto(url + path)
                expect(page.locator("h1")).to_be_visible()
                expect(page.locator("[data-figure]:not([data-drawn])")).to_have_count(0)
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, f"{name} at {width} px scrolls sideways: {wide} px"
                file = folder / f"{name}-{width}-{theme}.png"
                page.screenshot(path=file, full_page=True)
                taken.append(file)
    return taken
