"""A site's own policy: rules that replace a kind's ladder, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from backend.facts import Case, Rung
from detectors.catalogue import Kind
from detectors.model import Severity

#: Words that the exclude column of kinds.csv may hold and that a rule may set.
EXCLUDES = ("always", "never")
_RANGE = re.compile(r"^(?P<head>[^\[\]]*)\[(?P<ranges>[0-9,-]+)\](?P<tail>.*)$")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: the first that fits replaces the ladder of the case's kind. Empty fields fit everything.

    kinds, nodes, partitions: patterns, any of which suffices. severity: at least this. evidence: authorities of
    ``kinds.md`` (code, state, vote ...). seen: how often the fault was acted on within a day, at least. exclude: always
    or never; "" leaves what the kind says. A rule never reaches further than the evidence of the case allows. shadow:
    it rules nothing; what it would have done is told beside the decision.
    """

    name: str
    ladder: tuple[str, ...] = ()
    exclude: str = ""
    kinds: tuple[str, ...] = ()
    severity: str = ""
    evidence: tuple[str, ...] = ()
    seen: int = 0
    nodes: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    shadow: bool = False


def fits(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of ``login*``, ``gpu-[001-004,7]``, ``gpu-0007``."""
    return any(_fits(name, pattern) for pattern in patterns)


def _fits(name: str, pattern: str) -> bool:
    found = _RANGE.match(pattern)
    if found is None:
        return fnmatchcase(name, pattern)
    digits = re.match(re.escape(found["head"]) + r"(\d+)", name)
    if digits is None or not fnmatchcase(name[digits.end() :], found["tail"] or ""):
        return False
    for part in found["ranges"].split(","):
        low, _, high = part.partition("-")
        width = len(low) if low.startswith("0") else 0
        fit = not width or len(digits[1]) == width
        if low and fit and int(low) <= int(digits[1]) <= int(high or low):
            return True
    return False


def rule_for(case: Case, rules: Sequence[Rule], seen: int) -> Rule | None:
    """The first rule that fits. ``seen``: how often the same fault was acted on before."""
    return next((rule for rule in rules if not rule.shadow and _applies(rule, case, seen)), None)


def shadows_for(case: Case, rules: Sequence[Rule], seen: int) -> tuple[Rule, ...]:
    """The rules in shadow that fit."""
    return tuple(rule for rule in rules if rule.shadow and _applies(rule, case, seen))


def _applies(rule: Rule, case: Case, seen: int) -> bool:
    incident = case.incident
    cause = next(iter(incident.hypotheses), None)
    places = case.node.partitions if case.node is not None else ()
    return (
        (not rule.kinds or fits(incident.kind, rule.kinds))
        and (not rule.severity or incident.severity >= Severity.of(rule.severity))
        and (not rule.evidence or (cause is not None and cause.authority in rule.evidence))
        and seen >= rule.seen
        and (not rule.nodes or fits(incident.node, rule.nodes))
        and (not rule.partitions or any(fits(place, rule.partitions) for place in places))
    )


def ruled(kinds: Mapping[str, Kind], case: Case, rule: Rule | None) -> Mapping[str, Kind]:
    """The kinds, with the case's own as the rule wants it."""
    kind = kinds.get(case.incident.kind)
    if rule is None or kind is None:
        return kinds
    wanted = replace(kind, ladder=rule.ladder or kind.ladder, exclude=rule.exclude or kind.exclude)
    return {**kinds, kind.kind: wanted}


def mistakes(rules: Sequence[Rule], kinds: Mapping[str, Kind]) -> list[str]:
    """What is wrong with a policy, a sentence each: words nobody knows, rules that nothing reaches."""
    return [f"rule {rule.name!r}: {text}" for place, rule in enumerate(rules) for text in _wrong(rules, place, kinds)]


def _wrong(rules: Sequence[Rule], place: int, kinds: Mapping[str, Kind]) -> Iterator[str]:
    rule = rules[place]
    yield from _unknown_words(rule, kinds)
    if not rule.ladder and not rule.exclude:
        yield "it changes nothing: give it a ladder or exclude"
    if rule.exclude == "never" and any(word in ("exclude", "drain_now", "drain_after_job") for word in rule.ladder):
        yield "its ladder takes nodes out, and exclude = never keeps them in: the ladder's steps become advice"
    before = next((other for other in rules[:place] if not other.shadow and _covers(other, rule)), None)
    if before is not None and not rule.shadow:
        yield f"it never applies: {before.name!r} stands before it and fits wherever it does"


def _unknown_words(rule: Rule, kinds: Mapping[str, Kind]) -> Iterator[str]:
    rungs = [rung.value for rung in Rung]
    authorities = sorted({word for kind in kinds.values() for word in kind.authorities})
    severities = [severity.word for severity in Severity]
    for pattern in rule.kinds:
        if not any(fits(kind, (pattern,)) for kind in kinds):
            yield f"no kind of fault is called {pattern!r}; kinds stand in detectors/tables/kinds.csv"
    for word in (word for word in rule.ladder if word not in rungs):
        yield f"{word!r} is no rung; there are {', '.join(rungs)}"
    for word in (word for word in rule.evidence if word not in authorities):
        yield f"{word!r} is no evidence; there are {', '.join(authorities)}"
    if rule.exclude and rule.exclude not in EXCLUDES:
        yield f"exclude is {rule.exclude!r}; it is {' or '.join(EXCLUDES)}, or left out"
    if rule.severity and rule.severity not in severities:
        yield f"{rule.severity!r} is no severity; there are {', '.join(severities)}"


def _covers(first: Rule, later: Rule) -> bool:
    """Whether ``first`` fits whatever ``later`` fits, as far as their words tell."""

    def wider(some: Sequence[str], others: Sequence[str]) -> bool:
        return not some or (bool(others) and set(others) <= set(some))

    louder = not first.severity or (bool(later.severity) and Severity.of(later.severity) >= Severity.of(first.severity))
    lists = (
        (first.kinds, later.kinds),
        (first.evidence, later.evidence),
        (first.nodes, later.nodes),
        (first.partitions, later.partitions),
    )
    return louder and first.seen <= later.seen and all(wider(a, b) for a, b in lists)
