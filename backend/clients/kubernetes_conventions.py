"""The table of what labels, taints, annotations and conditions mean, ready for use; the words stand in its TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

Pattern = re.Pattern[str]


@dataclass(frozen=True, slots=True)
class HoldRule:
    """One sign that somebody took a node out. ``said``: the value is the reason; ``named``: it is the owner."""

    owner: str
    where: str
    key: Pattern
    value: Pattern
    text: str
    because: tuple[Pattern, ...]
    said: bool
    named: bool
    with_cordon: bool


@dataclass(frozen=True, slots=True)
class NoticeRule:
    """One sign that somebody announced work on a node. ``start`` says where its time stands: value, message or ""."""

    where: str
    key: Pattern
    value: Pattern
    start: str
    text: str


@dataclass(frozen=True, slots=True)
class Conventions:
    labels: Mapping[str, tuple[Pattern, ...]]
    versions: Mapping[str, tuple[Pattern, ...]]
    whole: tuple[Pattern, ...]
    shared: tuple[Pattern, ...]
    holds: tuple[HoldRule, ...]
    notices: tuple[NoticeRule, ...]
    out: Pattern
    benign: Pattern
    good: Pattern
    bad: Pattern
    silent: Pattern

    def label(self, labels: Mapping[str, str], kind: str) -> str:
        """The value of the best label of this kind, "" where a node has none."""
        return first(labels, self.labels[kind])

    def is_whole(self, resource: str) -> bool:
        return any(pattern.fullmatch(resource) for pattern in self.whole)

    def is_shared(self, resource: str) -> bool:
        return any(pattern.fullmatch(resource) for pattern in self.shared)

    def is_problem(self, condition: str, status: str) -> bool:
        """Whether a condition in this status is bad news. Unknown is none: nobody knows."""
        if self.silent.fullmatch(condition) or status not in ("True", "False"):
            return False
        good = self.good.fullmatch(condition) and not self.bad.fullmatch(condition)
        return status == ("False" if good else "True")


def first(entries: Mapping[str, str], patterns: tuple[Pattern, ...]) -> str:
    for pattern in patterns:
        for key in sorted(entries):
            if entries[key] and pattern.fullmatch(key):
                return entries[key]
    return ""


@lru_cache(maxsize=1)
def conventions() -> Conventions:
    """The packaged table."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return Conventions(
        labels={kind: _all(keys) for kind, keys in table["labels"].items()},
        versions={item: _all(keys) for item, keys in table["versions"].items()},
        whole=_all(table["resources"]["whole"]),
        shared=_all(table["resources"]["shared"]),
        holds=tuple(_hold(rule) for rule in table["holds"]),
        notices=tuple(_notice(rule) for rule in table["notices"]),
        out=re.compile(table["taints"]["out"]),
        benign=re.compile(table["taints"]["benign"]),
        good=re.compile(table["conditions"]["good"]),
        bad=re.compile(table["conditions"]["bad"]),
        silent=re.compile(table["conditions"]["silent"]),
    )


def _all(patterns: list[str]) -> tuple[Pattern, ...]:
    return tuple(re.compile(pattern) for pattern in patterns)


def _hold(rule: Mapping[str, Any]) -> HoldRule:
    return HoldRule(
        owner=rule["owner"],
        where=rule["where"],
        key=re.compile(rule["key"]),
        value=re.compile(rule.get("value", "(?s).*")),
        text=rule.get("text", ""),
        because=_all(rule.get("because", [])),
        said=rule.get("said", False),
        named=rule.get("named", False),
        with_cordon=rule.get("with_cordon", False),
    )


def _notice(rule: Mapping[str, Any]) -> NoticeRule:
    value = re.compile(rule.get("value", "(?s).*"))
    return NoticeRule(rule["where"], re.compile(rule["key"]), value, rule.get("start", ""), rule.get("text", ""))
