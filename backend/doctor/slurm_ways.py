"""The further ways to a Slurm cluster: slurmrestd with its version and token, and the accounting."""

from __future__ import annotations

from collections.abc import Iterator

from backend.clients.slurm import SlurmError
from backend.clients.slurm_accounting import WANTED, Accounting
from backend.clients.slurm_rest import REQUEUES, UPDATES_NODES, SlurmRest
from backend.doctor.line import Line, failed, off, ok, warning
from backend.ingest.slurm_accounting import Accounts


def rest(name: str, slurm: SlurmRest, cli: bool) -> Iterator[Line]:
    """Reachable, with which version, and what of it has to go by scontrol. ``cli``: scontrol may be used."""
    try:
        api, release, count = slurm.api(), slurm.version(), len(slurm.nodes())
    except SlurmError as error:
        fix = "Check rest_url, rest_user and rest_token_file of [cluster.slurm]; `scontrol token` makes a token."
        yield failed(name, str(error), fix)
        return
    said = f"slurmrestd of Slurm {'.'.join(map(str, release))} speaks v0.0.{api}; {count} nodes may be read"
    lacks = ["drain"] * (api < UPDATES_NODES) + ["requeue"] * (api < REQUEUES)
    if not lacks:
        yield ok(name, said)
    elif cli:
        yield ok(name, f"{said}; it cannot {' and '.join(lacks)}, so that goes by scontrol")
    else:
        yield warning(name, f"{said}; it cannot {' and '.join(lacks)}", "Set cli = true where scontrol works.")


def accounting(name: str, accounts: Accounts) -> Iterator[Line]:
    """Whether attempts and outages are kept anywhere, and what this version tells of them."""
    try:
        kept = accounts.kept()
        fields = accounts.fields() if kept and isinstance(accounts, Accounting) else WANTED
    except SlurmError as error:
        yield failed(name, str(error), "See that slurmdbd runs and that sacct and sacctmgr work here by hand.")
        return
    if not kept:
        text = "this cluster keeps none: attempts are known from squeue only, while Watchkeeper runs"
        yield off(name, text, "Run slurmdbd, or set accounting = false under [cluster.slurm].")
        return
    lacking = [field for field in ("Restarts", "FailedNode", "StdOut") if field not in fields]
    more = f"; this version does not tell {', '.join(lacking)}" if lacking else ""
    yield ok(name, f"attempts and outages may be read{more}")
