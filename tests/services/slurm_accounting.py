"""The accounting of a real Slurm on loopback: MariaDB and slurmdbd in one folder, on free ports, stopped by pid."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.services.need import need

#: The lines of slurm.conf that send jobs to the accounting.
CONF = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge/sock
AccountingStorageTRES=gres/gpu,gres/gpu:h100
AccountingStoreFlags=job_comment
"""
DBD = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=watch
StoragePass=watch
StorageLoc=slurm_acct_db
CommitDelay=0
"""
_FAST = (
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-buffer-pool-size=64M",
    "--skip-log-bin",
    "--innodb-doublewrite=0",
)


#: Runs one command of Slurm to its end.
Ask = Callable[..., "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class Accounting:
    """Where the accounting of a cluster listens, and the programs it is made of."""

    folder: Path
    port: int
    database: int
    programs: dict[str, str]

    def conf(self) -> str:
        return CONF.format(folder=self.folder, port=self.port)


def accounting(folder: Path, port: int, database: int) -> Accounting:
    """Skips the test where a program is missing."""
    programs = {
        "mariadb-install-db": need("mariadb-install-db", "mariadb-server"),
        "mariadbd": need("mariadbd", "mariadb-server"),
        "slurmdbd": need("slurmdbd", "slurmdbd slurm-wlm-mysql-plugin"),
    }
    need("sacct", "slurm-client")
    return Accounting(folder, port, database, programs)


def start(
    made: Accounting, launch: Callable[..., None], wait: Callable[[str, Callable[[], bool]], None], ask: Ask
) -> None:
    """Both daemons, and a cluster, an account and a user for whoever runs the tests."""
    data, user = made.folder / "sql", pwd.getpwuid(os.geteuid()).pw_name
    options = ("--no-defaults", f"--datadir={data}", f"--user={user}")
    quiet = ("--skip-test-db", "--auth-root-authentication-method=normal")
    subprocess.run([made.programs["mariadb-install-db"], *options, *quiet], check=True, capture_output=True, timeout=60)
    secret = made.folder / "etc" / "first.sql"
    secret.write_text("CREATE USER watch@'127.0.0.1' IDENTIFIED BY 'watch';\nGRANT ALL ON *.* TO watch@'127.0.0.1';\n")
    listens = ("--bind-address=127.0.0.1", f"--port={made.database}", f"--socket={data}/sock", f"--init-file={secret}")
    launch("mariadbd", "mariadbd", *options, *listens, "--skip-name-resolve", *_FAST)
    wait("database", lambda: _answers(made.database))
    _lay_out(made, user)
    launch("slurmdbd", "slurmdbd", "-D")
    wait("accounting", lambda: _said(ask, "-n", "list", "cluster") is not None)
    _said(ask, "-i", "add", "cluster", "watchtest")
    _said(ask, "-i", "add", "account", "ml", "Cluster=watchtest")
    _said(ask, "-i", "add", "user", user, "Account=ml", "AdminLevel=Administrator")


def _lay_out(made: Accounting, user: str) -> None:
    host = socket.gethostname().split(".")[0]
    conf = made.folder / "etc" / "slurmdbd.conf"
    key = made.folder / "etc" / "jwt.key"
    more = f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={key}\n" if key.exists() else ""
    conf.write_text(DBD.format(folder=made.folder, host=host, port=made.port, user=user, database=made.database) + more)
    conf.chmod(0o600)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as there:
            return bool(there.recv(1))
    except OSError:
        return False


def _said(ask: Ask, *command: str) -> str | None:
    done = ask("sacctmgr", *command)
    return done.stdout if done.returncode == 0 else None


def registered(ask: Ask, within_s: float = 20.0) -> None:
    """Waits until slurmctld has told the accounting its nodes: from then on events and jobs are kept."""
    end = time.monotonic() + within_s
    while "watchtest" not in (_said(ask, "-n", "-P", "show", "cluster", "format=Cluster,ControlHost") or ""):
        assert time.monotonic() < end, "slurmctld never registered with slurmdbd"
        time.sleep(0.1)
