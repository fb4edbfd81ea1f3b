"""Other sides of hands, on loopback: a site's order service, and BMCs that speak Redfish."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Site:
    """One HTTP server; ``answer`` of a subclass says (status, body) of a request. Stopped by ``close``."""

    status: int = 0  #: where set, the answer to everything that writes
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    server: ThreadingHTTPServer = field(init=False)

    def __post_init__(self) -> None:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                site.asked.append((self.command, self.path, dict(self.headers), body))
                status, said = site.answer(self.command, self.path, body)
                text = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        raise NotImplementedError

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    @contextmanager
    def saying(self, status: int) -> Iterator[None]:
        self.status = status
        try:
            yield
        finally:
            self.status = 0


@dataclass
class OrderSite(Site):
    """A site's own service: it remembers each order by its id. ``later``: it accepts, and is not done yet."""

    orders: dict[str, dict[str, Any]] = field(default_factory=dict)
    later: bool = False
    deaf: bool = False  #: it has no question about an order

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if method == "GET":
            if self.deaf:
                return 405, {}
            known = self.orders.get(path.rpartition("/")[2])
            return (404, {}) if known is None else (202 if self.later else 200, {"text": "done", "ticket": "OPS-7"})
        if self.status:
            return self.status, {"error": "not today"}
        told = json.loads(body)
        self.orders[told["id"]] = told
        return 202 if self.later else 200, {"text": "done", "ticket": "OPS-7"}


@dataclass
class Bmcs(Site):
    """BMCs of all nodes behind one address: /NODE/redfish/... ; ``resets``: what was asked of which."""

    resets: list[tuple[str, str]] = field(default_factory=list)
    allowed: tuple[str, ...] = ("On", "ForceRestart", "GracefulRestart")
    tells: bool = True
    systems: int = 1

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        found = re.fullmatch(r"/([\w-]+)/redfish/v1/Systems(/1)?(/Actions/ComputerSystem\.Reset)?", path)
        if found is None:
            return 404, {"error": {"message": "no such resource"}}
        node, one, action = found.groups()
        if action:
            if self.status:
                return self.status, {"error": {"message": "not today"}}
            self.resets.append((node, json.loads(body)["ResetType"]))
            return 204, {}
        if one is None:
            return 200, {"Members": [{"@odata.id": f"/redfish/v1/Systems/{i + 1}"} for i in range(self.systems)]}
        count = sum(name == node for name, _ in self.resets)
        reset = {"target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"}
        reset_types = {"ResetType@Redfish.AllowableValues": list(self.allowed)}
        system: dict[str, Any] = {"PowerState": "On", "Actions": {"#ComputerSystem.Reset": reset | reset_types}}
        return 200, system | ({"LastResetTime": f"2026-03-01T00:00:{count:02d}Z"} if self.tells else {})
