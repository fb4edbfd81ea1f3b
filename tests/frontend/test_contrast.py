"""Contrast, computed from tokens.css in both themes: text 4.5:1, glyphs and lines 3:1 (WCAG 2.2, 1.4.3 and 1.4.11)."""

from __future__ import annotations

import pytest

from frontend.figures.theme import Name, themes, tokens

THEMES = themes(tokens())
GROUNDS = ("page", "panel", "sunken", "raised")
TINTS = tuple(f"{s}-tint" for s in ("ok", "suspect", "draining", "excluded", "failed", "unknown", "accent"))
STATES = ("suspect", "draining", "excluded", "failed", "unknown")
BOTH: tuple[Name, ...] = ("light", "dark")


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", BOTH)
@pytest.mark.parametrize("ink", ["ink", "ink-2", "accent"])
@pytest.mark.parametrize("ground", [*GROUNDS, *TINTS])
def test_text_is_readable_on_every_ground(theme: Name, ink: str, ground: str) -> None:
    assert contrast(THEMES[theme][ink], THEMES[theme][ground]) >= 4.5


@pytest.mark.parametrize("theme", BOTH)
def test_a_primary_button_is_readable(theme: Name) -> None:
    assert contrast(THEMES[theme]["on-accent"], THEMES[theme]["accent-fill"]) >= 4.5


@pytest.mark.parametrize("theme", BOTH)
@pytest.mark.parametrize("state", ["ok", *STATES])
def test_glyphs_stand_out_on_panels(theme: Name, state: str) -> None:
    assert contrast(THEMES[theme][state], THEMES[theme]["panel"]) >= 3.0


@pytest.mark.parametrize("theme", BOTH)
@pytest.mark.parametrize("state", STATES)
def test_every_state_stands_out_against_a_healthy_cell(theme: Name, state: str) -> None:
    """The comparison the eye makes on the rack map."""
    assert contrast(THEMES[theme][state], THEMES[theme]["ok-cell"]) >= 3.0


@pytest.mark.parametrize("theme", BOTH)
@pytest.mark.parametrize("line", ["fig-line", "fig-line-2", "line-firm"])
def test_lines_of_figures_stand_out(theme: Name, line: str) -> None:
    assert contrast(THEMES[theme][line], THEMES[theme]["panel"]) >= 3.0
