"""One past under two rule sets: today's, and the same with some thresholds changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from backend.backtest.compare import Comparison, compare
from backend.ingest.bundle.bundle import Bundle
from backend.ingest.bundle.reading import Progress
from backend.replay.run import replay
from backend.settings import Settings
from detectors.catalogue import Catalogue

#: Told how far the whole is (0 to 1), and what is being done.
Told = Callable[[float, str], None]


def untold(_share: float, _words: str) -> None:
    """Nobody asked."""


def both(
    bundle: Bundle, out: Path, catalogue: Catalogue, settings: Settings, tried: Mapping[str, float], told: Told = untold
) -> Comparison:
    """Replay ``bundle`` under ``catalogue``, and once more with thresholds ``tried`` over it, into ``out/today`` and
    ``out/tried``. Raises TableError for a threshold that is none, BundleError, StoreError or OSError."""
    other = catalogue.with_thresholds(tried)  # before any work: a wrong name costs nothing
    first = _run(bundle, out / "today", catalogue, settings, _part(told, 0.0, "today's rules"))
    second = _run(bundle, out / "tried", other, settings, _part(told, 0.5, "the tried rules"))
    return compare(rows_of(out / "today"), rows_of(out / "tried"), (first["findings"], second["findings"]))


def _run(bundle: Bundle, out: Path, catalogue: Catalogue, settings: Settings, told: Progress) -> dict[str, Any]:
    def of_run(done: int, total: int) -> None:
        if total != bundle.size:  # reading the files is told, too, in bytes, and is soon done
            told(done, total)

    return replay(bundle, out, catalogue, settings, of_run)


def _part(told: Told, begin: float, words: str) -> Progress:
    return lambda done, total: told(begin + 0.5 * min(1.0, done / max(1, total)), words)


def rows_of(out: Path) -> list[dict[str, Any]]:
    """incidents.jsonl of one replay."""
    return [orjson.loads(line) for line in (out / "incidents.jsonl").read_bytes().splitlines()]
