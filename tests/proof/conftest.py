"""The services of the proof: one Slurm for the run, fresh sinks and databases for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.proof.site import Site, site
from tests.services.postgres import Postgres
from tests.services.slack_sink import Hook, slack_sink
from tests.services.slurm import SlurmCluster, slurm
from tests.services.smtp import Desk, smtp_sink


@pytest.fixture(scope="session")
def whole_slurm() -> Iterator[SlurmCluster]:
    with slurm(4) as cluster:
        yield cluster


@dataclass
class Scene:
    """One test's site with the sinks that its messages go to."""

    site: Site
    mail: Desk
    slack: Hook


@pytest.fixture
def scene(whole_slurm: SlurmCluster, postgres: Postgres, tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    """Call it with ``mode`` and ``hold_s``; everything it started is gone at the end, and Slurm is clean."""
    with ExitStack() as stack:

        def make(mode: str = "propose", hold_s: float = 5.0) -> Scene:
            whole_slurm.clean()
            name = postgres.create()
            stack.callback(postgres.drop, name)
            mail, slack = stack.enter_context(smtp_sink()), stack.enter_context(slack_sink())
            made = site(tmp_path, whole_slurm, postgres.url(name), mail.port, slack.url, mode, hold_s)
            return Scene(stack.enter_context(made), mail, slack)

        yield make
