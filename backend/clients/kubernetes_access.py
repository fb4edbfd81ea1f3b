"""Where a Kubernetes API server is and how we show who we are: a kubeconfig file, or the account of our own pod."""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from backend.clients.kubernetes_json import at, flag, objects, table, text

#: Where Kubernetes puts a pod's own account (documentation: "Accessing the API from a Pod").
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: A credential plugin that takes longer is given up, s; a token is asked for anew this long before it ends, s.
PLUGIN_S, EARLY_S = 30.0, 60.0
Token = Callable[[], str]


class AccessError(Exception):
    """The configuration of an access cannot be used: what, where, how to mend it. Never holds a secret."""


@dataclass(frozen=True, slots=True)
class Access:
    """One API server. ``token`` gives the bearer token of now ("" = none) and may raise AccessError."""

    server: str
    tls: ssl.SSLContext | None
    token: Token = field(repr=False, default=lambda: "")
    server_name: str = ""
    proxy: str = ""
    namespace: str = ""


def find(kubeconfig: Path | None, in_cluster: bool, context: str, environ: Mapping[str, str]) -> Access:
    """The access that settings name; where they name none: our pod's account inside a cluster, else what kubectl would
    take. Raises AccessError."""
    if in_cluster or (kubeconfig is None and "KUBECONFIG" not in environ and "KUBERNETES_SERVICE_HOST" in environ):
        return of_pod(environ)
    if kubeconfig is None:
        first = next((part for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part), "")
        kubeconfig = Path(first) if first else Path(environ.get("HOME", "/")) / ".kube" / "config"
    return of_kubeconfig(kubeconfig, context, environ)


