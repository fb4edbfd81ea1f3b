"""Contexts and templates agree: what a template uses its page has, and every field says what it is for."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from jinja2 import meta, nodes

from frontend import (
    contexts,
    contexts_acting,
    contexts_alerts,
    contexts_backtest,
    contexts_cluster,
    contexts_cost,
    contexts_excluding,
)
from frontend.render import TEMPLATES, environment

#: The environment's own, and the macros that templates import as ``p``, ``h``, ``c`` and ``f``.
GLOBALS = {"static", "p", "h", "c", "f"}
PAGES = (contexts, contexts_acting, contexts_alerts, contexts_backtest)
MODULES = (*PAGES, contexts_cluster, contexts_cost, contexts_excluding)


def used(name: str) -> set[str]:
    """Names that a template and its parents take from the context."""
    pages = environment()
    assert pages.loader is not None
    source = pages.loader.get_source(pages, name)[0]
    tree = pages.parse(source)
    found = meta.find_undeclared_variables(tree) - GLOBALS - {macro.name for macro in tree.find_all(nodes.Macro)}
    for parent in meta.find_referenced_templates(tree):
        if parent == "base.html":
            found |= used(parent)
    return found


@pytest.mark.parametrize(("page", "template"), TEMPLATES.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_a_template_uses_exactly_the_fields_of_its_context(page: type, template: str) -> None:
    assert used(template) == {field.name for field in fields(page)}


def test_every_page_context_has_a_template() -> None:
    classes = {c for module in MODULES for c in vars(module).values() if isinstance(c, type)}
    assert {c for c in classes if "frame" in getattr(c, "__annotations__", {})} == set(TEMPLATES)


def test_every_field_says_what_it_is_for() -> None:
    lines = [line for module in MODULES for line in Path(str(module.__file__)).read_text("utf-8").splitlines()]
    bare = [line for line in lines if re.match(r"    \w+: ", line) and "#: " not in line]
    assert not bare
