"""Several real processes of the product on one real PostgreSQL, killed and started again."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import requests

from tests.services.postgres import Postgres

ROOT = Path(__file__).resolve().parents[2]
LISTENS = re.compile(r"listens on (http://[\d.:]+)/")
START_S = 60.0
LEASE_S = 5.0


@dataclass
class Replica:
    """One process with a data folder of its own; ``url`` while it runs."""

    name: str
    config: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None
    url: str = ""

    def start(self) -> None:
        began = self.log.stat().st_size if self.log.exists() else 0
        command = [sys.executable, "-m", "backend.cli", "serve", "--config", str(self.config)]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)

        def listening() -> bool:
            assert self.process is not None and self.process.poll() is None, self.log.read_text()[began:]
            found = LISTENS.search(self.log.read_bytes()[began:].decode())
            self.url = found.group(1) if found else ""
            return bool(found) and answers(self.url)

        soon(listening, START_S, f"{self.name} listens")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        if how is signal.SIGSTOP:
            return
        self.process.wait(30)
        self.process, self.url = None, ""

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0


@dataclass
class Pair:
    """Two replicas, and a look into their database from outside."""

    dsn: str
    replicas: list[Replica] = field(default_factory=list)

    def ask(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(query.encode()).fetchall()

    def leader(self) -> Replica | None:
        """Whose lease has not run out; None while nobody watches."""
        rows = self.ask("SELECT who FROM lease WHERE until > clock_timestamp() AND holder <> ''")
        pid = int(str(rows[0][0]).rsplit(":", 1)[1]) if rows else -1
        return next((one for one in self.replicas if one.pid == pid), None)

    def alive(self) -> list[Replica]:
        return [one for one in self.replicas if one.url]


@contextmanager
def pair(postgres: Postgres, folder: Path) -> Iterator[Pair]:
    """Both started; all stopped at the end, by their pids."""
    name = postgres.create()
    found = Pair(postgres.dsn.replace("dbname=postgres", f"dbname={name}"))
    try:
        for which in ("one", "two"):
            own = folder / which
            own.mkdir()
            config = own / "watchkeeper.toml"
            config.write_text(
                f'[server]\nport = 0\n[store]\nurl = "{postgres.url(name)}"\nfolder = "{own / "kept"}"\n'
                f'lease_s = {LEASE_S}\n[[cluster]]\nname = "main"\ninterval_s = 2.0\nlateness_s = 1.0\n'
            )
            replica = Replica(which, config, own / "log")
            found.replicas.append(replica)
            replica.start()
        yield found
    finally:
        for replica in found.replicas:
            replica.end(signal.SIGKILL)
        postgres.drop(name)


def answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/healthz", timeout=2).ok
    except requests.RequestException:
        return False


def soon(look: Callable[[], bool], within_s: float, what: str) -> float:
    """Seconds until ``look`` is true. Fails when that takes longer than ``within_s``."""
    began = time.monotonic()
    while not look():
        assert time.monotonic() - began < within_s, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began