def of_pod(environ: Mapping[str, str], folder: Path = ACCOUNT) -> Access:
    """The account of the pod that we run in. Its token is read again at each use, because the kubelet renews it."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        fix = "Set kubeconfig instead, or run Watchkeeper as a pod."
        raise AccessError(f"in_cluster is set, but KUBERNETES_SERVICE_HOST is not: this is no pod. {fix}")
    authority = _contents(folder / "ca.crt", "automountServiceAccountToken must not be false in the pod").decode()
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace = folder / "namespace"
    own = namespace.read_text().strip() if namespace.exists() else ""
    return Access(server, _context(authority, str(folder / "ca.crt")), _from_file(folder / "token"), namespace=own)


def of_kubeconfig(file: Path, context: str = "", environ: Mapping[str, str] | None = None) -> Access:
    """The cluster and user of one context ("" = the file's current one). Paths in it are relative to it."""
    document = _document(file)
    name = context or text(document, "current-context")
    if not name:
        raise AccessError(f"{file}: no current-context; set context to one of: {_names(document, 'contexts')}")
    chosen = _entry(document, "contexts", "context", name, file)
    cluster = _entry(document, "clusters", "cluster", text(chosen, "cluster"), file)
    user = _entry(document, "users", "user", text(chosen, "user"), file) if chosen.get("user") else {}
    server = text(cluster, "server").rstrip("/")
    if urlsplit(server).scheme not in ("http", "https") or not urlsplit(server).hostname:
        raise AccessError(f"{file}: the server of cluster {text(chosen, 'cluster')!r} is no http(s) address")
    if "auth-provider" in user:
        fix = "Use an exec plugin, a token or a client certificate."
        raise AccessError(f"{file}: auth-provider is gone from Kubernetes since 1.26 and not supported. {fix}")
    token, certificate = _identity(user, file, environ or {})
    return Access(
        server,
        _tls(cluster, certificate, file) if server.startswith("https") else None,
        token,
        text(cluster, "tls-server-name"),
        text(cluster, "proxy-url") or _proxy(server, environ or {}),
        text(chosen, "namespace"),
    )


def _proxy(server: str, environ: Mapping[str, str]) -> str:
    """The proxy that the environment names for this server, as kubectl would take it."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    named = {key.lower(): said for key, said in environ.items()}
    for exempt in filter(None, (part.strip() for part in named.get("no_proxy", "").split(","))):
        if (
            exempt == "*"
            or host == exempt.lstrip(".")
            or host.endswith("." + exempt.lstrip("."))
            or _inside(host, exempt)
        ):
            return ""
    return named.get(f"{parts.scheme}_proxy", "")


def _inside(host: str, network: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False


def _document(file: Path) -> Mapping[str, Any]:
    import yaml

    try:
        document = yaml.safe_load(_contents(file, "set kubeconfig to a file, or in_cluster = true"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as bad:
        raise AccessError(f"{file}: no YAML ({str(bad).splitlines()[0][:100]})") from None
    if not isinstance(document, Mapping):
        raise AccessError(f"{file}: no kubeconfig, whose top is a mapping with clusters, users and contexts")
    return document


def _contents(file: Path, fix: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as bad:
        raise AccessError(f"{file} cannot be read: {bad.strerror}; {fix}") from None


def _names(document: Mapping[str, Any], kind: str) -> str:
    return ", ".join(text(one, "name") for one in objects(document, kind)) or "(it has none)"


def _entry(document: Mapping[str, Any], many: str, one: str, name: str, file: Path) -> Mapping[str, Any]:
    for entry in objects(document, many):
        if text(entry, "name") == name:
            return table(entry, one)
    raise AccessError(f"{file}: no {one} {name!r}; it has {_names(document, many)}")


def _bytes_of(holder: Mapping[str, Any], key: str, file: Path) -> bytes:
    """What a kubeconfig holds as ``key-data`` (base64) or in the file that ``key`` names; b"" where neither."""
    inline, path = text(holder, f"{key}-data"), text(holder, key)
    if inline:
        try:
            return base64.b64decode(inline, validate=True)
        except (binascii.Error, ValueError):
            raise AccessError(f"{file}: {key}-data is no base64") from None
    return _contents(file.parent / path, f"named as {key} in {file}") if path else b""


# --- TLS ------------------------------------------------------------------------------------------------------------

Certificate = tuple[bytes, bytes]


def _tls(cluster: Mapping[str, Any], certificate: Certificate, file: Path) -> ssl.SSLContext:
    authority = _bytes_of(cluster, "certificate-authority", file).decode(errors="replace")
    context = _context(authority, str(file))
    if flag(cluster, "insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate[0]:
        _own_certificate(context, certificate, file)
    return context


def _context(authority: str, where: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=authority or None)
    except (ssl.SSLError, ValueError) as bad:
        raise AccessError(f"{where}: the certificate authority is no PEM certificate ({bad})") from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # authorities of clusters often lack what Python 3.13 asks for
    return context


def _own_certificate(context: ssl.SSLContext, certificate: Certificate, file: Path) -> None:
    """Python takes a client's certificate only from a file: one that exists for this moment, for nobody else."""
    with tempfile.NamedTemporaryFile() as held:
        held.write(b"\n".join(certificate))
        held.flush()
        try:
            context.load_cert_chain(held.name, password=lambda: "")
        except (ssl.SSLError, OSError) as bad:
            raise AccessError(f"{file}: the client certificate and its key cannot be used ({bad})") from None


# --- tokens ---------------------------------------------------------------------------------------------------------


def _identity(user: Mapping[str, Any], file: Path, environ: Mapping[str, str]) -> tuple[Token, Certificate]:
    certificate = (_bytes_of(user, "client-certificate", file), _bytes_of(user, "client-key", file))
    if bool(certificate[0]) != bool(certificate[1]):
        raise AccessError(f"{file}: a client certificate needs both client-certificate and client-key")
    if path := text(user, "tokenFile"):
        return _from_file(file.parent / path), certificate
    if held := text(user, "token"):
        return lambda: held, certificate
    if text(user, "username"):
        raise AccessError(f"{file}: username and password are gone from Kubernetes since 1.19. Use a token.")
    if command := table(user, "exec"):
        plugin = _Plugin(command, file, environ)
        return plugin, (certificate if certificate[0] else plugin.certificate())
    return (lambda: ""), certificate


def _from_file(file: Path) -> Token:
    """Read at each use: tokens are renewed in place."""

    def token() -> str:
        found = _contents(file, "it holds the bearer token").decode(errors="replace").strip()
        if not found or not found.isascii() or not found.isprintable():
            raise AccessError(f"{file} holds no bearer token")
        return found

    return token


class _Plugin:
    """A credential plugin (client.authentication.k8s.io): a command that prints an ExecCredential."""

    def __init__(self, command: Mapping[str, Any], file: Path, environ: Mapping[str, str]) -> None:
        program = text(command, "command")
        if not program:
            raise AccessError(f"{file}: exec without a command")
        self._where = f"{file}: the credential plugin {program!r}"
        self._fix = text(command, "installHint")[:200] or "Run it by hand as this account."
        beside = "/" in program and not program.startswith("/")  # a path is relative to the file, a bare name is not
        words = command.get("args") or []
        self._command = [str(file.parent / program) if beside else program, *(str(word) for word in words)]
        version = text(command, "apiVersion") or "client.authentication.k8s.io/v1"
        said = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        more = {text(one, "name"): text(one, "value") for one in objects(command, "env") if text(one, "name")}
        self._environ = {**environ, **more, "KUBERNETES_EXEC_INFO": json.dumps(said)}
        self._token, self._until = "", 0.0

    def __call__(self) -> str:
        if time.time() < self._until:
            return self._token
        status = self._ask()
        self._token = text(status, "token")
        self._until = (at(status, "expirationTimestamp") or time.time() + 5 * EARLY_S) - EARLY_S
        return self._token

    def certificate(self) -> Certificate:
        """A client certificate, where the plugin gives that in place of a token; it is asked for once."""
        status = self._ask()
        self._token = text(status, "token")
        self._until = (at(status, "expirationTimestamp") or time.time() + 5 * EARLY_S) - EARLY_S
        return text(status, "clientCertificateData").encode(), text(status, "clientKeyData").encode()

    def _ask(self) -> Mapping[str, Any]:
        try:
            ran = subprocess.run(
                self._command, env=self._environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=PLUGIN_S
            )
        except subprocess.TimeoutExpired:
            raise AccessError(f"{self._where} gave no answer within {PLUGIN_S:g} s. {self._fix}") from None
        except OSError as bad:
            raise AccessError(f"{self._where} cannot be run: {bad.strerror}. {self._fix}") from None
        if ran.returncode != 0:
            words = " ".join(ran.stderr.decode(errors="replace").split())[:200]
            raise AccessError(f"{self._where} ended with {ran.returncode}: {words}. {self._fix}")
        try:
            status = table(json.loads(ran.stdout), "status")
        except (ValueError, RecursionError):
            status = {}
        if not status:
            raise AccessError(f"{self._where} printed no ExecCredential with a status. {self._fix}")
        return status
