"""A real Slurm for the tests that need one: started once, left clean by each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.slurm import SlurmCluster, slurm


@pytest.fixture(scope="session")
def running_slurm() -> Iterator[SlurmCluster]:
    """4 nodes of 8 GPUs; skips where Slurm is not installed."""
    with slurm(4) as cluster:
        yield cluster


@pytest.fixture
def cluster(running_slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    yield running_slurm
    running_slurm.clean()
