"""What the sinks share: how they answer, and a tape of what they got."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any


class Mode(StrEnum):
    """How a sink answers. In ``drop_after`` it has the message and the sender cannot know."""

    TAKE = "take"
    REFUSE = "refuse"
    PUT_OFF = "put_off"
    LIMIT = "limit"
    BROKEN = "broken"
    DROP_BEFORE = "drop_before"
    DROP_AFTER = "drop_after"
    SLOW = "slow"
    DRIP = "drip"


class Tape:
    """What a sink got, in memory and, with a file, as JSON lines. Threads share it.

    The mode is what was set last; for a sink in its own process a file ``FILE.mode`` beside the tape sets it.
    """

    def __init__(self, file: Path | None = None, mode: Mode = Mode.TAKE) -> None:
        self.rows: list[dict[str, Any]] = []
        self.tries = 0
        self.slow_s = 30.0
        self._file = file
        self._mode = mode
        self._changed = threading.Condition()

    @property
    def mode(self) -> Mode:
        beside = self._file.with_name(self._file.name + ".mode") if self._file else None
        return Mode(beside.read_text().strip()) if beside and beside.exists() else self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode

    def tried(self) -> Mode:
        """Count one try; returns how to answer it."""
        with self._changed:
            self.tries += 1
            self._changed.notify_all()
        return self.mode

    def keep(self, row: dict[str, Any]) -> None:
        with self._changed:
            self.rows.append(row)
            if self._file:
                with self._file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps({"at": time.time(), **row}) + "\n")
            self._changed.notify_all()

    def wait_for(self, count: int, within_s: float = 10.0) -> list[dict[str, Any]]:
        """The rows, once there are ``count``; raises AssertionError where there are fewer in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.rows) >= count, within_s):
                raise AssertionError(f"{len(self.rows)} of {count} messages within {within_s} s")
            return list(self.rows)


class Replies(BaseHTTPRequestHandler):
    """How an HTTP sink answers: whole, a byte at a time for ever, or not at all."""

    def say(self, status: int, headers: Mapping[str, str], words: str) -> None:
        raw = words.encode()
        self.send_response(status)
        for name, value in {"Content-Type": "text/html", "Content-Length": str(len(raw)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def drip(self) -> None:
        """An answer without end, a byte every 0.1 s."""
        self.send_response(200)
        self.end_headers()
        while True:
            self.wfile.write(b"o")
            self.wfile.flush()
            time.sleep(0.1)

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read the tape, not the terminal."""


def run(program: str, sink: Callable[[int, Tape], AbstractContextManager[int]]) -> None:
    """``python -m PROGRAM PORT FILE [--mode MODE]``: says the port, then keeps what it gets until it is stopped."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("port", type=int, help="0 takes a free one")
    parser.add_argument("file", type=Path, help="JSON lines of what was got; FILE.mode, when there, holds the mode")
    parser.add_argument("--mode", type=Mode, default=Mode.TAKE, choices=list(Mode))
    parser.add_argument("--slow-s", type=float, default=30.0)
    asked = parser.parse_args()
    tape = Tape(asked.file, asked.mode)
    tape.slow_s = asked.slow_s
    with sink(asked.port, tape) as port:
        print(f"127.0.0.1:{port}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return
