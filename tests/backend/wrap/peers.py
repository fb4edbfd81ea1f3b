"""What a wrapper talks to: a web server and a mail server that do as they are told, on free ports of loopback."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Web:
    """``answers``: statuses to give, the last one for ever. ``wait_s``: before each answer."""

    answers: list[int] = field(default_factory=lambda: [200])
    wait_s: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    got: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    url: str = ""


@contextmanager
def web(**named: Any) -> Iterator[Web]:
    peer = Web(**named)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            peer.got.append((self.path, dict(self.headers), json.loads(body)))
            time.sleep(peer.wait_s)
            status = peer.answers.pop(0) if len(peer.answers) > 1 else peer.answers[0]
            self.send_response(status)
            for name, value in peer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b'{"detail": "as told"}')

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    peer.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield peer
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@contextmanager
def silent() -> Iterator[str]:
    """HOST:PORT of somebody who takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def mail(refuse: str = "") -> Iterator[tuple[str, list[str]]]:
    """(HOST:PORT, mails taken). ``refuse``: the answer to the first address."""
    taken: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0), backlog=16)

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer, peer.makefile("rwb", buffering=0) as file:
                converse(file, taken, refuse)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", taken
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def converse(file: Any, taken: list[str], refuse: str) -> None:
    """As much of RFC 5321 as a client that sends one mail needs."""
    file.write(b"220 here\r\n")
    while line := file.readline():
        word = line.split()[0].upper() if line.split() else b""
        if word == b"DATA":
            file.write(b"354 go on\r\n")
            text = b""
            while (part := file.readline()) not in (b".\r\n", b""):
                text += part
            taken.append(text.decode())
            file.write(b"250 kept\r\n")
        elif word == b"RCPT" and refuse:
            file.write(refuse.encode() + b"\r\n")
        elif word == b"QUIT":
            file.write(b"221 bye\r\n")
            return
        else:
            file.write(b"250 ok\r\n")
