"""The gradients that the tests train with are the slopes of the loss."""

from __future__ import annotations

import numpy as np
import pytest

from tests.detectors.training.model import Shape, begin, run


@pytest.mark.parametrize("experts", [0, 4])
def test_every_gradient_by_hand_is_the_slope_of_its_ranks_loss(experts: int) -> None:
    shape = Shape(experts=experts)
    weights = {name: array.astype(np.float64) for name, array in begin(shape, 0).items()}
    tokens = np.random.default_rng(1).integers(0, shape.vocab, (shape.ranks, shape.batch, shape.length + 1))
    found = run(shape, weights, tokens)  # type: ignore[arg-type]  # in float64, so that slopes are exact
    for name, array in weights.items():
        at = tuple(int(np.random.default_rng(2).integers(0, n)) for n in array.shape)
        slopes = []
        for step in (1e-5, -1e-5):
            moved = array.copy()
            moved[at] += step
            slopes.append(run(shape, weights | {name: moved}, tokens).losses)  # type: ignore[arg-type]
        slope = (slopes[0] - slopes[1]) / 2e-5
        of_each = found.grads[name].reshape(shape.ranks, -1)[:, np.ravel_multi_index(at, array.shape)]
        assert np.allclose(of_each, slope, atol=1e-7), name
