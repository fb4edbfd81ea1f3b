"""A whole small site for the proof: Slurm, exporter, Prometheus, PostgreSQL, mail, Slack, and `watchkeeper serve`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import requests

from tests.services.exporter import Switches, exporter
from tests.services.prometheus import prometheus, until
from tests.services.slurm import SlurmCluster

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "correct horse battery"
#: PCI address of GPU 3 as the kernel prints it; the exporter prints the same card as 00000000:61:00.0.
PCI_OF_GPU_3 = "0000:61:00"

CONFIG = """\
mode = "{mode}"

[server]
port = {port}

[store]
url = "{store}"
folder = "{folder}"

[[cluster]]
name = "main"
interval_s = 1
lateness_s = 1
thresholds = {{ kernel_settle_s = 5 }}

  [[cluster.prometheus]]
  url = "{prometheus}"
  interval_s = 1

  [cluster.slurm]
  conf = "{slurm}"
  interval_s = 1

[incidents]
hold_s = {hold_s}

[policy]
lease_s = 4

[email]
host = "127.0.0.1"
port = {smtp}
starttls = false
from = "watchkeeper@site.test"
to = ["oncall@site.test"]

[slack]
webhook_url = "{slack}"
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kernel_line(pci: str = PCI_OF_GPU_3) -> str:
    return f"NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@dataclass
class Running:
    """One `watchkeeper serve`."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def get(self, path: str, **params: str) -> Any:
        answer = requests.get(f"{self.url}/api/v1/{path}", params=params, timeout=10)
        assert answer.ok, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    def text(self, path: str, **params: str) -> str:
        answer = requests.get(f"{self.url}/api/v1/{path}", params=params, timeout=10)
        assert answer.ok, f"{path}: {answer.status_code} {answer.text}"
        return answer.text

    def push(self, node: str, line: str, at: float) -> requests.Response:
        row = {"ts": at, "host": node, "source": "kernel", "line": line}
        return requests.post(f"{self.url}/api/v1/ingest/logs", json=[row], timeout=10)

    def wait_dead(self, within_s: float = 30.0) -> None:
        assert self.process.wait(within_s) == -signal.SIGKILL, self.words()

    def words(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)


@dataclass
class Site:
    """The services of one test, and what starts Watchkeeper on them."""

    folder: Path
    slurm: SlurmCluster
    switches: Switches
    config: Path
    port: int
    store_url: str
    running: list[Running] = field(default_factory=list)

    def serve(self, die_at: str = "") -> Running:
        """Start the product; ready when /readyz says so."""
        log = self.folder / f"serve-{len(self.running)}.log"
        program = ["-m", "tests.proof.server", str(self.config), die_at] if die_at else None
        command = program or ["-m", "backend.cli", "serve", "--config", str(self.config)]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, env={**os.environ}
            )
        run = Running(process, f"http://127.0.0.1:{self.port}", log)
        self.running.append(run)
        until(lambda: ready(run), 30, run.words)
        return run

    def add_user(self, name: str, role: str) -> None:
        secret = self.folder / "password"
        secret.write_text(PASSWORD + "\n")
        words = ["users", "add", name, "--role", role, "--password-file", str(secret), "--config", str(self.config)]
        subprocess.run([sys.executable, "-m", "backend.cli", *words], cwd=ROOT, check=True, timeout=60)

    def cards(self) -> int:
        """How many GPUs Watchkeeper has met: each was in a scrape that it judged or is about to."""
        with psycopg.connect(self.store_url.replace("+psycopg", "")) as store:
            found = store.execute("SELECT count(*) FROM device").fetchone()
        return int(found[0]) if found else 0

    def stop(self) -> None:
        for run in self.running:
            run.stop()

    def drains_of(self, node: str) -> int:
        """How often slurmctld was told to drain the node, by its own log."""
        log = (self.slurm.folder / "log" / "slurmctld.log").read_text(errors="replace")
        return sum(f"update_node: node {node} state set to DRAIN" in line for line in log.splitlines())


def ready(run: Running) -> bool:
    assert run.process.poll() is None, run.words()
    try:
        return requests.get(f"{run.url}/readyz", timeout=2).ok
    except requests.RequestException:
        return False


@contextmanager
def site(
    folder: Path,
    cluster: SlurmCluster,
    store_url: str,
    smtp_port: int,
    slack_url: str,
    mode: str = "propose",
    hold_s: float = 5.0,
) -> Iterator[Site]:
    """Everything but Watchkeeper itself is up; ``Site.serve`` starts that."""
    with exporter(cluster.nodes) as (port, switches), prometheus(folder, [f"127.0.0.1:{port}"]) as prom:
        config = folder / "watchkeeper.toml"
        own = free_port()
        config.write_text(
            CONFIG.format(
                mode=mode,
                port=own,
                store=store_url,
                folder=folder / "store",
                prometheus=prom.url,
                slurm=cluster.conf,
                hold_s=hold_s,
                smtp=smtp_port,
                slack=slack_url,
            )
        )
        made = Site(folder, cluster, switches, config, own, store_url)
        try:
            yield made
        finally:
            made.stop()


def soon(what: str, look: Callable[[], Any], within_s: float, run: Running) -> Any:
    """The first true answer within ``within_s`` seconds; the failure says what was awaited and the server's words."""
    deadline = time.monotonic() + within_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {within_s} s\n{run.words()}")
        time.sleep(0.05)
