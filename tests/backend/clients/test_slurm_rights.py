"""Rights on a Slurm cluster are told from what it says, and no command that changes anything is ever run."""

from __future__ import annotations

import os
import pwd

import pytest

from backend.clients.slurm import Ran, SlurmCli, SlurmError
from backend.clients.slurm_rights import hidden, to_drain
from tests.backend.clients.test_slurm import Recorded
from tests.services.slurm import SlurmCluster

CONFIG = """\
Configuration data as of 2026-03-01T12:00:00
AccountingStorageType   = accounting_storage/slurmdbd
PrivateData             = jobs,usage
SlurmUser               = slurm(64030)
"""
ALONE = CONFIG.replace("accounting_storage/slurmdbd", "(null)").replace("jobs,usage", "none")
LEVEL = {"Administrator": True, "Operator": False, "None": False, "": False}


def cli(config: str = CONFIG, level: Ran | Exception | None = None) -> tuple[SlurmCli, Recorded]:
    run = Recorded(scontrol=Ran(0, config, ""), sacctmgr=level or Ran(0, "", ""))
    return SlurmCli(run=run), run


def test_root_and_the_slurm_user_may_drain() -> None:
    assert to_drain(cli(ALONE)[0], "root", 0).may is True
    assert to_drain(cli(ALONE)[0], "slurm", 64030).may is True


def test_an_ordinary_account_may_not_and_is_told_who_may() -> None:
    right = to_drain(cli(ALONE)[0], "ada", 1000)
    assert right.may is False and "slurm(64030)" in right.why and "as slurm" in right.fix


@pytest.mark.parametrize(("level", "may"), LEVEL.items())
def test_with_accounting_the_admin_level_decides(level: str, may: bool) -> None:
    asked, run = cli(level=Ran(0, f"{level}\n", ""))
    right = to_drain(asked, "ada", 1000)
    assert right.may is may
    assert may or "set adminlevel=administrator" in right.fix
    assert run.asked == [
        ("scontrol", "show", "config"),
        ("sacctmgr", "-n", "-P", "show", "user", "name=ada", "format=AdminLevel"),
    ]


def test_an_admin_level_that_cannot_be_read_is_unknown_and_never_a_yes() -> None:
    assert to_drain(cli(level=FileNotFoundError())[0], "ada", 1000).may is None


def test_a_controller_that_does_not_answer_raises() -> None:
    run = Recorded(scontrol=Ran(1, "", "Unable to contact slurm controller"))
    with pytest.raises(SlurmError):
        to_drain(SlurmCli(run=run), "ada", 1000)


def test_what_private_data_hides_from_us_is_known() -> None:
    assert hidden(cli()[0]) == {"jobs"}
    assert hidden(cli(ALONE)[0]) == frozenset()


@pytest.mark.services
def test_a_real_controller_says_who_may(cluster: SlurmCluster) -> None:
    asked = SlurmCli(str(cluster.conf))
    me = pwd.getpwuid(os.geteuid())
    assert to_drain(asked, me.pw_name, me.pw_uid).may is True
    assert to_drain(asked, "nobody", 65534).may is False
    assert hidden(asked) == frozenset()
