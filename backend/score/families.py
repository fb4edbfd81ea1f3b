"""Families of kinds: which kinds of incident show which kinds of fault."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Families:
    """``of`` gives the families of a kind; a kind that the table does not name is a family of its own."""

    of: Mapping[str, frozenset[str]]

    def akin(self, kind: str, other: str) -> bool:
        """Whether two kinds may be signs of one fault."""
        return kind == other or not self.of.get(kind, frozenset()).isdisjoint(self.of.get(other, frozenset()))


def families(table: Mapping[str, list[str]] | None = None) -> Families:
    """Families from ``{family: [kind]}``; without a table the packaged one, families.toml."""
    if table is None:
        text = files("backend.score").joinpath("families.toml").read_text(encoding="utf-8")
        table = tomllib.loads(text)["families"]
    of: dict[str, set[str]] = {}
    for family, kinds in table.items():
        for kind in kinds:
            of.setdefault(kind, set()).add(family)
    return Families({kind: frozenset(names) for kind, names in of.items()})
