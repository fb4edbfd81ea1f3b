"""A real PostgreSQL of our own: a fresh data folder, a free port, never the machine's."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from tests.services.need import need

USER, PASSWORD = "watchkeeper", "only-for-tests"
START_S = 30.0


@dataclass(frozen=True)
class Postgres:
    """A running server. ``folder`` holds its files, its socket and its log."""

    port: int
    folder: Path
    pid: int

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def create(self, template: str = "template1") -> str:
        """A new database, a copy of ``template`` (nobody may be connected to that one); its name."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self._run(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))
        return name

    def drop(self, name: str) -> None:
        self._run(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _run(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement)

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user={USER} password={PASSWORD} dbname=postgres connect_timeout=2"


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Start, wait until it answers, and stop it by its pid. Skips where PostgreSQL is not installed."""
    initdb, program = need("initdb", "postgresql"), need("postgres", "postgresql")
    folder = Path(tempfile.mkdtemp(prefix="wk-pg-"))
    try:
        initialise(initdb, folder)
        process, port = start(program, folder)
        try:
            yield Postgres(port, folder, process.pid)
        finally:
            stop(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def initialise(initdb: str, folder: Path) -> None:
    (folder / "pw").write_text(PASSWORD)
    if os.geteuid() == 0:
        owner = _other_user()
        for path in (folder, folder / "pw"):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    flags = ["--no-sync", "-E", "UTF8", "--locale=C", "-A", "scram-sha-256", "-U", USER]
    command = [*_as_other(), initdb, "-D", str(folder / "db"), "--pwfile", str(folder / "pw"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr


def start(program: str, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A port that was free may be taken by the time the server binds it; then another one is tried."""
    for _ in range(5):
        port = _free_port()
        process = start_on(program, folder, port)
        if answers(process, port, folder):
            return process, port
        stop(process)
    raise AssertionError((folder / "log").read_text(errors="replace")[-2000:])


def start_on(program: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(folder), "fsync": "off"}
    flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    command = [*_as_other(), program, "-D", str(folder / "db"), "-p", str(port), *flags]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)


def answers(process: subprocess.Popen[bytes], port: int, folder: Path) -> bool:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            psycopg.connect(Postgres(port, folder, process.pid).dsn).close()
            return True
        except psycopg.OperationalError:
            time.sleep(0.05)
    return False


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # fast shutdown: ends sessions, keeps files whole
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _as_other() -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    owner = _other_user()
    return ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]


def _other_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")
