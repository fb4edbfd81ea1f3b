"""A Slack incoming webhook on loopback that holds senders to Slack's limits, and can refuse, stall or hang up; also a
program by itself."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

from tests.services.sinks import Mode, Replies, Tape, run

#: mode -> (status, headers, what Slack says)
ANSWERS: dict[Mode, tuple[int, dict[str, str], str]] = {
    Mode.REFUSE: (404, {}, "no_service"),
    Mode.PUT_OFF: (503, {}, "service_unavailable"),
    Mode.LIMIT: (429, {"Retry-After": "37"}, "rate_limited"),
    Mode.BROKEN: (500, {}, "fatal_error"),
}
LIMITS = {"header": 150, "section": 3000, "field": 2000, "button": 75, "confirm_title": 100, "confirm_text": 300}
BLOCKS, WHOLE = 50, 13_200


class Hook(ThreadingHTTPServer):
    """A running webhook; ``url`` is its secret address."""

    daemon_threads = True

    def __init__(self, port: int, tape: Tape) -> None:
        super().__init__(("127.0.0.1", port), Answer)
        self.tape = tape
        self.port = int(self.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}/services/T0SECRET/B0SECRET/kEyOfTheHook"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [row["body"] for row in self.tape.rows]


class Answer(Replies):
    server: Hook

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
        wrong = complaint(raw)
        if wrong:
            return self.say(400, {}, wrong)
        tape.keep({"path": self.path, "body": json.loads(raw)})
        if mode is Mode.DROP_AFTER:
            return self.hang_up()
        return self.drip() if mode is Mode.DRIP else self.say(200, {}, "ok")


def complaint(raw: bytes) -> str:
    """What Slack would answer to a body that breaks its rules, empty where it keeps them."""
    try:
        body = json.loads(raw)
    except ValueError:
        return "invalid_payload"
    blocks = body.get("blocks", [])
    if not body.get("text") and not blocks:
        return "no_text"
    if len(blocks) > BLOCKS:
        return "invalid_blocks"
    if sum(units(text) for block in blocks for _, text in texts(block)) > WHOLE:
        return "msg_blocks_too_long"
    fits = all(0 < units(text) <= LIMITS.get(kind, 3000) for block in blocks for kind, text in texts(block))
    few = all(len(block.get("fields", [])) <= 10 and len(block.get("elements", [])) <= 10 for block in blocks)
    return "" if fits and few else "invalid_blocks"


def texts(block: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(what limits it, text) of all texts of a block."""
    if "text" in block:
        yield block["type"], block["text"]["text"]
    yield from (("field", field["text"]) for field in block.get("fields", []))
    for element in block.get("elements", []):
        yield ("button", element["text"]["text"]) if element["type"] == "button" else ("context", element["text"])
        for part in ("title", "text") if "confirm" in element else ():
            yield f"confirm_{part}", element["confirm"][part]["text"]


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def as_read(body: dict[str, Any]) -> str:
    """A message as its reader sees it: the texts in order, entities decoded."""
    shown = "\n".join(text for block in body["blocks"] for _, text in texts(block))
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


@contextmanager
def slack_sink(port: int = 0, tape: Tape | None = None) -> Iterator[Hook]:
    """A webhook in a thread."""
    with Hook(port, tape or Tape()) as hook:
        thread = threading.Thread(target=hook.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield hook
        finally:
            hook.shutdown()
            thread.join(10)


@contextmanager
def _port_of(port: int, tape: Tape) -> Iterator[int]:
    with slack_sink(port, tape) as hook:
        yield hook.port


if __name__ == "__main__":
    run("tests.services.slack_sink", _port_of)
