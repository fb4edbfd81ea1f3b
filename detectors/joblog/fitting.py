"""Fits the model of past failures and measures it on failures that it did not see. scikit-learn is imported late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.joblog.excerpt import PLAIN
from detectors.joblog.learned import (
    FOLDS,
    FORMAT,
    LEAST,
    LEAST_ANSWERED,
    LEAST_RIGHT,
    LOWEST,
    MOST_LINE,
    MOST_WRONG,
    NEAR,
    SUPPORT,
    Artefact,
    Example,
    Floats,
    Space,
    features,
    missing,
    softmax,
    tally,
)

#: Inverse strength of the penalty; texts are of length 1, and few.
PENALTY = 10.0
#: Temperatures that are tried, from sharper to softer.
TEMPERATURES = tuple(float(t) for t in np.geomspace(0.2, 10.0, 60))
#: The score of a class that was not taught.
NEVER = -1e3
#: A threshold that nothing reaches: the model stays silent.
SILENT = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What folds said of failures that they did not see. ``truth``: index of the class, -1 for none of them;
    ``near``: how many of each class resembled it, [n, classes]."""

    scores: Floats
    truth: NDArray[np.int64]
    near: NDArray[np.int64]
    fold: NDArray[np.int64]

    def of(self, mask: NDArray[np.bool_]) -> Held:
        return Held(self.scores[mask], self.truth[mask], self.near[mask], self.fold[mask])


def fit(examples: Sequence[Example]) -> Artefact:
    """The artefact of these examples: past failures always; a classifier where two classes have LEAST groups each.

    Classes with fewer are taught together as one that is never answered. Deterministic. facts: ``n``, ``classes`` (""
    = the rest), ``counts``, ``missing``, ``answered`` and ``right`` of ``held`` failures, measured on folds whose
    temperature and threshold the other folds set; ``used`` says whether that was good enough to be asked; ``surest``
    is the highest probability that so many right answers bear out (rule of succession).
    """
    documents = [features(one.excerpt) for one in examples]
    space = Space.of(documents)
    lacking = missing(examples)
    causes = [one.cause if one.cause not in lacking else "" for one in examples]
    classes = sorted(set(causes))
    known = [name for name in classes if name]
    facts: dict[str, object] = {
        "format": FORMAT,
        "n": len(examples),
        "past": [[one.cause, one.ref, one.line or _line(one.excerpt, space, len(examples))] for one in examples],
        "groups": [one.group for one in examples],
        "counts": tally(examples),
        "missing": lacking | ({"": 2 - len(known)} if len(known) < 2 else {}),
        "least": LEAST,
        "classes": [],
        "temperature": 1.0,
        "threshold": SILENT,
        "held": 0,
        "answered": 0,
        "right": 0,
        "used": False,
        "surest": 0.0,
    }
    slopes, offsets = np.zeros((0, len(space.columns))), np.zeros(0)
    if len(known) >= 2:
        truth = np.array([classes.index(cause) for cause in causes], np.int64)
        slopes, offsets = _regression(_matrix(space, documents), truth, len(classes))
        held = _held_out(documents, truth, [one.group for one in examples], classes)
        facts |= _measured(held, classes) | {"classes": classes}
    return Artefact(_packed(space, documents) | {"slopes": slopes.astype(np.float32), "offsets": offsets}, facts)


def _line(excerpt: str, space: Space, n: int) -> str:
    """The line whose words, on the mean, are the rarest that other failures say too."""
    alone = math.log((1.0 + n) / 2.0) + 1.0

    def telling(document: NDArray[np.int64]) -> float:
        places, _ = space.row(document)
        shared = space.weights[places][space.weights[places] < alone - 1e-9]
        return float(shared.mean()) if len(shared) else 0.0

    lines = {line: features(line) for line in excerpt.splitlines()}
    scores = {line: telling(document) for line, document in lines.items() if len(document)}
    return max(scores, key=lambda line: scores[line], default="")[len(PLAIN) :].strip()[:MOST_LINE]


def _packed(space: Space, documents: Sequence[NDArray[np.int64]]) -> dict[str, NDArray[np.generic]]:
    rows = [space.row(document) for document in documents]
    starts = np.cumsum([0, *(len(places) for places, _ in rows)])
    empty = np.zeros(0, np.int64)
    return {
        "columns": space.columns,
        "weights": space.weights.astype(np.float32),
        "starts": starts.astype(np.int64),
        "places": np.concatenate([*(places for places, _ in rows), empty]).astype(np.int32),
        "values": np.concatenate([*(values for _, values in rows), np.zeros(0)]).astype(np.float32),
    }


def _matrix(space: Space, documents: Sequence[NDArray[np.int64]]) -> Any:
    """Rows as a sparse matrix; Any: scipy ships no types."""
    from scipy.sparse import csr_matrix

    packed = _packed(space, documents)
    parts = (packed["values"].astype(np.float64), packed["places"], packed["starts"])
    return csr_matrix(parts, (len(documents), len(space.columns)))


