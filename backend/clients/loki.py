"""Reads log lines from Loki: one page of query_range at a time, bounded in time and size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import orjson
import requests

#: Longest answer that is read: 5,000 lines of a kernel log take some 2 MB.
MAX_ANSWER_BYTES = 67_108_864
#: Longest part of an error text that is shown.
KEPT_CHARS = 300
#: What the server asks to wait at most, in seconds; more is taken as this.
MOST_WAIT_S = 300.0


class LokiError(Exception):
    """Loki gave no usable answer. ``status``: of HTTP, 0 where there was none; ``retry_after_s``: when it may be asked
    again, 0 = it did not say. ``permanent``: asking again without a person is useless. Never holds a password."""

    def __init__(self, message: str, *, permanent: bool = False, status: int = 0, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.permanent, self.status, self.retry_after_s = permanent, status, retry_after_s


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: nanoseconds since 1970, the labels of its stream with what else is known of it, the text."""

    ns: int
    labels: Mapping[str, str]
    line: str


class LokiReader:
    """One Loki. ``tenant`` goes into X-Scope-OrgID; ``headers`` hold what signs us in. ``session`` is for tests, which
    may mount a transport of their own on it."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        tenant: str = "",
        timeout_s: float = 10.0,
        session: requests.Session | None = None,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        base = url.rstrip("/").removesuffix("/loki/api/v1")
        self.where = _without_password(base)
        self._url = f"{base}/loki/api/v1/query_range"
        self._headers = {"Accept": "application/json", **(headers or {})} | (
            {"X-Scope-OrgID": tenant} if tenant else {}
        )
        self._timeout_s, self._max_bytes = timeout_s, max_bytes
        self._session = session or requests.Session()

    def query_range(self, query: str, start_ns: int, end_ns: int, limit: int) -> tuple[Entry, ...]:
        """The oldest ``limit`` lines of ``query`` in [start_ns, end_ns), oldest first. Raises LokiError."""
        params = {"query": query, "start": str(start_ns), "end": str(end_ns), "limit": str(limit)}
        body = self._ask({**params, "direction": "forward"})
        try:
            found = orjson.loads(body)
            if found["status"] != "success" or found["data"]["resultType"] != "streams":
                raise self._no("the answer holds no lines: is the query one of logs, not of a metric?", permanent=True)
            entries = [entry for stream in found["data"]["result"] for entry in _entries(stream)]
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise self._no("the answer is not Loki's: check the url", permanent=True) from error
        return tuple(sorted(entries, key=lambda one: one.ns))

    def _ask(self, params: Mapping[str, str]) -> bytes:
        until = monotonic() + self._timeout_s
        try:
            with self._session.get(
                self._url, params=params, headers=self._headers, timeout=self._timeout_s, stream=True
            ) as answer:
                body = b"".join(self._bounded(answer, until))
        except requests.RequestException as error:
            raise self._no(f"does not answer: {type(error).__name__}") from error
        if answer.status_code != 200:
            raise self._refused(answer, body)
        return body

    def _bounded(self, answer: requests.Response, until: float) -> Iterator[bytes]:
        size = 0
        for part in answer.iter_content(65_536):
            size += len(part)
            if size > self._max_bytes:
                raise self._no(f"the answer is longer than {self._max_bytes:,} bytes")
            if monotonic() > until:
                raise self._no(f"no whole answer within {self._timeout_s:g} s")
            yield part

    def _refused(self, answer: requests.Response, body: bytes) -> LokiError:
        """What the server said, in one line."""
        status = answer.status_code
        said = " ".join(body[: 4 * KEPT_CHARS].decode(errors="replace").split())[:KEPT_CHARS]
        if status == 429:
            wait_s = _seconds(answer.headers.get("Retry-After", ""))
            return self._no(f"asks us to wait (429): {said}", status=status, retry_after_s=wait_s)
        fix = {401: "check loki_headers", 403: "check loki_headers and loki_tenant", 404: "check loki_url"}.get(
            status, ""
        )
        return self._no(f"{status}: {said or fix or 'refused'}", permanent=400 <= status < 500, status=status)

    def _no(self, what: str, *, permanent: bool = False, status: int = 0, retry_after_s: float = 0.0) -> LokiError:
        text = f"{self.where}: {what}"
        return LokiError(text, permanent=permanent, status=status, retry_after_s=retry_after_s)


def _entries(stream: Mapping[str, Any]) -> Iterator[Entry]:
    labels = {str(name): str(value) for name, value in stream["stream"].items()}
    values: Sequence[Any] = stream["values"]
    for value in values:
        more = value[2] if len(value) > 2 and isinstance(value[2], dict) else {}
        extra = {str(k): str(v) for part in (more, more.get("structuredMetadata", {})) if isinstance(part, dict)
                 for k, v in part.items() if isinstance(v, str)}  # fmt: skip
        yield Entry(int(value[0]), {**extra, **labels} if extra else labels, str(value[1]))


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.0), MOST_WAIT_S)
    except ValueError:
        return 0.0


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
