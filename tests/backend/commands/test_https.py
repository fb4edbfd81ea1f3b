"""A server with a certificate speaks https, and with authorities of clients lets nobody else in."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from backend.settings import SettingsError, load
from tests.proof.site import ROOT, free_port

WITHIN_S = 60.0


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of this address that vouches for itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "watchkeeper test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    written = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(written)
    return folder / "cert.pem", folder / "key.pem"


@contextmanager
def serving(folder: Path, section: str) -> Iterator[str]:
    """A server on loopback with this [server] section; its address without the scheme."""
    port = free_port()
    config = folder / "watchkeeper.toml"
    config.write_text(f"[server]\nport = {port}\n{section}\n[store]\nfolder = '{folder / 'store'}'\n")
    config.chmod(0o600)
    command = [sys.executable, "-m", "backend.cli", "serve", "--config", str(config)]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


def answered(url: str, **how: object) -> int:
    """The status of /healthz, once the server listens."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            return requests.get(f"{url}/healthz", timeout=5, **how).status_code  # type: ignore[arg-type]
        except requests.exceptions.SSLError:
            raise
        except requests.ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def test_https_is_spoken_and_only_to_clients_with_a_certificate(signed: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = signed
    section = f"tls_cert = '{cert}'\ntls_key = '{key}'\ntls_client_ca = '{cert}'"
    with serving(tmp_path, section) as address:
        assert answered(f"https://{address}", verify=str(cert), cert=(str(cert), str(key))) == 200
        with pytest.raises(requests.ConnectionError):  # refused in the handshake, or right behind it
            requests.get(f"https://{address}/healthz", timeout=5, verify=str(cert))
        with pytest.raises(requests.ConnectionError):
            requests.get(f"http://{address}/healthz", timeout=5)


@pytest.mark.parametrize("line", ["tls_key = 'key.pem'", "tls_client_ca = 'ca.pem'"])
def test_a_key_without_its_certificate_stops_the_start(line: str, tmp_path: Path) -> None:
    config = tmp_path / "watchkeeper.toml"
    config.write_text(f"[server]\n{line}\n")
    config.chmod(0o600)
    with pytest.raises(SettingsError, match="need tls_cert"):
        load(config, {})