def _regression(matrix: Any, truth: NDArray[np.int64], classes: int) -> tuple[Floats, Floats]:
    """(slopes [classes, columns], offsets [classes]); a class that is not among the truth gets no chance. Words that
    one failure alone says tell nothing of others: their slope is 0."""
    from sklearn.linear_model import LogisticRegression

    regression = LogisticRegression(C=PENALTY, class_weight="balanced", max_iter=500, tol=1e-3)
    shared = np.flatnonzero(matrix.getnnz(axis=0) > 1)
    offsets = np.full(classes, NEVER)
    slopes = np.zeros((classes, matrix.shape[1]))
    if not len(shared):
        return slopes, np.zeros(classes)
    regression.fit(matrix[:, shared], truth)
    present = regression.classes_
    if len(present) == 2:  # one row tells the second from the first
        slopes[present[1], shared], offsets[present] = regression.coef_[0], [0.0, regression.intercept_[0]]
    else:
        slopes[np.ix_(present, shared)], offsets[present] = regression.coef_, regression.intercept_
    return slopes, offsets


def folds_of(groups: Sequence[str], truth: NDArray[np.int64]) -> NDArray[np.int64]:
    """A fold for each example: groups stay together, classes are dealt out evenly, in the order of the groups."""
    first = {group: int(truth[at]) for at, group in reversed(list(enumerate(groups)))}
    ordered = sorted(first, key=lambda group: (first[group], group))
    fold = {group: place % FOLDS for place, group in enumerate(ordered)}
    return np.array([fold[group] for group in groups], np.int64)


def _held_out(
    documents: Sequence[NDArray[np.int64]], truth: NDArray[np.int64], groups: Sequence[str], classes: Sequence[str]
) -> Held:
    fold = folds_of(groups, truth)
    scores, near = np.zeros((len(truth), len(classes))), np.zeros((len(truth), len(classes)), np.int64)
    for turn in range(FOLDS):
        taught, asked = np.flatnonzero(fold != turn), np.flatnonzero(fold == turn)
        if not len(asked) or len(set(truth[taught].tolist())) < 2:
            continue
        space = Space.of([documents[int(at)] for at in taught])
        lessons, questions = (_matrix(space, [documents[int(at)] for at in those]) for those in (taught, asked))
        slopes, offsets = _regression(lessons, truth[taught], len(classes))
        scores[asked] = questions @ slopes.T + offsets
        close = (questions @ lessons.T).toarray() >= NEAR
        for row, at in enumerate(asked):
            for which in range(len(classes)):
                alike = taught[close[row] & (truth[taught] == which)]
                near[at, which] = len({groups[int(other)] for other in alike})
    return Held(scores, truth, near, fold)


def _measured(held: Held, classes: Sequence[str]) -> dict[str, object]:
    """Temperature and threshold by all folds; how it does by folds that the others set."""
    rest = classes.index("") if "" in classes else -1
    answered = right = 0
    for turn in range(FOLDS):
        own, others = held.of(held.fold == turn), held.of(held.fold != turn)
        if len(own.truth) and len(others.truth):
            temperature = _temperature(others)
            says = _answers(own, rest, temperature, _threshold(others, rest, temperature))
            answered += int((says >= 0).sum())
            right += int(((says >= 0) & (says == own.truth)).sum())
    temperature = _temperature(held)
    used = answered >= LEAST_ANSWERED and right >= LEAST_RIGHT * answered
    return {
        "temperature": temperature,
        "threshold": _threshold(held, rest, temperature) if used else SILENT,
        "held": len(held.truth),
        "answered": answered,
        "right": right,
        "used": used,
        "surest": (right + 1) / (answered + 2),
    }


def _temperature(held: Held) -> float:
    """The one under which held-out failures are likeliest (Guo et al. 2017, temperature scaling), with targets as
    sure as their number allows, (n + 1) / (n + 2) (Platt 1999): few that are all right prove no certainty."""
    rows, total = np.arange(len(held.truth)), len(held.truth)

    def surprise(temperature: float) -> float:
        logs = np.log(softmax(held.scores / temperature) + 1e-12)
        own = logs[rows, held.truth]
        others = (logs.sum(axis=1) - own) / max(1, logs.shape[1] - 1)
        return float(-((total + 1) * own + others).mean() / (total + 2))

    return min(TEMPERATURES, key=surprise)


def _answers(held: Held, rest: int, temperature: float, threshold: float) -> NDArray[np.int64]:
    """The class that would be answered, -1 for silence."""
    chances = softmax(held.scores / temperature)
    best = chances.argmax(axis=1)
    rows = np.arange(len(best))
    speaks = (best != rest) & (chances[rows, best] >= threshold) & (held.near[rows, best] >= SUPPORT)
    return np.where(speaks, best, -1)


def _threshold(held: Held, rest: int, temperature: float) -> float:
    """The lowest that leaves MOST_WRONG of the answers wrong at most; SILENT where none does."""
    chances = softmax(held.scores / temperature).max(axis=1)
    says = _answers(held, rest, temperature, LOWEST)
    spoken = np.flatnonzero(says >= 0)
    ordered = spoken[np.argsort(-chances[spoken], kind="stable")]
    wrong = np.cumsum(says[ordered] != held.truth[ordered])
    good = np.flatnonzero(wrong <= MOST_WRONG * np.arange(1, len(ordered) + 1))
    return max(LOWEST, float(chances[ordered[good[-1]]])) if len(good) else SILENT
