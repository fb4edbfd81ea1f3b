"""Published rules on single values of loss and gradient norm, as plain functions on columns (one a run or tensor).

OLMo-core SkipStep and StabilityMonitor; ZClip 2504.02507; AdaGC 2502.11034; ByteRobust 2509.16293 (five times).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]
#: OLMo-core: the last 128 values, from the 64th on, 6 standard deviations.
WINDOW, BEGINS, SIGMAS = 128, 64, 6.0


@dataclass(frozen=True, slots=True)
class Window:
    """mean, sd (unbiased) and population sd of what each column holds; sd is NaN below two values."""

    n: Floats
    mean: Floats
    sd: Floats
    population_sd: Floats


def window_of(ring: Floats, held: Floats) -> Window:
    """ring float64[128, k], of which each column holds its first ``held`` rows (in any order)."""
    n = np.minimum(held, len(ring))
    inside = np.arange(len(ring))[:, None] < n
    count = np.maximum(n, 1.0)
    mean = np.where(inside, ring, 0.0).sum(axis=0) / count
    square = np.square(np.where(inside, ring - mean, 0.0)).sum(axis=0)
    sd = np.sqrt(square / np.where(n > 1, n - 1, np.nan))
    return Window(n, mean, sd, np.sqrt(square / count))


def skip_step(x: Floats, past: Window, sigmas: float = SIGMAS) -> Truths:
    """OLMo-core SkipStep: x - mean > 6 sd (unbiased, x itself excluded), once 64 values are there."""
    judged: Truths = (past.n >= BEGINS) & (x - past.mean > sigmas * past.sd)
    return judged


def unstable(x: Floats, past: Window, sigmas: float = SIGMAS) -> Truths:
    """OLMo-core StabilityMonitor: x > mean + 6 sd (population) of a full window. Its SpikeScore is spikes / steps."""
    judged: Truths = (past.n >= WINDOW) & (x > past.mean + sigmas * past.population_sd)
    return judged


def jumped(x: Floats, past: Window, times: float = 5.0) -> Truths:
    """ByteRobust: five times what it was; here its mean of the window, from the 8th value on."""
    judged: Truths = (past.n >= 8) & (past.mean > 0) & (x > times * past.mean)
    return judged


def push(ring: Floats, held: Floats, at: NDArray[np.intp], x: Floats) -> None:
    """The oldest value of columns ``at`` makes room for x; in place."""
    ring[(held[at] % len(ring)).astype(np.intp), at] = x
    held[at] += 1


@dataclass(frozen=True, slots=True)
class Clip:
    """What ZClip does: z before clipping, the value after it, and mean and variance that follow."""

    z: Floats
    clipped: Floats
    mean: Floats
    variance: Floats


def zclip(x: Floats, mean: Floats, variance: Floats, alpha: float = 0.97, z_most: float = 2.5) -> Clip:
    """ZClip (2504.02507), after its 25 warm-up norms: z = (g - mean) / (sd + 1e-6); above 2.5 clip to
    mean + 6.25 sd / z; then mean = 0.97 mean + 0.03 clipped, and the variance with the new mean."""
    sd = np.sqrt(variance)
    z = (x - mean) / (sd + 1e-6)
    clipped = np.where(z > z_most, mean + z_most * sd / (np.maximum(z, z_most) / z_most), x)
    after = alpha * mean + (1 - alpha) * clipped
    return Clip(z, clipped, after, alpha * variance + (1 - alpha) * np.square(clipped - after))


def adagc(x: Floats, usual: Floats, times: float = 1.05, beta: float = 0.98) -> tuple[Floats, Floats]:
    """AdaGC (2502.11034), a tensor's norm after its first 100 steps: cut to 1.05 times the mean of cut norms. Returns
    (the norm after it, the mean that follows)."""
    cut = np.minimum(x, times * usual)
    return cut, beta * usual + (1 - beta) * cut
