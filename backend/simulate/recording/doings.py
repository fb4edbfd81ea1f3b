"""Who does what at a scrape: the phase and the run of every node, at that node's own time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.simulate.recording.work import Attempt, Phase, Segments

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Doing:
    """Per node: phase int8 and run row, -1 for none."""

    phase: NDArray[np.int8]
    run: Rows


class Doings:
    """All attempts of a recording, ready to be asked for rising times."""

    def __init__(self, attempts: Sequence[Attempt], planned: Sequence[Segments]) -> None:
        pairs = [(a, s) for a, s in zip(attempts, planned, strict=True) if a.nodes]
        self._waiting = sorted(pairs, key=lambda pair: -pair[0].start)
        self._going: list[tuple[Rows, int, Segments]] = []

    def at(self, *moments: Floats) -> list[Doing]:
        """One Doing for each of ``moments``, float64[nodes]; call with times that do not fall back."""
        first = min(float(now.min()) for now in moments)
        last = max(float(now.max()) for now in moments)
        while self._waiting and self._waiting[-1][0].start <= last:
            attempt, phases = self._waiting.pop()
            self._going.append((np.array(attempt.nodes, np.intp), attempt.run.row, phases))
        self._going = [one for one in self._going if one[2].end > first]
        return [self._doing(now) for now in moments]

    def _doing(self, now: Floats) -> Doing:
        phase, run = np.zeros(len(now), np.int8), np.full(len(now), -1, np.intp)
        for rows, number, planned in self._going:
            found = planned.at(now[rows])
            busy = found != Phase.NONE
            phase[rows[busy]], run[rows[busy]] = found[busy], number
        return Doing(phase, run)
