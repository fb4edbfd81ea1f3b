"""The fake of a kube-apiserver over HTTP, on a free port of loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.services.kube_fake import Asked, FakeKube, Object, Refused


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65_536  # head and body in one packet: two would wait for each other's acknowledgement
    fake: FakeKube

    def log_message(self, *_words: Any) -> None:
        """Quiet."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        sent = self.rfile.read(length)
        if not self.fake.answers.wait(30):
            return
        if self.fake.instead:
            code, headers = self.fake.instead.pop(0)
            self._say(code, _status(Refused(code, "TooManyRequests", "the server is busy")), headers)
            return
        try:
            self._dispatch(sent)
        except Refused as refused:
            self._say(refused.code, _status(refused))

    def _dispatch(self, sent: bytes) -> None:
        parts = urlsplit(self.path)
        user = self.fake.tokens.get(self.headers.get("Authorization", "").removeprefix("Bearer "))
        if user is None:
            raise Refused(401, "Unauthorized", "Unauthorized")
        if self.command == "GET" and (found := self.fake.discover(parts.path)) is not None:
            self._say(200, found)
            return
        params = {key: said[-1] for key, said in parse_qs(parts.query).items()}
        asked = self._asked(parts.path, params, user)
        if asked.verb == "list" and params.get("watch") in ("1", "true"):
            self._stream(asked)
            return
        body = json.loads(sent) if sent else {}
        answer = self.fake.answer(asked, body, self.headers.get("Content-Type", ""))
        if asked.sub == "log":
            self._write(200, answer["text"].encode(), {"Content-Type": "text/plain"})
            return
        self._say(201 if asked.verb == "create" else 200, answer)

    def _asked(self, path: str, params: Mapping[str, str], user: str) -> Asked:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        group = "" if parts[0] == "api" else parts[1]
        version, *rest = parts[1:] if parts[0] == "api" else parts[2:]
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource, name, sub = (*rest, "", "", "")[:3]
        if resource not in self.fake.api.get((group, version), {}):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        verbs = {"GET": "get" if name else "list", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
        agent = self.headers.get("User-Agent", "unknown").partition("/")[0]
        manager = params.get("fieldManager") or agent
        return Asked(verbs[self.command], group, version, resource, namespace, name, sub, params, user, manager)

    def _stream(self, asked: Asked) -> None:
        changes = self.fake.watch(asked)
        first = next(changes, None)  # a refusal comes before the head
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for change in [] if first is None else self._with(first, changes):
            line = json.dumps(change).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    @staticmethod
    def _with(first: Object, rest: Iterator[Object]) -> Iterator[Object]:
        yield first
        yield from rest

    def _say(self, code: int, document: Object, headers: Mapping[str, str] | None = None) -> None:
        self._write(code, json.dumps(document).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _write(self, code: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        for key, said in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, said)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve


def _status(refused: Refused) -> Object:
    found: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": str(refused)}
    found |= {"reason": refused.reason, "code": refused.code}
    return found | ({"details": {"causes": [{"message": cause} for cause in refused.causes]}} if refused.causes else {})


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the play."""


@contextmanager
def fake_kube(fake: FakeKube | None = None) -> Iterator[FakeKube]:
    """A running fake on a free port of loopback; stopped at exit."""
    fake = fake or FakeKube()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": fake}))
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.answers.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
