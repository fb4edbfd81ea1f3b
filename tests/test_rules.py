"""The house rules that no linter knows."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.split() if (ROOT / name).exists()]


def test_the_alembic_folder_never_shadows_the_installed_package() -> None:
    assert not (ROOT / "alembic" / "__init__.py").exists()


def test_no_file_is_over_500_lines() -> None:
    long = {str(f.relative_to(ROOT)): n for f in sources() if (n := len(f.read_text().splitlines())) > 500}
    assert not long


def test_no_function_is_over_50_lines() -> None:
    long = [
        f"{f.relative_to(ROOT)}:{node.lineno} {node.name}"
        for f in sources()
        if "tests" not in f.parts
        for node in ast.walk(ast.parse(f.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= 50
    ]
    assert not long


def test_every_module_says_what_it_is_for_and_init_files_are_empty() -> None:
    for f in sources():
        text = f.read_text()
        if f.name == "__init__.py":
            assert text == "", f"{f.relative_to(ROOT)} must stay empty"
        else:
            assert ast.get_docstring(ast.parse(text)), f"{f.relative_to(ROOT)} has no module docstring"


@pytest.mark.parametrize("word", ["Manager", "Helper", "Util", "Service"])
def test_no_class_is_named_after_nothing(word: str) -> None:
    named = [
        f"{f.relative_to(ROOT)}: {node.name}"
        for f in sources()
        for node in ast.walk(ast.parse(f.read_text()))
        if isinstance(node, ast.ClassDef) and word in node.name
    ]
    assert not named
