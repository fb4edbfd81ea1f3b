"""Static files: vendored with checksums, own script small, nothing inline, nothing unused."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs_version

import frontend

ROOT = Path(frontend.__file__).parent
STATIC, TEMPLATES = ROOT / "static", ROOT / "templates"
#: The design allows this much own script, compressed.
MOST_SCRIPT = 12 * 1024


def test_vendored_files_are_what_their_checksums_say() -> None:
    folder = STATIC / "vendor"
    lines = [line.split("  ", 1) for line in (folder / "SHA256SUMS").read_text().splitlines()]
    sums = {name: digest for digest, name in lines}
    assert set(sums) == {f.name for f in folder.iterdir()} - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


def test_the_figure_library_is_the_version_that_plotly_py_speaks_to() -> None:
    name = f"plotly-cartesian-{get_plotlyjs_version()}.min.js"
    assert (STATIC / "vendor" / name).exists()
    assert f"vendor/{name}" in (TEMPLATES / "base.html").read_text()
    assert f"v{get_plotlyjs_version()}" in (STATIC / "vendor" / name).read_text()[:300]


def test_each_vendored_library_carries_its_licence() -> None:
    names = {f.name for f in (STATIC / "vendor").iterdir()}
    assert {"htmx.LICENSE.txt", "plotly.LICENSE.txt"} <= names


def test_own_script_is_small() -> None:
    scripts = sorted(STATIC.glob("*.js"))
    assert sum(len(gzip.compress(one.read_bytes())) for one in scripts) <= MOST_SCRIPT
    assert not [line for one in scripts for line in one.read_text().splitlines() if len(line) > 120]


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.html")), ids=lambda p: p.name)
def test_no_template_holds_inline_script_or_style(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|hx-on", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.html")), ids=lambda p: p.name)
def test_no_template_marks_text_safe(template: Path) -> None:
    assert not re.search(r"\|\s*safe|autoescape\s+false", template.read_text())


def test_our_own_files_name_no_other_host() -> None:
    for file in [*TEMPLATES.glob("*.html"), *STATIC.glob("*.js"), STATIC / "app.css", STATIC / "tokens.css"]:
        assert not re.search(r"https?://(?!www\.w3\.org)", file.read_text()), file.name


def test_every_rule_of_the_stylesheet_is_used() -> None:
    css = re.sub(r"/\*.*?\*/", "", (STATIC / "app.css").read_text(), flags=re.S)
    sources = [
        *TEMPLATES.glob("*.html"),
        *STATIC.glob("*.js"),
        *ROOT.glob("*.py"),
        *(ROOT.parent / "backend/web").glob("*.py"),
    ]
    text = "\n".join(f.read_text() for f in sources)
    selectors = " ".join(re.findall(r"([^{}]+)\{", css))
    names = set(re.findall(r"\.(-?[a-zA-Z][\w-]*)", re.sub(r"\d+\.\d+", "", selectors)))
    plotly = {"js-plotly-plot", "plotly", "crisp", "user-select-none", "main-svg", "draglayer"}
    plotly |= {name for name in names if name.startswith("cursor-")}
    grades = {"g-observed", "g-derived", "g-inferred"}
    glyphs = grades | {n for n in names if n.startswith("g-") and re.search(rf"[\"']{n[2:]}[\"']", text)}
    unused = {n for n in names - plotly - glyphs if not re.search(rf"(?<![\w-]){re.escape(n)}(?![\w-])", text)}
    assert not unused


def test_colours_live_in_the_tokens_only() -> None:
    css = (STATIC / "app.css").read_text()
    assert not re.findall(r"#[0-9a-fA-F]{6}\b", css)
