"""Small recordings, each made once: eight nodes of two cards, scraped once a minute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from backend.simulate.recording.record import Wish, record


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A bundle of a scenario; asking again gives the same folder."""
    kept: dict[str, Path] = {}

    def make(scenario: str, hours: float = 3.0, seed: int = 7, interval_s: float = 60.0) -> Path:
        name = f"{scenario.replace('/', '-').replace(':', '-')}-{hours:g}-{seed}-{interval_s:g}"
        if name not in kept:
            kept[name] = tmp_path_factory.mktemp(name) / "bundle"
            record(kept[name], Wish(seed, scenario, nodes=8, gpus=2, hours=hours, interval_s=interval_s))
        return kept[name]

    return make
