"""Readings kept on disk until they are written out series by series: one file a metric, one row a scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Scrapes kept in memory before they go to disk, and series that are turned round at a time.
KEPT, TURNED = 64, 256


class Columns:
    """Append with ``add`` once a tick; then read by name. Missing values are NaN."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[str, list[Floats]] = {}
        self._widths: dict[str, int] = {}
        self.ticks = 0

    def add(self, readings: Mapping[str, Floats]) -> None:
        """Every name, every time, with as many rows as before."""
        for name, values in readings.items():
            self._widths.setdefault(name, len(values))
            self._kept.setdefault(name, []).append(values)
        self.ticks += 1
        if self.ticks % KEPT == 0:
            self.flush()

    def flush(self) -> None:
        for name, rows in self._kept.items():
            if rows:
                with (self._folder / name).open("ab") as file:
                    np.stack(rows).tofile(file)
                rows.clear()

    def series(self, name: str) -> Iterator[tuple[int, Floats]]:
        """(row, float64[ticks]) of every row, some rows at a time in memory."""
        width = self._widths[name]
        stored = np.memmap(self._folder / name, np.float64, "r", shape=(self.ticks, width))
        for first in range(0, width, TURNED):
            block = np.ascontiguousarray(stored[:, first : first + TURNED].T)
            yield from ((first + i, block[i]) for i in range(len(block)))
