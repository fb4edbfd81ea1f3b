"""Any HTTP receiver on loopback: keeps what was posted, holds senders to its rules, can refuse or hang up."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

from tests.services.sinks import Mode, Replies, Tape

#: mode -> (status, headers, answer)
ANSWERS: dict[Mode, tuple[int, dict[str, str], str]] = {
    Mode.REFUSE: (400, {}, "invalid event"),
    Mode.PUT_OFF: (503, {}, "unavailable"),
    Mode.LIMIT: (429, {"Retry-After": "37"}, "slow down"),
    Mode.BROKEN: (500, {}, "broken"),
}
#: (path, body, what was kept so far) -> (status, answer); a status of 2xx keeps it
Rules = Callable[[str, bytes], tuple[int, Any]]


class Receiver(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, tape: Tape, rules: Rules) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.tape = tape
        self.rules = rules
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(row["raw"]) for row in self.tape.rows]


class Answer(Replies):
    server: Receiver

    def do_POST(self) -> None:
        tape = self.server.tape
        mode = tape.tried()
        raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if mode is Mode.SLOW:
            time.sleep(tape.slow_s)
        if mode in (Mode.DROP_BEFORE, Mode.SLOW):
            return self.hang_up()
        if mode in ANSWERS:
            return self.say(*ANSWERS[mode])
        status, told = self.server.rules(self.path, raw)
        if 200 <= status < 300:
            tape.keep({"path": self.path, "raw": raw.decode(), "headers": dict(self.headers.items()), "answer": told})
        if tape.mode is Mode.DROP_AFTER:
            return self.hang_up()
        return self.drip() if mode is Mode.DRIP else self.say(status, {}, json.dumps(told))


def takes(path: str, raw: bytes) -> tuple[int, Any]:
    """Rules of a receiver that takes any JSON."""
    json.loads(raw)
    return 202, {"status": "success"}


@contextmanager
def http_sink(rules: Rules = takes) -> Iterator[Receiver]:
    """A receiver in a thread."""
    with Receiver(Tape(), rules) as receiver:
        receiver.tape.slow_s = 2.0
        thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join(10)
