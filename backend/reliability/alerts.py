"""How often what we said was right, by what we said: from labels of people, with n and interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from backend.reliability.intervals import Interval, wilson


@dataclass(frozen=True, slots=True)
class Word:
    """The last word of one person on one thing (an incident or a job). ``cause`` "" = they named none."""

    about: str
    said: str
    right: bool
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Quality:
    """Of ``n`` things that were called ``said`` and that people judged, ``right`` were right; ``disputed`` ones, on
    which they do not agree, count in neither. ``really``: what the wrong ones were, with how many, most first."""

    said: str
    right: int
    n: int
    interval: Interval | None
    disputed: int = 0
    really: tuple[tuple[str, int], ...] = field(default=())


def alert_quality(words: Iterable[Word]) -> tuple[Quality, ...]:
    """One row for each thing that was said, by name; a thing counts once, however many people judged it."""
    about: dict[tuple[str, str], list[Word]] = defaultdict(list)
    for word in words:
        about[word.said, word.about].append(word)
    by_said: dict[str, list[list[Word]]] = defaultdict(list)
    for (said, _), told in about.items():
        by_said[said].append(told)
    return tuple(_quality(said, by_said[said]) for said in sorted(by_said))


def _quality(said: str, things: list[list[Word]]) -> Quality:
    agreed = [told for told in things if len({word.right for word in told}) == 1]
    right = sum(told[0].right for told in agreed)
    really: dict[str, int] = defaultdict(int)
    for told in agreed:
        causes = {word.cause for word in told if word.cause and not word.right}
        if len(causes) == 1:
            really[causes.pop()] += 1
    ranked = tuple(sorted(really.items(), key=lambda pair: (-pair[1], pair[0])))
    return Quality(said, right, len(agreed), wilson(right, len(agreed)), len(things) - len(agreed), ranked)
