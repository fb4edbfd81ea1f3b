"""The documents say what the code does: every configuration key stands in the README, generated and current."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.settings import END, START, keys, reference, with_reference

README = Path(__file__).resolve().parent.parent / "README.md"


def test_the_configuration_reference_in_the_readme_is_current() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == with_reference(text), "run: python -m backend.settings README.md"


def test_every_key_is_documented_with_its_meaning() -> None:
    table = reference()
    for name, found in keys():
        assert found.description, f"{name} has no description"
        assert f"| `{name}` |" in table


def test_no_cell_breaks_the_table() -> None:
    rows = reference().splitlines()
    assert {row.replace("\\|", "").count("|") for row in rows} == {6}


def test_what_stands_around_the_reference_is_kept() -> None:
    text = f"before\n{START}\nold\n{END}\nafter\n"
    assert with_reference(text).startswith(f"before\n{START}\n| key |")
    assert with_reference(text).endswith(f"{END}\nafter\n")
    assert with_reference(with_reference(text)) == with_reference(text)


@pytest.mark.parametrize("text", ["", START, END + START])
def test_a_document_without_the_markers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="lacks the markers"):
        with_reference(text)
