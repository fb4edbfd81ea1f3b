"""HTTP to a Kubernetes API server: read, list in pages, watch, patch, evict. The only file that knows how.

Plain REST over urllib3 in place of the official client, which takes over a second and some 20 MB to import, needs five
more packages on a machine without internet, and whose time-outs let a server that drips hold a loop for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import orjson
import urllib3
from urllib3.exceptions import HTTPError, SSLError
from urllib3.exceptions import TimeoutError as Slow
from urllib3.util import Timeout

from backend.clients.kubernetes_access import Access, AccessError
from backend.clients.kubernetes_json import objects, table, text, whole

#: How we sign what we write: shown in managedFields, so that everybody can tell who set what.
MANAGER = "watchkeeper"
#: Objects of one page of a list, and the longest body that is read.
PAGE, MAX_BYTES = 500, 268_435_456
#: A server that says "later" is asked again this often at most, within the time that the question has.
TRIES = 3
#: Merge patches: RFC 7386.
MERGE = "application/merge-patch+json"


class KubeError(Exception):
    """The API server gave no usable answer: where, what it said, how to mend it. Never holds a token.

    ``status`` is the HTTP status, 0 where there was none; ``reason`` the word of its Status object. ``permanent``:
    asking again without a person is useless.
    """

    def __init__(self, message: str, *, permanent: bool = False, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.permanent = permanent
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Watched:
    """What a watch brought: (ADDED, MODIFIED or DELETED; the object) in order, and the version to go on from."""

    events: tuple[tuple[str, Mapping[str, Any]], ...]
    version: str


class KubeClient:
    """One API server. Every call ends after ``timeout_s`` and a little; safe to use from several threads.

    ``access``: where it is, or what finds that at the first use.
    """

    def __init__(
        self,
        access: Access | Callable[[], Access],
        timeout_s: float = 10.0,
        http: urllib3.PoolManager | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._find: Callable[[], Access] = (lambda: access) if isinstance(access, Access) else access
        self._timeout_s = timeout_s
        self._given = http
        self._sleep = sleep
        self._lock = threading.Lock()
        self._found: tuple[Access, urllib3.PoolManager] | None = None

    @property
    def where(self) -> str:
        """The server's host and port, once its configuration was read."""
        return urlsplit(self._found[0].server).netloc.rpartition("@")[2] if self._found else "kubernetes"

    def _reach(self) -> tuple[Access, urllib3.PoolManager]:
        """Raises AccessError."""
        with self._lock:
            if self._found is None:
                access = self._find()
                self._found = (access, self._given or pool_of(access))
            return self._found

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """One object. Raises KubeError."""
        return self._ask("GET", path, params)

    def pages(self, path: str, params: Mapping[str, str] | None = None) -> Iterator[tuple[list[Any], str]]:
        """A list, page by page: its items and the version that a watch goes on from. Raises KubeError, with status 410
        where the list took so long that the server forgot its beginning: begin again."""
        asked = {**(params or {}), "limit": str(PAGE)}
        while True:
            page = self._ask("GET", path, asked)
            items = page.get("items")
            if not isinstance(items, list) and items is not None:  # Go writes an empty list as null
                raise self._error(f"{path}: the answer is no list. Is server the address of a Kubernetes API?", True)
            yield items or [], text(page, "metadata", "resourceVersion")
            if not (more := text(page, "metadata", "continue")):
                return
            asked["continue"] = more

    def watch(self, path: str, version: str, params: Mapping[str, str] | None = None, for_s: int = 1) -> Watched:
        """What changed since ``version``, listened to for ``for_s`` seconds. Raises KubeError, with status 410 where
        the server no longer knows that version, or a change could not be read: list again."""
        asked = {**(params or {}), "watch": "1", "allowWatchBookmarks": "true"}
        asked |= {"resourceVersion": version, "timeoutSeconds": str(for_s)}
        deadline = time.monotonic() + for_s + self._timeout_s
        found: list[tuple[str, Mapping[str, Any]]] = []
        with self._open("GET", path, asked, None, "", self._timeout_s + for_s) as response:
            if response.status != 200:
                raise self._refused(path, response.status, self._body(response, path, deadline))
            for line in self._lines(response, path, deadline):
                kind, changed = self._change(line, path)
                version = text(changed, "metadata", "resourceVersion") or version
                if kind in ("ADDED", "MODIFIED", "DELETED"):
                    found.append((kind, changed))
        return Watched(tuple(found), version)

    def log(self, path: str, params: Mapping[str, str], most_bytes: int) -> bytes:
        """The beginning of a text, as the log of a pod is one. Raises KubeError."""
        deadline = time.monotonic() + self._timeout_s
        with self._open("GET", path, params, None, "", self._timeout_s) as response:
            printed = self._body(response, path, deadline)
        if response.status != 200:
            raise self._refused(path, response.status, printed)
        return printed[:most_bytes]

    def patch(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A merge patch, signed as ours. With ``metadata.resourceVersion`` in it the server refuses (409, Conflict)
        where anybody changed the object since. Raises KubeError."""
        return self._ask("PATCH", path, {"fieldManager": MANAGER}, body, MERGE)

    def create(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """POST of an object, or of a subresource (an eviction, an access review). Raises KubeError."""
        return self._ask("POST", path, {}, body)

    # --- one request ------------------------------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        kind: str = "",
    ) -> Mapping[str, Any]:
        deadline = time.monotonic() + self._timeout_s
        for left in reversed(range(TRIES)):
            with self._open(method, path, params or {}, body, kind, max(0.05, deadline - time.monotonic())) as response:
                answer = self._body(response, path, deadline)
                later_s = _later_s(response)
            pause = min(later_s, deadline - time.monotonic())
            if left and method == "GET" and response.status in (429, 503) and pause > 0:
                self._sleep(pause)
                continue
            if not 200 <= response.status < 300:
                raise self._refused(path, response.status, answer)
            document = _parsed(answer)
            if not isinstance(document, Mapping):
                raise self._error(f"{path}: no JSON object. Is server the address of a Kubernetes API?", True)
            return document
        raise AssertionError("the last try returns or raises")

    def _open(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: Mapping[str, Any] | None,
        kind: str,
        timeout_s: float,
    ) -> urllib3.BaseHTTPResponse:
        """Sends a request; the answer's head is read, its body not. Closing it gives the connection back or ends it."""
        try:
            access, http = self._reach()
            url = f"{access.server}{quote(path, safe='/:')}" + (f"?{urlencode(params)}" if params else "")
            headers = {"Accept": "application/json", "User-Agent": MANAGER}
            if token := access.token():
                headers["Authorization"] = f"Bearer {token}"
            if body is not None:
                headers["Content-Type"] = kind or "application/json"
            limits = Timeout(connect=min(timeout_s, self._timeout_s), read=timeout_s)
            sent = None if body is None else orjson.dumps(body)
            return http.request(
                method,
                url,
                body=sent,
                headers=headers,
                timeout=limits,
                preload_content=False,
                redirect=False,
                retries=False,
            )
        except AccessError as bad:
            raise KubeError(f"{self.where}: {bad}", permanent=True) from None
        except (HTTPError, OSError) as bad:
            raise self._silent(bad) from None

    def _chunks(self, response: urllib3.BaseHTTPResponse, path: str, deadline: float) -> Iterator[bytes]:
        size = 0
        while True:
            try:
                chunk = response.read1(1_048_576, decode_content=True)
            except (HTTPError, OSError) as bad:
                raise self._silent(bad) from None
            if not chunk:
                return
            size += len(chunk)
            if size > MAX_BYTES:
                raise self._error(f"{path}: the answer is over {MAX_BYTES} bytes", permanent=True)
            if time.monotonic() > deadline:  # a server that drips one byte a second defeats every socket time-out
                raise self._error(f"{path}: no whole answer in time; {_SLOW}")
            yield chunk

    def _body(self, response: urllib3.BaseHTTPResponse, path: str, deadline: float) -> bytes:
        return b"".join(self._chunks(response, path, deadline))

    # --- a watch ----------------------------------------------------------------------------------------------------

    def _lines(self, response: urllib3.BaseHTTPResponse, path: str, deadline: float) -> Iterator[bytes]:
        """Whole lines; what a stream that broke off left of its last one is told again by the next watch."""
        rest = b""
        for chunk in self._chunks(response, path, deadline):
            *whole_lines, rest = (rest + chunk).split(b"\n")
            yield from (line for line in whole_lines if line.strip())

    def _change(self, line: bytes, path: str) -> tuple[str, Mapping[str, Any]]:
        document = _parsed(line)
        kind, changed = text(document, "type"), table(document, "object")
        if kind == "ERROR":
            status = whole(changed, "code") or 0
            raise self._refused(path, status if status >= 400 else 410, orjson.dumps(changed))
        if not kind or not text(changed, "metadata", "resourceVersion"):
            raise self._error(f"{path}: a change in the watch cannot be read; the list is read again", status=410)
        return kind, changed

    # --- errors -----------------------------------------------------------------------------------------------------

    def _error(self, words: str, permanent: bool = False, status: int = 0, reason: str = "") -> KubeError:
        return KubeError(f"{self.where}: {words}", permanent=permanent, status=status, reason=reason)

    def _refused(self, path: str, status: int, answer: bytes) -> KubeError:
        """What a Status object says, with what mends it."""
        said = _parsed(answer)
        words = text(said, "message") or answer[:200].decode(errors="replace").strip() or "no reason given"
        causes = "; ".join(text(cause, "message") for cause in objects(said, "details", "causes"))
        if status == 429 and causes:
            words = f"{words} {causes}"
        fix = _FIXES.get(status, "")
        permanent = 400 <= status < 500 and status not in (408, 409, 410, 425, 429) or 300 <= status < 400
        told = f"{path}: status {status}, {' '.join(words.split())[:400]}" + (f". {fix}" if fix else "")
        return self._error(told, permanent, status, text(said, "reason"))

    def _silent(self, bad: Exception) -> KubeError:
        inner: BaseException = bad
        while (cause := inner.__cause__ or inner.__context__) is not None and not isinstance(inner, Slow):
            inner = cause
        if isinstance(bad, SSLError) or "certificate" in str(inner).lower():
            fix = "Check certificate-authority, tls-server-name and the client certificate of the kubeconfig."
            return self._error(f"TLS failed ({str(inner)[:200]}). {fix}", permanent=True)
        if isinstance(inner, Slow):
            return self._error(f"no answer within {self._timeout_s:g} s; {_SLOW}")
        return self._error(f"{type(inner).__name__} ({str(inner)[:200]}). Check that the API server may be reached.")


_SLOW = "raise timeout_s, or look at the server's load"
_FIXES: Mapping[int, str] = {
    401: "The server does not know us: renew the token, client certificate or plugin of the kubeconfig.",
    403: "Give this account the rights that `watchkeeper kubernetes-manifest` prints.",
    429: "The server asks for less: raise interval_s.",
}


def pool_of(access: Access) -> urllib3.PoolManager:
    """Connections to this server: verified as the access says, through its proxy where it names one."""
    options: dict[str, Any] = {"maxsize": 16, "block": False}
    if access.tls is not None:
        options["ssl_context"] = access.tls
    if access.server_name:
        options["server_hostname"] = options["assert_hostname"] = access.server_name
    if access.proxy:
        return urllib3.ProxyManager(access.proxy, **options)
    return urllib3.PoolManager(**options)


def _later_s(response: urllib3.BaseHTTPResponse) -> float:
    """What Retry-After asks for, in seconds; 1 where it is not said or is a date."""
    said = response.headers.get("Retry-After", "")
    return float(said) if said.isascii() and said.isdigit() and len(said) < 6 else 1.0


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
