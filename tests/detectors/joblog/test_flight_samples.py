"""A floor on public flight-recorder sets: every rank that a fault was put into is named, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from detectors.joblog.flight import dump_of, held, load
from tests.detectors.joblog.test_samples import SAMPLES

pytestmark = [pytest.mark.samples, pytest.mark.slow]


@pytest.mark.parametrize("name", ["gpu_error_1st", "lock_gil_1st"])
def test_every_faulty_rank_is_named_and_no_other(name: str) -> None:
    folder: Path = SAMPLES / "nvrx-fr-1st" / "fr_traces" / name
    faulty = re.findall(r"^Rank (\d+), fault", (folder / "fault_injection.log").read_text(), re.MULTILINE)
    dumps = [dump_of(load(path.read_bytes()), int(path.name.rpartition("_")[2])) for path in folder.glob("_dump_*")]
    assert held(dumps).culprits == tuple(sorted(map(int, faulty)))
