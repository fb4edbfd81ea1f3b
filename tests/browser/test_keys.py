"""By the keyboard alone: the palette, the map of keys, lists, local time, and copying."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visitor

pytestmark = pytest.mark.browser
Come = Callable[..., Visitor]


def test_the_palette_finds_a_page_an_incident_and_a_node_by_typing(visitor: Come) -> None:
    page = visitor("approver").page
    page.goto("/")
    for words, to in (("reliab", "**/reliability"), ("6", "**/incidents/6"), ("gpu-012", "**/nodes/gpu-012")):
        page.keyboard.press("Control+k")
        expect(page.get_by_role("combobox", name="Page, incident")).to_be_focused()
        page.keyboard.type(words)
        expect(page.locator("#palette-list li").first).to_have_attribute("aria-selected", "true")
        page.keyboard.press("Enter")
        page.wait_for_url(to)


def test_keys_walk_over_lists_and_go_to_places_but_never_while_somebody_types(visitor: Come) -> None:
    page = visitor("operator").page
    page.goto("/incidents")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("main table a").first).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/incidents/*")
    page.get_by_label("Note", exact=True).fill("")
    page.keyboard.type("gfu?")
    expect(page.get_by_label("Note", exact=True)).to_have_value("gfu?")
    page.locator("h1").click()
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.wait_for_url("**/fleet")


def test_the_map_of_keys_opens_and_turns_single_keys_off(visitor: Come) -> None:
    page = visitor("viewer").page
    page.goto("/fleet")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Where to look, and keys")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Single keys do this").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(dialog).to_be_hidden()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Go to")).to_be_visible()


def test_times_turn_local_and_back(visitor: Come) -> None:
    page = visitor("viewer", timezone_id="Asia/Tokyo").page
    page.goto("/incidents/1")
    before = page.locator(".facts").inner_text()
    assert "UTC" in before
    page.keyboard.press("u")
    expect(page.locator(".facts")).to_contain_text("GMT+9")
    expect(page.get_by_role("button", name="Local")).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(page.locator(".facts")).to_contain_text("GMT+9")
    page.get_by_role("button", name="Local").click()
    assert page.locator(".facts").inner_text() == before


def test_an_incident_is_copied_as_markdown(visitor: Come) -> None:
    one = visitor("viewer")
    one.context.grant_permissions(["clipboard-read", "clipboard-write"])
    one.page.goto("/incidents/1")
    one.page.keyboard.press("m")
    expect(one.page.locator("#copy-markdown")).to_have_text("Copied")
    assert "## Most likely cause" in one.page.evaluate("navigator.clipboard.readText()")


def test_the_first_visit_says_where_to_look_and_only_that_one(visitor: Come) -> None:
    page = visitor("viewer").page
    page.goto("/")
    page.get_by_role("button", name="Got it").click()
    page.reload()
    expect(page.locator("#tour")).to_be_hidden()
