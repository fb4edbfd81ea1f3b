"""What this account may do on a Slurm cluster, told from its configuration; nothing is tried and nothing is changed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from backend.clients.slurm import SlurmCli, SlurmError


@dataclass(frozen=True, slots=True)
class Right:
    """``may`` is None where it cannot be told. ``why`` is a clause for people, ``fix`` a sentence or empty."""

    may: bool | None
    why: str
    fix: str = ""


def to_drain(cli: SlurmCli, user: str, uid: int) -> Right:
    """Nodes are updated for root, SlurmUser and accounts whose AdminLevel is Administrator, and for nobody else (man
    slurm.conf, SlurmUser; man sacctmgr, AdminLevel). Raises SlurmError where the controller does not answer."""
    settings = cli.settings()
    owner = settings.get("SlurmUser", "")
    if uid == 0:
        return Right(True, "root may")
    if owner and uid == _uid(owner):
        return Right(True, f"{user} is SlurmUser")
    fix = f"Run Watchkeeper as {_name(owner) or 'SlurmUser'}"
    if "slurmdbd" not in settings.get("AccountingStorageType", ""):
        return Right(False, f"{user} is neither root nor SlurmUser {owner}".rstrip(), f"{fix}.")
    grant = f"{fix}, or: sacctmgr modify user {user} set adminlevel=administrator."
    try:
        level = cli.admin_level(user)
    except SlurmError as error:
        return Right(None, f"whether {user} is an Administrator cannot be read ({error})", grant)
    if level == "Administrator":
        return Right(True, f"{user} is an Administrator")
    return Right(False, f"the AdminLevel of {user} is {level or 'not set'}", grant)


def hidden(cli: SlurmCli) -> frozenset[str]:
    """What PrivateData keeps from ordinary accounts, of ``jobs`` and ``nodes``. Raises SlurmError."""
    kept = cli.settings().get("PrivateData", "").replace(" ", "").split(",")
    return frozenset(kept) & {"jobs", "nodes"}


def _uid(owner: str) -> int:
    """64030 of ``slurm(64030)``."""
    found = re.search(r"\((\d+)\)$", owner)
    return int(found[1]) if found else -1


def _name(owner: str) -> str:
    return owner.partition("(")[0]
