"""A real kube-apiserver with etcd on loopback, on free ports, stopped by pid; no kubelet, no controllers."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from backend.clients.kubernetes import KubeClient, KubeError
from backend.clients.kubernetes_access import Access
from tests.services.kube_build import build
from tests.services.kube_fake import ADMIN
from tests.services.need import need

#: Where a built server is kept: the folder that WATCHKEEPER_KUBE names.
FOLDER = "WATCHKEEPER_KUBE"
VIEWER = "viewer-token"


@dataclass(frozen=True)
class RealKube:
    url: str
    authority: str
    process: subprocess.Popen[bytes]

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Inside the block connections are taken, and nobody is answered."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def access(self, token: str = ADMIN) -> Access:
        return Access(self.url, ssl.create_default_context(cadata=self.authority), lambda: token)


@contextmanager
def real_kube() -> Iterator[RealKube]:
    """A running server, built first where that was never done."""
    server = build(Path(os.environ[FOLDER]))
    etcd = need("etcd", "etcd-server")
    folder = Path(tempfile.mkdtemp(prefix="wk-kube-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        store, peers, port = _free_ports(3)
        _start(stack, folder, "etcd", [etcd, *_etcd(folder, store, peers)])
        (folder / "tokens.csv").write_text(f'{ADMIN},admin,1,"system:masters"\n{VIEWER},viewer,2\n')
        key = folder / "account.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True, timeout=60)
        process = _start(stack, folder, "apiserver", [str(server), *_apiserver(folder, store, port, key)])
        certificate = folder / "certs" / "apiserver.crt"
        _wait(folder, "certificate", certificate.exists)
        kube = RealKube(f"https://127.0.0.1:{port}", certificate.read_text(), process)
        _wait(folder, "ready API server", lambda: _ready(kube))
        yield kube


def _etcd(folder: Path, port: int, peers: int) -> list[str]:
    here, there = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
    words = ["--data-dir", f"{folder}/etcd", "--listen-client-urls", here, "--advertise-client-urls", here]
    words += ["--listen-peer-urls", there, "--initial-advertise-peer-urls", there, "--unsafe-no-fsync=true"]
    return [*words, "--initial-cluster", f"default={there}"]


def _apiserver(folder: Path, store: int, port: int, key: Path) -> list[str]:
    words = [f"--etcd-servers=http://127.0.0.1:{store}", f"--secure-port={port}", "--bind-address=127.0.0.1"]
    words += ["--insecure-port=0", "--advertise-address=127.0.0.1", f"--cert-dir={folder}/certs"]
    words += ["--service-cluster-ip-range=10.0.0.0/24", f"--token-auth-file={folder}/tokens.csv"]
    words += ["--authorization-mode=RBAC", f"--service-account-key-file={key}", "--allow-privileged=true"]
    words += [f"--service-account-signing-key-file={key}", "--service-account-issuer=https://127.0.0.1"]
    return [*words, "--disable-admission-plugins=ServiceAccount", "--v=1"]


def _start(stack: ExitStack, folder: Path, name: str, command: list[str]) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def _ready(kube: RealKube) -> bool:
    try:
        KubeClient(kube.access(), 2.0).get("/api/v1/namespaces/default")
    except KubeError:
        return False
    return True


def _wait(folder: Path, what: str, true: object, within_s: float = 90.0) -> None:
    assert callable(true)
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            words = "\n".join(log.read_text()[-1500:] for log in sorted(folder.glob("*.log")))
            raise AssertionError(f"no {what} within {within_s:g} s\n{words}")
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [s.getsockname()[1] for s in taken]
