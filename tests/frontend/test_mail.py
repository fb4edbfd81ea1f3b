"""Mail as people read it: the answer first, every state in glyph, word and colour, hostile text as text."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.mail.render import SIGNS, Letter, palette, render

TOKENS = Path(__file__).resolve().parents[2] / "frontend" / "static" / "tokens.css"
OPENED = Letter(
    kind="opened",
    cluster="main",
    incident=812,
    severity="critical",
    headline="GPU 3 of gpu-0412 is lost on PCIe (Xid 79). Draining this one node frees job 48213.",
    why="The kernel said so first.",
    facts=(("Node", "gpu-0412"), ("Job", "48213")),
    evidence=("NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.",),
    advice="Drain gpu-0412 and requeue job 48213.",
    url="https://watchkeeper.example.com/incidents/812",
    at=1794451928.0,
)
CHANGED = replace(OPENED, kind="changed", subject=OPENED.headline, headline="gpu-0412 is drained.")
CLOSED = replace(CHANGED, kind="closed", headline="GPU 3 of gpu-0412 is back.")


class Words(HTMLParser):
    """What a page shows, and what it is made of."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.shown: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self._hidden = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._hidden += tag in ("style", "title")
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("style", "title")

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.shown.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.shown).split())


def test_the_text_begins_with_the_headline_and_says_everything() -> None:
    text = render(OPENED).text
    assert text.splitlines()[0] == OPENED.headline
    assert "◆ critical · opened · incident 812 on main · 2026-11-12 02:52:08 UTC" in text
    for part in (OPENED.why, "Node  gpu-0412", "Job   48213", OPENED.evidence[0], OPENED.advice, OPENED.url):
        assert part in text


def test_the_html_says_what_the_text_says() -> None:
    words = Words(render(OPENED).html)
    said = (OPENED.headline, "critical", "opened", OPENED.why, "gpu-0412", OPENED.evidence[0], OPENED.advice)
    assert [part for part in said if part not in words.text] == []
    assert words.links == [OPENED.url]


@pytest.mark.parametrize("severity", SIGNS)
def test_a_severity_is_a_glyph_a_word_and_a_colour(severity: str) -> None:
    glyph, hue = SIGNS[severity]
    made = render(replace(OPENED, severity=severity))
    assert f"{glyph} {severity}" in made.text
    assert f'style="color:{palette()[hue][0]}">{glyph}</span>&nbsp;{severity}</span>' in made.html


def test_a_closed_incident_is_no_longer_loud() -> None:
    made = render(CLOSED)
    assert "✓ closed · was critical" in made.text
    assert palette()["failed-tint"][0] not in made.html.split("</style>")[1]


def test_a_simulated_cluster_is_called_simulated_everywhere() -> None:
    made = render(replace(OPENED, simulated=True))
    assert all("imulated" in face for face in (made.subject, made.text, made.html))
    assert not any("imulated" in face for face in (render(OPENED).subject, render(OPENED).text, render(OPENED).html))


def test_subjects_of_a_thread_differ_by_re_only() -> None:
    assert render(OPENED).subject == f"[main 812] {OPENED.headline}"
    assert render(CHANGED).subject == render(CLOSED).subject == f"Re: {render(OPENED).subject}"


def test_a_long_headline_is_short_in_the_subject_and_whole_in_the_mail() -> None:
    made = render(replace(OPENED, headline="word " * 400))
    assert len(made.subject) < 150 and made.subject.endswith("…")
    assert made.text.splitlines()[0] == ("word " * 400).strip()


def test_one_long_label_does_not_push_the_others_away() -> None:
    text = render(replace(OPENED, facts=(("x" * 5000, "1"), ("Node", "gpu-0412")))).text
    assert re.search(r"^Node {2,24}gpu-0412$", text, re.MULTILINE)


def test_what_is_empty_leaves_no_empty_heading() -> None:
    made = render(replace(OPENED, why="", facts=(), evidence=(), advice="", url=""))
    for face in (made.text, made.html):
        assert "What we saw" not in face and "What to do" not in face and "Open incident" not in face
    assert "\n\n\n" not in made.text


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=120))
def test_no_text_changes_the_structure_of_a_mail(text: str) -> None:
    letter = replace(OPENED, headline=text, why=text, facts=((text, text),), evidence=(text, text), advice=text)
    plain = replace(OPENED, headline="x", why="x", facts=(("x", "x"),), evidence=("x", "x"), advice="x")
    if text.strip():
        assert Words(render(letter).html).tags == Words(render(plain).html).tags
        assert len(render(letter).text.splitlines()) == len(render(plain).text.splitlines())


def test_hostile_names_are_shown_as_they_are() -> None:
    evil = '"><img src=x onerror=alert(1)></td>{{ 7*7 }}{% for %}<script>'
    made = render(replace(OPENED, headline=evil, facts=((evil, evil),), evidence=(evil,), cluster=evil))
    assert Words(made.html).text.count(evil) >= 4
    assert "script" not in Words(made.html).tags and "img" not in Words(made.html).tags


def test_a_mail_loads_nothing_from_anywhere() -> None:
    html = render(OPENED).html
    assert not re.search(r"<(img|link|script|iframe)|@import|url\(", html)


def test_the_colours_are_those_of_the_tokens() -> None:
    css = TOKENS.read_text(encoding="utf-8")
    for name, pair in palette().items():
        found = re.search(rf"--{re.escape(name)}: light-dark\(([^,]+), ([^)]+)\);", css)
        assert found and found.groups() == pair, name


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_is_readable_on_every_ground_it_stands_on(theme: int) -> None:
    grounds = ("panel", "sunken", "accent-tint", "ok-tint", "suspect-tint", "failed-tint")
    pairs = [("ink", ground) for ground in grounds]
    pairs += [("ink-2", "panel"), ("ink-2", "page"), ("on-accent", "accent-fill")]
    colours = {name: pair[theme] for name, pair in palette().items()}
    weak = {p: contrast(colours[p[0]], colours[p[1]]) for p in pairs if contrast(colours[p[0]], colours[p[1]]) < 4.5}
    assert not weak
    glyphs = [(hue, f"{hue}-tint") for _, hue in SIGNS.values()]
    assert all(contrast(colours[a], colours[b]) >= 3 for a, b in glyphs)


def contrast(one: str, other: str) -> float:
    """Contrast ratio of WCAG 2.2."""
    a, b = sorted((luminance(one), luminance(other)), reverse=True)
    return (a + 0.05) / (b + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
