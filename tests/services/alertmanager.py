"""A real Alertmanager on loopback, in a folder of its own, that sends to one webhook; stopped by pid."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services.need import need
from tests.services.prometheus import answers, until

CONF = """\
route:
  receiver: hook
  group_by: [alertname, incident]
  group_wait: 100ms
  group_interval: 1s
  repeat_interval: 1h
receivers:
  - name: hook
    webhook_configs:
      - url: {url}
        send_resolved: true
"""


@contextmanager
def alertmanager(folder: Path, webhook: str) -> Iterator[str]:
    """Its base URL, once it is ready."""
    program = need("prometheus-alertmanager", "prometheus-alertmanager")
    conf = folder / "alertmanager.yml"
    conf.write_text(CONF.format(url=webhook))
    port = _free_port()
    log = folder / "alertmanager.log"
    command = [
        program,
        f"--config.file={conf}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(f"{url}/-/ready"), 20, lambda: log.read_text(errors="replace")[-2000:])
        yield url
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _free_port() -> int:
    """Alertmanager cannot say which port it took; nobody else asks for this one in between."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
