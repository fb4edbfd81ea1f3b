"""A real Prometheus on loopback, scraping what a test gives it, in a folder of its own, stopped by pid."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.services.need import need

T = TypeVar("T")

CONF = """\
global:
  scrape_interval: {scrape_s}s
  scrape_timeout: {timeout_s}s
  external_labels: {{cluster: main}}
storage:
  tsdb:
    out_of_order_time_window: 24h
scrape_configs:
  - job_name: dcgm
    static_configs:
      - targets: [{targets}]
{remote_write}"""
REMOTE_WRITE = """\
remote_write:
  - url: {url}
    queue_config: {{min_backoff: 100ms, batch_send_deadline: 500ms}}
"""


@dataclass(frozen=True)
class RunningPrometheus:
    url: str
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


@contextmanager
def prometheus(
    folder: Path, targets: Sequence[str], scrape_s: int = 1, remote_write: str = ""
) -> Iterator[RunningPrometheus]:
    """Prometheus that scrapes ``targets`` (host:port) every ``scrape_s``; ready when yielded."""
    program = need("prometheus", "prometheus")
    conf = folder / "prometheus.yml"
    conf.write_text(
        CONF.format(
            scrape_s=scrape_s,
            timeout_s=min(scrape_s, 5),
            targets=", ".join(f'"{target}"' for target in targets),
            remote_write=REMOTE_WRITE.format(url=remote_write) if remote_write else "",
        )
    )
    running = _start(program, conf, folder)
    try:
        yield running
    finally:
        running.stop()


def _start(program: str, conf: Path, folder: Path) -> RunningPrometheus:
    """Prometheus cannot say which port it took with port 0 before it logs it; so read it from the log."""
    log = folder / "prometheus.log"
    command = [
        program,
        f"--config.file={conf}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        "--storage.tsdb.retention.time=10y",
        "--web.listen-address=127.0.0.1:0",
        "--web.enable-remote-write-receiver",
        "--web.enable-lifecycle",
        "--log.format=logfmt",
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
    port = until(lambda: _port(log), 20, lambda: log.read_text(errors="replace")[-2000:])
    running = RunningPrometheus(f"http://127.0.0.1:{port}", process)
    until(lambda: answers(f"{running.url}/-/ready"), 20, lambda: log.read_text(errors="replace")[-2000:])
    return running


def _port(log: Path) -> int | None:
    for line in log.read_text(errors="replace").splitlines():
        if 'msg="Listening on"' in line and "address=127.0.0.1:" in line:
            return int(line.rsplit("address=127.0.0.1:", 1)[1].split()[0])
    return None


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def until(look: Callable[[], T | None], seconds: float, otherwise: Callable[[], str] = str) -> T:
    """The first true answer of ``look`` within ``seconds``; else the test fails with what ``otherwise`` says."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {otherwise()}")
        time.sleep(0.05)
