"""No page breaks a rule of axe-core, in either theme: names, roles, contrast, labels, landmarks, headings."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from tests.backend.web import site
from tests.browser.conftest import Visitor
from tests.browser.pictures import drawn

pytestmark = pytest.mark.browser
Come = Callable[..., Visitor]
#: Each kind of page; CI looks at these in both themes.
CORE = ("/", "/fleet", "/incidents/1", "/sign-in")
#: All others, at both widths: ``make test-browser-matrix``.
REST = (
    "/fleet?rack=rack-1", "/cluster", "/nodes/gpu-012", f"/devices/{site.uuid(11, 3)}", "/incidents", "/incidents/2",
    "/incidents/6", "/actions", "/exclusions", "/alerts", "/runs", "/runs/pretrain-70b", "/reliability",
    "/reliability/report", "/storage", "/planner", "/definitions", "/system", "/settings", "/settings/rules",
    "/settings/people", "/settings/tokens", "/settings/audit", "/settings/account", "/hardware", "/nothing-here",
)  # fmt: skip
#: The skip link may stand outside of landmarks; axe knows that. Figures are drawn by Plotly and read by their tables.
ASK = """async () => (await axe.run({exclude: ['.main-svg']}, {resultTypes: ['violations']})).violations
  .map((v) => [v.id, v.impact, v.nodes.map((n) => n.target.join(' ') + ': ' + n.any.concat(n.all, n.none)
  .map((c) => c.message).join('; ')).slice(0, 4)])"""


def axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text()


def broken(one: Visitor, path: str) -> list[Any]:
    """Rules that the page breaks. The script comes by the debugger, past the page's own policy."""
    one.page.goto(path)
    drawn(one.page)
    one.page.evaluate(axe() + "; undefined")
    found: list[Any] = one.page.evaluate(ASK)
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_breaks_a_rule_of_axe(visitor: Come, theme: str) -> None:
    one = visitor("approver", color_scheme=theme)
    assert {path: bad for path in CORE if (bad := broken(one, path))} == {}


def test_the_open_palette_and_the_map_of_keys_break_no_rule(visitor: Come) -> None:
    one = visitor("approver")
    for key in ("Control+k", "?"):
        one.page.goto("/incidents")
        one.page.keyboard.press(key)
        one.page.evaluate(axe() + "; undefined")
        assert one.page.evaluate(ASK) == []


def test_axe_is_really_asked(visitor: Come) -> None:
    one = visitor("viewer")
    one.page.goto("/system")
    one.page.evaluate(axe() + "; document.documentElement.removeAttribute('lang')")
    assert [rule for rule, *_ in one.page.evaluate(ASK)] == ["html-has-lang"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 768, 1280, 1920])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_breaks_no_rule_and_never_scrolls_sideways(visitor: Come, theme: str, width: int) -> None:
    one = visitor("admin", width=width, color_scheme=theme)
    found: dict[str, Any] = {}
    for path in CORE + REST:
        bad = broken(one, path)
        wide = one.page.evaluate("document.documentElement.scrollWidth") - width
        if bad or wide > 0:
            found[path] = (bad, wide)
    one.said[:] = [line for line in one.said if "404" not in line]  # one page is not there
    assert found == {}
