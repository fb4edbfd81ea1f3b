"""One HTTP request to slurmrestd, over TCP, TLS or a unix socket, bounded in time and size; tokens that are renewed."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

#: Most bytes of one answer; a job of v0.0.43 takes some 20 kB.
MOST_BYTES = 536_870_912
#: A token is renewed this long before it ends, in s.
EARLY_S = 60.0
#: How long a token that we ask for ourselves holds, in s.
LIFESPAN_S = 3600


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of one request."""

    status: int
    body: bytes


#: (method, url, headers, body, timeout in s) -> Answer; raises TimeoutError, OSError.
Send = Callable[[str, str, Mapping[str, str], bytes, float], Answer]


class _UnixConnection(HTTPConnection):
    """HTTP over a unix socket; the host is the path."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.host)


def send_bounded(method: str, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> Answer:
    """``http://host:6820/path``, ``https://...``, or ``unix:/run/slurmrestd.socket:/path``."""
    connection, path = _connection(url, timeout_s)
    try:
        connection.request(method, path, body or None, dict(headers))
        response = connection.getresponse()
        content = response.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise OSError(f"it answered with more than {MOST_BYTES:,} bytes")
        return Answer(response.status, content)
    except HTTPException as bad:
        raise OSError(f"{type(bad).__name__}: {bad}") from bad
    finally:
        connection.close()


def _connection(url: str, timeout_s: float) -> tuple[HTTPConnection, str]:
    if url.startswith("unix:"):
        place, _, path = url.removeprefix("unix:").partition(":")
        return _UnixConnection(place, timeout=timeout_s), path
    parts = urlsplit(url)
    made = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return made(parts.hostname or "", parts.port, timeout=timeout_s), path


def expires_at(token: str) -> float | None:
    """When a JWT ends (unix s); None where it does not say."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError):
        return None


class Tokens:
    """The token that requests carry: of a file, read again for each request, since whoever renews it replaces the file;
    else, and where the file's has ended, one that ``make`` gives (``scontrol token``). ``now``: unix s."""

    def __init__(self, file: Path | None, make: Callable[[int], str] | None, now: Callable[[], float]) -> None:
        self._file = file
        self._make = make
        self.now = now
        self._made = ""
        self._refused = ""

    def current(self) -> str:
        """The token to use now; "" where there is none (a unix socket needs none). Raises OSError for the file."""
        kept = self._file.read_text(encoding="ascii", errors="replace").strip() if self._file is not None else ""
        kept = kept.removeprefix("SLURM_JWT=")
        if kept and kept != self._refused and not self._over(kept):
            return kept
        if self._made and not self._over(self._made):
            return self._made
        if self._make is not None and (self._file is not None or self._made or self._refused):
            return self.renewed()
        return kept

    def renewed(self) -> str:
        """A new one of our own making; "" where we may not make any."""
        self._made = self._make(LIFESPAN_S) if self._make is not None else ""
        return self._made

    def refuse(self, token: str) -> bool:
        """slurmrestd took this token for none. Whether there is, or may be made, another."""
        self._refused = token
        self._made = "" if token == self._made else self._made
        return self._make is not None or bool(self._made) or (self._file is not None and self.current() != token)

    def _over(self, token: str) -> bool:
        end = expires_at(token)
        return end is not None and end <= self.now() + EARLY_S
