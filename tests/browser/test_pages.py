"""Real pages in a real Chromium: drawn under the strict policy, readable at both widths and in both themes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from backend.registry import Parts
from tests.browser.conftest import Visitor
from tests.browser.pictures import drawn

pytestmark = pytest.mark.browser
PAGES = ("/", "/fleet", "/incidents", "/incidents/1", "/incidents/6", "/system", "/sign-in")
Come = Callable[..., Visitor]


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_every_page_draws_its_figures_and_never_scrolls_sideways(visitor: Come, width: int, height: int) -> None:
    one = visitor("approver", width, height)
    for path in PAGES:
        one.page.goto(path)
        drawn(one.page)
        assert one.page.evaluate("document.documentElement.scrollWidth") <= width, path
        figures = one.page.locator("[data-figure]").count()
        assert one.page.locator("[data-figure] .main-svg").count() >= figures, path


def test_what_waits_and_its_button_stand_on_the_first_narrow_screen(visitor: Come) -> None:
    page = visitor("approver", 390, 844).page
    page.goto("/")
    box = page.get_by_role("link", name="Review and approve").bounding_box()
    bar = page.locator(".rail").bounding_box()
    assert box is not None and bar is not None and box["y"] + box["height"] <= bar["y"]
    page.goto("/incidents/1")
    approve = page.get_by_role("button", name="Approve drain and requeue").bounding_box()
    assert approve is not None and approve["y"] + approve["height"] <= bar["y"]


def test_the_theme_changes_page_and_figures_at_once_and_stays(visitor: Come) -> None:
    one = visitor("viewer", color_scheme="light")
    page = one.page
    page.goto("/")
    drawn(page)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("#map")).to_have_attribute("data-drawn", "dark")
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before != after
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after


def test_pointing_at_a_cell_names_its_gpu_and_state(visitor: Come) -> None:
    page = visitor("viewer").page
    page.goto("/fleet")
    drawn(page)
    x, y = page.evaluate(
        """() => {
          const el = document.getElementById("map"), box = el.getBoundingClientRect(), l = el._fullLayout;
          const column = 1 * 9 + 3, row = 3;
          return [box.x + l._size.l + l.xaxis.l2p(column), box.y + l._size.t + l.yaxis.l2p(row)];
        }"""
    )
    page.mouse.move(x - 30, y)
    page.mouse.move(x, y)
    expect(page.locator("#map-readout")).to_have_text("gpu-012 · GPU 3 · rack rack-2 · failed")


def test_a_click_on_the_map_goes_into_the_rack(visitor: Come) -> None:
    page = visitor("viewer").page
    page.goto("/fleet")
    drawn(page)
    box = page.locator("#map .nsewdrag").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 20, box["y"] + 20)
    page.wait_for_url("**/fleet?rack=rack-1")
    expect(page.locator(".crumb")).to_contain_text("rack-1")


def test_the_keyboard_reaches_the_answer_first(visitor: Come) -> None:
    page = visitor("viewer").page
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_the_page_says_so_where_the_figure_library_is_missing(visitor: Come, parts: Parts) -> None:
    one = visitor("viewer")
    one.page.route("**/plotly-cartesian*", lambda route: route.abort())
    one.page.goto("/")
    expect(one.page.locator("#map")).to_contain_text("Figure not drawn")
    one.page.get_by_text("Table, 8 rows").click()
    expect(one.page.locator("#map-twin")).to_contain_text("gpu-012")
    one.said.clear()


def test_pages_read_without_any_script(visitor: Come) -> None:
    page = visitor("approver", java_script_enabled=False).page
    page.goto("/incidents/1")
    expect(page.locator("h1")).to_contain_text("is lost on PCIe")
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.locator(".facts")).to_contain_text("approver")
