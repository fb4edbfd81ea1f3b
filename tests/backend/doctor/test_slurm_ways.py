"""What doctor says of slurmrestd and of the accounting."""

from __future__ import annotations

import pytest

from backend.clients.slurm import Ran, SlurmCli
from backend.clients.slurm_accounting import Accounting
from backend.clients.slurm_http import Tokens
from backend.clients.slurm_rest import SlurmRest
from backend.doctor.slurm_ways import accounting, rest
from tests.fakes.slurmdbd import NEW, OLD, Slurmdbd
from tests.fakes.slurmrestd import Slurmrestd


def by_rest(server: Slurmrestd) -> SlurmRest:
    return SlurmRest("http://head:6820", Tokens(None, lambda lifespan_s: "good", lambda: 0.0), send=server.send)


@pytest.mark.parametrize(
    ("versions", "cli", "state", "words"),
    [
        ((42,), True, "ok", "v0.0.42; 1 nodes may be read; it cannot requeue, so that goes by scontrol"),
        ((38,), False, "warning", "it cannot drain and requeue"),
        ((45,), False, "ok", "v0.0.45; 1 nodes may be read"),
        ((), True, "failed", "speaks no version"),
    ],
)
def test_slurmrestd_is_told_with_what_it_cannot_do(
    versions: tuple[int, ...], cli: bool, state: str, words: str
) -> None:
    server = Slurmrestd(versions, tokens={"good", ""})
    (line,) = rest("main slurmrestd", by_rest(server), cli)
    assert line.state == state and words in line.what


def test_the_accounting_is_told_with_what_its_version_lacks() -> None:
    for columns, words in ((OLD, "does not tell Restarts, FailedNode, StdOut"), (NEW, "may be read")):
        (line,) = accounting("main", Accounting(SlurmCli(run=Slurmdbd(0, columns=columns).run)))
        assert line.state == "ok" and line.what.endswith(words)
    (line,) = accounting(
        "main", Accounting(SlurmCli(run=lambda *a: Ran(1, "", "Slurm accounting storage is disabled")))
    )
    assert line.state == "not set up"
    (line,) = accounting("main", Accounting(SlurmCli(run=lambda *a: Ran(1, "", "Unable to contact slurmdbd"))))
    assert line.state == "failed"
