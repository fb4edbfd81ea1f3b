"""An isolation forest as plain arrays: grown by scikit-learn, kept and asked without it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.detector import Arrays
from detectors.model import FloatArray

TREES, SAMPLE = 64, 256


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """t trees of at most m nodes each. ``feature`` int16[t, m], -1 at a leaf; ``cut`` float64[t, m], left where the
    value is at most that; ``left``, ``right`` int32[t, m]; ``depth`` float32[t, m], how far a leaf lies below the root,
    with the expected rest of the way (Liu, Ting and Zhou, ICDM 2008); ``usual`` float64[1], the mean depth of a sample.
    """

    feature: NDArray[np.int16]
    cut: NDArray[np.float64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    depth: NDArray[np.float32]
    usual: NDArray[np.float64]

    @classmethod
    def of(cls, arrays: Arrays) -> Forest:
        """From a saved model. Raises KeyError where it is none."""
        return cls(**{one.name: arrays[f"forest_{one.name}"] for one in fields(cls)})  # type: ignore[arg-type]

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {f"forest_{one.name}": getattr(self, one.name) for one in fields(self)}

    def score(self, rows: FloatArray) -> NDArray[np.float64]:
        """float32[k, f] -> float64[k]: 0.5 is usual, near 1 is strange. One step down all trees of all rows at a time,
        so its cost is k x trees x depth, whatever the fleet."""
        trees = np.arange(len(self.feature))[None, :]
        at = np.zeros((len(rows), len(self.feature)), np.int64)
        which = np.arange(len(rows))[:, None]
        while True:
            feature = self.feature[trees, at]
            inner = feature >= 0
            if not inner.any():
                break
            goes = rows[which, np.maximum(feature, 0)] <= self.cut[trees, at]
            at = np.where(inner, np.where(goes, self.left[trees, at], self.right[trees, at]), at)
        return np.asarray(np.exp2(-self.depth[trees, at].mean(axis=1) / self.usual[0]), np.float64)


def grow(rows: FloatArray, seed: int = 0) -> Forest:
    """A forest over quiet rows float32[k, f]; the same rows and seed give the same forest."""
    from sklearn.ensemble import IsolationForest  # it takes a second to import, and only a fit needs it

    made = IsolationForest(n_estimators=TREES, max_samples=min(SAMPLE, len(rows)), random_state=seed).fit(rows)
    trees = [one.tree_ for one in made.estimators_]
    most = max(tree.node_count for tree in trees)
    feature = np.full((len(trees), most), -1, np.int16)
    cut, depth = np.zeros((len(trees), most)), np.zeros((len(trees), most), np.float32)
    left, right = (np.zeros((len(trees), most), np.int32) for _ in range(2))
    for place, tree in enumerate(trees):
        n = tree.node_count
        feature[place, :n], cut[place, :n] = np.maximum(tree.feature, -1), tree.threshold
        left[place, :n], right[place, :n] = np.maximum(tree.children_left, 0), np.maximum(tree.children_right, 0)
        below = np.zeros(n)
        for node in range(n):  # children come after their parent
            if feature[place, node] >= 0:
                below[[left[place, node], right[place, node]]] = below[node] + 1
        depth[place, :n] = below + _expected(tree.n_node_samples)
    return Forest(feature, cut, left, right, depth, _expected(np.array([min(SAMPLE, len(rows))])))


def _expected(n: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean depth of an unsuccessful search in a binary tree of n: 2 H(n - 1) - 2 (n - 1) / n."""
    size = np.maximum(n.astype(np.float64), 2.0)
    found = 2.0 * (np.log(size - 1.0) + np.euler_gamma) - 2.0 * (size - 1.0) / size
    return np.where(n > 2, found, np.where(n == 2, 1.0, 0.0))
