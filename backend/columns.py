"""Samples of one push by number: who they are of stands in a Book that all pushes of a cluster share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from detectors.model import IntArray

Floats = NDArray[np.float64]


class Named(Protocol):
    """Whom a target speaks of: a DeviceLabel. ``axis`` is its family of rows."""

    @property
    def axis(self) -> str: ...


@dataclass(slots=True, eq=False)
class Book:
    """Targets by number: metric and part of a row, and the label that names the row. Numbers are never given anew.

    A target that nobody pushes any more costs its place here; there are as many as rows times metrics.
    """

    metrics: Sequence[str] = ()
    labels: list[Named] = field(default_factory=list)
    parts: list[str] = field(default_factory=lambda: [""])
    size: int = 0
    #: By target: place in ``metrics``, in ``labels``, in ``parts``.
    metric: IntArray = field(default_factory=lambda: np.zeros(1024, np.int32))
    label: IntArray = field(default_factory=lambda: np.zeros(1024, np.int32))
    part: IntArray = field(default_factory=lambda: np.zeros(1024, np.int32))

    def add(self, metric: int, label: int, part: int) -> int:
        """The number of a new target."""
        number, self.size = self.size, self.size + 1
        if number == self.metric.size:
            for name in ("metric", "label", "part"):
                setattr(self, name, grown(getattr(self, name)))
        self.metric[number], self.label[number], self.part[number] = metric, label, part
        return number


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Samples of one push: target, time (unix s) and value of each. ``labels`` are news of devices; ``nodes`` were
    heard of, and not just now."""

    book: Book
    targets: IntArray
    times: Floats
    values: Floats
    nodes: tuple[str, ...] = ()
    labels: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return int(self.targets.size)

    def series(self) -> Iterator[tuple[str, Named, str, Floats, Floats]]:
        """Metric, label, part, times and values of each target, for those that must see them one by one."""
        order = np.lexsort((self.times, self.targets))
        targets = self.targets[order]
        starts = np.flatnonzero(np.r_[True, targets[1:] != targets[:-1]]) if targets.size else np.zeros(0, np.int64)
        for first, last in zip(starts, np.r_[starts[1:], targets.size], strict=True):
            target, rows = targets[first], order[first:last]
            book = self.book
            metric, label, part = book.metric[target], book.label[target], book.part[target]
            yield book.metrics[metric], book.labels[label], book.parts[part], self.times[rows], self.values[rows]


def grown(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Half as long again, with zeros at the end."""
    more = np.zeros(max(1024, array.size // 2), array.dtype)
    return np.concatenate([array, more])
