"""What the service leans on, made to fail: a PostgreSQL that is killed and started, a Prometheus that lies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from tests.services import postgres as server
from tests.services.need import need

Mood = Literal["well", "gone", "slow", "lying"]


@dataclass
class Database:
    """A real PostgreSQL on one port through all its lives."""

    folder: Path
    program: str
    process: subprocess.Popen[bytes]
    postgres: server.Postgres

    def kill(self) -> None:
        """As a machine that loses its power, for all that PostgreSQL can tell."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)

    def start(self) -> None:
        """Again, on the same port and files. Its children may still be leaving."""
        deadline = time.monotonic() + 40
        while True:
            assert time.monotonic() < deadline, (self.folder / "log").read_text(errors="replace")[-2000:]
            self.process = server.start_on(self.program, self.folder, self.postgres.port)
            if server.answers(self.process, self.postgres.port, self.folder):
                return
            self.process.wait(20)
            time.sleep(0.2)

    def freeze(self, on: bool) -> None:
        """All of its processes stand still, as on a disk that does not answer."""
        how = signal.SIGSTOP if on else signal.SIGCONT
        for pid in (self.process.pid, *children(self.process.pid)):
            try:
                os.kill(pid, how)
            except ProcessLookupError:
                continue


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


@contextmanager
def database() -> Iterator[Database]:
    initdb, program = need("initdb", "postgresql"), need("postgres", "postgresql")
    folder = Path(tempfile.mkdtemp(prefix="wk-pg-"))
    try:
        server.initialise(initdb, folder)
        process, port = server.start(program, folder)
        found = Database(folder, program, process, server.Postgres(port, folder, process.pid))
        try:
            yield found
        finally:
            found.freeze(False)
            server.stop(found.process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Prometheus:
    """Answers as its mood is; ``asked`` counts what came."""

    url: str
    mood: Mood = "well"
    asked: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def prometheus() -> Iterator[Prometheus]:
    found = Prometheus("")

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._answer()

        def _answer(self) -> None:
            with found.lock:
                found.asked += 1
            if found.mood == "gone":
                self.close_connection = True
                return
            if found.mood == "slow":
                time.sleep(3)
            body = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'
            if found.mood == "lying":
                body = b'{"status":"success","data":{"resultType":"vector","result":[{"metric":7,"value":"\xff"}]}'
            try:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                return

        def log_message(self, format: str, *args: object) -> None:
            return

    http = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield found
    finally:
        http.shutdown()
        http.server_close()
        thread.join(5)
