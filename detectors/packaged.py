"""The packaged tables as text; catalogue.py and the readers beside it say what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from detectors.joblog.rules import Table, read_table


class TableError(ValueError):
    """A table row that cannot be used; the text says which table, which row and what is wrong."""


def table(name: str) -> Iterator[str]:
    """Lines of a packaged table."""
    yield from text(name).splitlines()


def text(name: str) -> str:
    return (files("detectors") / "tables" / name).read_text(encoding="utf-8")


def log_rules() -> Table:
    """The rules that name what lines of training logs say. Raises joblog.rules.RuleError naming the rule at fault."""
    return read_table(text("joblog_rules.toml"))
