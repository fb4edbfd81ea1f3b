"""What people said of past failures, read by resemblance where no rule names the cause: calibrated, or silent.

The text of a failure is its excerpt without the lines that rules name, because where it is asked no rule fires. Words
and pairs of words of the masked lines are weighed by how rare they are; a logistic regression, calibrated by one
temperature on held-out folds, gives probabilities. It answers above a threshold that held-out failures set, and only
with past failures of that class beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from detectors.detector import Arrays
from detectors.joblog.excerpt import NAMED
from detectors.joblog.masks import masked

#: The layout of arrays and facts; another one is not read.
FORMAT = 1
#: Kinds of failures (runs, or different texts) that a class needs before it is answered; below, none is held out well.
LEAST = 5
#: Folds that are held out by turns.
FOLDS = 5
#: Past failures of the class that must resemble it (cosine of at least NEAR). Chosen 2026-11 on synthetic logs: words
#: that all logs share stay below it.
SUPPORT, NEAR = 2, 0.25
#: Share of wrong answers that the threshold may leave on held-out failures, the lowest threshold, and what a model
#: needs to be used at all: answers on held-out failures, and the share of them that were right.
MOST_WRONG, LOWEST, LEAST_ANSWERED, LEAST_RIGHT = 0.05, 0.5, 8, 0.8
#: Distinct words and pairs of one failure; lines of it.
MOST_FEATURES, MOST_LINES = 600, 60
#: Characters of a past failure's line.
MOST_LINE = 160
#: Below this cosine a past failure is not shown as similar.
SHOWN = 0.15
_WORD = re.compile(r"<\w+>|[A-Za-z_][\w.]*|-?\d{1,3}")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Example:
    """One failure that a person spoke of. ``cause``: a class, "" = it cannot be known from its logs. ``group``: those
    of one group are held out together (retries of a run). ``ref``: where it stands, for people; ``line``: its most
    telling line, "" = the one whose words are the rarest that it shares with others."""

    excerpt: str
    cause: str
    group: str
    ref: str
    line: str = ""


@dataclass(frozen=True, slots=True)
class Likeness:
    """An answer: the class, its calibrated probability, and how many past failures of it resemble this one."""

    log_class: str
    probability: float
    alike: int


@dataclass(frozen=True, slots=True)
class Past:
    """A past failure that resembles this one. ``cosine`` 0 to 1."""

    cause: str
    ref: str
    line: str
    cosine: float


@dataclass(frozen=True, slots=True, eq=False)
class Artefact:
    """What is stored: arrays by name, and plain JSON beside them."""

    arrays: Arrays
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """Which columns there are (hashes of features, ascending), what each weighs, and the most that one does."""

    columns: NDArray[np.int64]
    weights: Floats
    rarest: float

    @classmethod
    def of(cls, documents: Sequence[NDArray[np.int64]]) -> Space:
        """Smoothed inverse document frequency: ln((1 + n) / (1 + df)) + 1."""
        seen = np.concatenate([*documents, np.zeros(0, np.int64)])
        columns, count = np.unique(seen, return_counts=True)
        weights = np.log((1.0 + len(documents)) / (1.0 + count)) + 1.0
        return cls(columns, weights, float(weights.max(initial=1.0)))

    def row(self, document: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
        """Places of the known features and their values; of length 1 as long as all features were known. What was
        never seen weighs as much as the rarest, so that a strange text resembles nothing."""
        place = np.searchsorted(self.columns, document)
        inside = place < len(self.columns)
        known = np.zeros(len(document), np.bool_)
        known[inside] = self.columns[place[inside]] == document[inside]
        values = self.weights[place[known]]
        norm = float(np.sqrt((values**2).sum() + (~known).sum() * self.rarest**2))
        return place[known], values / norm if norm else values


def features(excerpt: str) -> NDArray[np.int64]:
    """The distinct features of an excerpt, ascending: words and pairs of the masked lines that no rule names."""
    found: set[int] = set()
    for line in excerpt.splitlines()[:MOST_LINES]:
        if line.startswith(NAMED):
            continue
        words = [word.lower() for word in _WORD.findall(masked(line))]
        spoken = [*words, *(f"{a} {b}" for a, b in zip(words, words[1:], strict=False))]
        found.update(crc32(word.encode()) for word in spoken if len(word) > 1)
        if len(found) >= MOST_FEATURES:
            break
    return np.array(sorted(found)[:MOST_FEATURES], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """An artefact that is ready to be asked. Without a classifier (``classes`` empty) it only knows past failures."""

    version: int
    space: Space
    starts: NDArray[np.int64]
    places: NDArray[np.int64]
    values: Floats
    past: tuple[Past, ...]
    groups: tuple[str, ...]
    classes: tuple[str, ...]
    slopes: Floats
    offsets: Floats
    temperature: float
    threshold: float
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, artefact: Artefact, version: int = 0) -> Model:
        """Raises ValueError for an artefact of another layout."""
        arrays, facts = artefact.arrays, artefact.facts
        if facts.get("format") != FORMAT:
            raise ValueError(f"a model of format {facts.get('format')!r}; this release reads {FORMAT}")
        try:
            weights = arrays["weights"].astype(np.float64)
            return cls(
                version=version,
                space=Space(arrays["columns"].astype(np.int64), weights, float(weights.max(initial=1.0))),
                starts=arrays["starts"].astype(np.int64),
                places=arrays["places"].astype(np.int64),
                values=arrays["values"].astype(np.float64),
                past=tuple(Past(str(c), str(r), str(t), 0.0) for c, r, t in facts["past"]),
                groups=tuple(str(group) for group in facts["groups"]),
                classes=tuple(str(name) for name in facts["classes"]),
                slopes=arrays["slopes"].astype(np.float64),
                offsets=arrays["offsets"].astype(np.float64),
                temperature=float(facts["temperature"]),
                threshold=float(facts["threshold"]),
                facts=facts,
            )
        except KeyError as missing:
            raise ValueError(f"a model without {missing}") from None

    def cosines(self, excerpt: str) -> Floats:
        """How much each past failure resembles a text, 0 to 1."""
        places, values = self.space.row(features(excerpt))
        dense = np.zeros(len(self.space.columns) + 1)
        dense[places] = values
        products = np.concatenate([self.values * dense[self.places], [0.0]])
        if not len(self.past):
            return np.zeros(0)
        sums = np.add.reduceat(products, self.starts[:-1])
        return np.where(np.diff(self.starts) > 0, sums, 0.0)

    def nearest(self, excerpt: str, most: int = 3, without: Collection[str] = ()) -> tuple[Past, ...]:
        """The past failures that resemble a text most, one a group; not the failure itself (refs ``without``)."""
        cosines, found, seen = self.cosines(excerpt), list[Past](), set[str]()
        for at in np.argsort(-cosines, kind="stable"):
            one = self.past[at]
            if cosines[at] < SHOWN or len(found) == most:
                break
            if one.ref not in without and not seen & {self.groups[at], one.ref}:
                seen |= {self.groups[at], one.ref}
                found.append(Past(one.cause, one.ref, one.line, round(min(1.0, float(cosines[at])), 2)))
        return tuple(found)

    def classify(self, excerpt: str) -> Likeness | None:
        """The class of a failure that no rule names; None where it cannot be said well enough."""
        if not self.classes or self.threshold > 1.0:
            return None
        places, values = self.space.row(features(excerpt))
        chances = softmax((self.slopes[:, places] @ values + self.offsets)[None] / self.temperature)[0]
        best = int(chances.argmax())
        name = self.classes[best]
        alike = self._alike(self.cosines(excerpt), name)
        if not name or chances[best] < self.threshold or alike < SUPPORT:
            return None
        return Likeness(name, round(min(float(chances[best]), float(self.facts.get("surest", 1.0))), 2), alike)

    def _alike(self, cosines: Floats, name: str) -> int:
        near = [self.groups[at] for at in np.flatnonzero(cosines >= NEAR) if self.past[at].cause == name]
        return len(set(near))


def classify(artefact: Artefact, excerpt: str) -> tuple[str, float] | None:
    """(class, probability), or None: what an artefact says of a text; numpy only."""
    found = Model.of(artefact).classify(excerpt)
    return None if found is None else (found.log_class, found.probability)


def missing(examples: Iterable[Example]) -> dict[str, int]:
    """Class to how many more kinds of its failures are needed before it can be answered; only those that lack some."""
    groups: dict[str, set[str]] = {}
    for one in examples:
        groups.setdefault(one.cause, set()).add(one.group)
    return {name: LEAST - len(found) for name, found in sorted(groups.items()) if name and len(found) < LEAST}


def softmax(scores: Floats) -> Floats:
    """Rows of scores as rows of chances."""
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances: Floats = raised / raised.sum(axis=1, keepdims=True)
    return chances


def tally(examples: Iterable[Example]) -> dict[str, int]:
    """Examples of each class."""
    return dict(sorted(Counter(one.cause for one in examples).items()))
