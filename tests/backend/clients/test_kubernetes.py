"""The client: bounded in time, patient where asked to be, clear where refused, and never telling a token."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from backend.clients.kubernetes import KubeClient, KubeError
from backend.clients.kubernetes_access import Access, AccessError
from tests.services.kube_fake import ADMIN, FakeKube
from tests.services.kube_http import fake_kube
from tests.services.need import need


@pytest.fixture
def fake() -> Iterator[FakeKube]:
    with fake_kube() as running:
        yield running


@contextmanager
def answering(body: bytes, status: int = 200, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that says the same to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            pass

    class Quiet(HTTPServer):
        def handle_error(self, *words: Any) -> None:
            pass

    server = Quiet(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def client(url: str, timeout_s: float = 2.0, **more: Any) -> KubeClient:
    return KubeClient(Access(url, None, lambda: "secret-token"), timeout_s, **more)


# --- refusals -------------------------------------------------------------------------------------------------------


def test_a_server_that_says_later_is_asked_again_after_that_time(fake: FakeKube) -> None:
    slept: list[float] = []
    fake.instead += [(429, {"Retry-After": "1"}), (503, {})]
    found = KubeClient(fake.access(), 10.0, sleep=slept.append).get("/version")
    assert found["gitVersion"] and slept == [1.0, 1.0]


def test_it_is_not_asked_for_ever_nor_longer_than_the_question_may_take(fake: FakeKube) -> None:
    slept: list[float] = []
    fake.instead += [(429, {"Retry-After": "3600"})] * 5
    with pytest.raises(KubeError, match="asks for less") as failed:
        KubeClient(fake.access(), 2.0, sleep=slept.append).get("/version")
    assert failed.value.status == 429 and not failed.value.permanent
    assert len(slept) == 2 and max(slept) <= 2.0


def test_a_write_is_never_sent_twice(fake: FakeKube) -> None:
    fake.instead.append((503, {"Retry-After": "1"}))
    with pytest.raises(KubeError):
        KubeClient(fake.access(), 5.0).create("/api/v1/namespaces", {"metadata": {"name": "a"}})
    assert not fake.calls


@pytest.mark.parametrize(
    ("body", "status", "words", "permanent"),
    [
        (b"<html>login</html>", 200, "Kubernetes API", True),
        (b"[1]", 200, "Kubernetes API", True),
        (b"\xff\xfe", 500, "status 500", False),
        (b"", 502, "no reason given", False),
        (b"gone", 302, "status 302", True),
        (json.dumps({"kind": "Status", "message": "no\nsuch", "reason": "NotFound"}).encode(), 404, "no such", True),
    ],
)
def test_what_is_no_api_server_is_told_in_words(body: bytes, status: int, words: str, permanent: bool) -> None:
    with answering(body, status) as url, pytest.raises(KubeError, match=words) as failed:
        client(url).get("/api/v1/nodes/x")
    assert failed.value.permanent is permanent and "secret-token" not in str(failed.value)


def test_a_list_that_is_none_is_told(fake: FakeKube) -> None:
    with answering(b'{"items": 7}') as url, pytest.raises(KubeError, match="no list"):
        list(client(url).pages("/api/v1/nodes"))


def test_nobody_listening_may_pass() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(KubeError, match=f"127.0.0.1:{port}") as failed:
        client(f"http://127.0.0.1:{port}").get("/version")
    assert not failed.value.permanent


# --- time -----------------------------------------------------------------------------------------------------------


@contextmanager
def dripping(head: bytes) -> Iterator[str]:
    """A server that answers one byte at a time, for ever."""
    stop = threading.Event()

    def serve(listening: socket.socket) -> None:
        taken, _ = listening.accept()
        with taken:
            taken.recv(65_536)
            taken.sendall(head)
            while not stop.wait(0.05):
                try:
                    taken.sendall(b"1\r\n \r\n")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        stop.set()
        thread.join(5)


@pytest.mark.parametrize("watch", [False, True])
def test_a_server_that_drips_is_left_in_time(watch: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    began = time.monotonic()
    with dripping(head) as url, pytest.raises(KubeError, match="in time") as failed:
        asking = client(url, 0.5)
        asking.watch("/api/v1/nodes", "1") if watch else asking.get("/api/v1/nodes/x")
    assert not failed.value.permanent and time.monotonic() - began < 4


def test_a_watch_that_breaks_off_gives_the_whole_lines_it_had() -> None:
    lines = [json.dumps({"type": "ADDED", "object": {"metadata": {"resourceVersion": str(v)}}}) for v in (7, 8)]
    whole = (lines[0] + "\n" + lines[1][:20]).encode()
    with answering(whole) as url:
        seen = client(url).watch("/api/v1/nodes", "1")
    assert [change for change, _ in seen.events] == ["ADDED"] and seen.version == "7"


@pytest.mark.parametrize("line", [b"{", b'{"type":"ADDED"}', b"[]", b'{"type":"ADDED","object":{"metadata":{}}}'])
def test_a_change_that_cannot_be_read_means_list_again(line: bytes) -> None:
    with answering(line + b"\n") as url, pytest.raises(KubeError) as failed:
        client(url).watch("/api/v1/nodes", "1")
    assert failed.value.status == 410 and not failed.value.permanent


# --- who we are -----------------------------------------------------------------------------------------------------


def test_a_token_that_was_renewed_is_used_at_the_next_question(fake: FakeKube) -> None:
    token = "old"
    asking = KubeClient(Access(fake.url, None, lambda: token), 5.0)
    with pytest.raises(KubeError, match="renew"):
        asking.get("/version")
    token = ADMIN
    assert asking.get("/version")


def test_an_access_that_cannot_be_read_is_an_error_of_the_question_and_read_again_at_the_next(fake: FakeKube) -> None:
    found: list[Access] = []

    def find() -> Access:
        if not found:
            raise AccessError("kubeconfig cannot be read")
        return found[0]

    asking = KubeClient(find, 5.0)
    with pytest.raises(KubeError, match="kubeconfig cannot be read") as failed:
        asking.get("/version")
    assert failed.value.permanent and asking.where == "kubernetes"
    found.append(fake.access())
    assert asking.get("/version") and asking.where == fake.url.removeprefix("http://")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    openssl = need("openssl", "openssl")
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=kube", "-keyout"]
    words += [str(folder / "key"), "-out", str(folder / "crt"), "-addext", "subjectAltName=IP:127.0.0.1,DNS:kube"]
    subprocess.run([openssl, *words], check=True, capture_output=True, timeout=60)
    return folder


def test_the_servers_certificate_is_checked_against_the_authority_that_was_given(certificates: Path) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificates / "crt", certificates / "key")
    trusting = ssl.create_default_context(cadata=(certificates / "crt").read_text())
    with answering(b'{"gitVersion": "v1"}', tls=serving) as url:
        assert KubeClient(Access(url, trusting), 5.0).get("/version")["gitVersion"] == "v1"
        assert KubeClient(Access(url, trusting, server_name="kube"), 5.0).get("/version")
        for access in (Access(url, ssl.create_default_context()), Access(url, trusting, server_name="other")):
            with pytest.raises(KubeError, match="certificate-authority") as failed:
                KubeClient(access, 5.0).get("/version")
            assert failed.value.permanent
