"""Reads raw samples from Prometheus; the only file that knows prometheus-api-client."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import orjson
import requests
from numpy.typing import NDArray
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.exceptions import HTTPError

#: Longest answer that is read: 100,000 GPUs x 20 metrics at some 100 bytes a sample, twice over.
MAX_ANSWER_BYTES = 402_653_184
#: What requests says of a url that is none.
NO_URL = (requests.exceptions.MissingSchema, requests.exceptions.InvalidSchema, requests.exceptions.InvalidURL)
#: Time on top of ``timeout_s`` after which a query is given up even if it never failed.
GRACE_S = 0.5


class PromError(Exception):
    """Prometheus gave no usable answer: where, what it said, how to mend it. Never holds a password.

    ``status`` is the HTTP status, 0 where there was none. ``permanent``: asking again without a person is useless.
    """

    def __init__(self, message: str, *, permanent: bool = False, status: int = 0) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.status = status


@dataclass(frozen=True, slots=True, eq=False)
class RawSeries:
    """One series as stored: labels with ``__name__``, times (unix s, float64[k]) and values (float64[k], NaN and
    infinities as they came)."""

    labels: Mapping[str, str]
    times: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Series of one query. ``rejected`` counts what could not be read, by reason; ``partial`` holds the warnings of a
    server that says it could not reach all of its stores."""

    series: tuple[RawSeries, ...]
    rejected: Mapping[str, int] = field(default_factory=dict)
    partial: tuple[str, ...] = ()


class PrometheusReader:
    """Raw samples of one Prometheus (or VictoriaMetrics, Thanos, Mimir). One query at a time; bounded in time.

    ``session`` is for tests, which may mount a transport of their own on it.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        session: requests.Session | None = None,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self.where = without_password(url)
        self._timeout_s = timeout_s
        self._session = _Bounded(self.where, timeout_s, max_bytes, session or requests.Session())
        self._connect = PrometheusConnect(
            url=url.rstrip("/"),
            headers={"Accept-Encoding": "identity", **(headers or {})},
            session=self._session,
            timeout=timeout_s,
        )
        self._running: threading.Thread | None = None

    def query_range_raw(self, selector: str, start: float, end: float) -> Answer:
        """All samples of ``selector`` in (start, end], unix s, with their own timestamps.

        Asks a range vector at one instant: no step, so nothing is resampled. Raises PromError after at most
        ``timeout_s`` and half a second.
        """
        if not (math.isfinite(start) and math.isfinite(end) and end > start):
            raise ValueError(f"cannot read from {start} to {end}")
        span_ms = max(1, round((end - start) * 1000))
        params = {"time": f"{end:.3f}", "timeout": f"{self._timeout_s:g}s"}
        result = self._within(f"{selector}[{span_ms}ms]", params)
        if not isinstance(result, list):
            raise PromError(f"{self.where}: no list of series in the answer. {_NOT_PROMETHEUS}", permanent=True)
        series, rejected = _series(result, start)
        if result and not series and rejected["malformed series"] == len(result):
            raise PromError(f"{self.where}: the answer holds no range vector. {_NOT_PROMETHEUS}", permanent=True)
        return Answer(series, rejected, self._session.warnings)

    def query(self, text: str) -> tuple[tuple[Mapping[str, str], float], ...]:
        """Labels and value of each series of an instant vector, at the server's own time. Raises PromError as above."""
        result = self._within(text, {"timeout": f"{self._timeout_s:g}s"})
        if not isinstance(result, list):
            raise PromError(f"{self.where}: no list of series in the answer. {_NOT_PROMETHEUS}", permanent=True)
        found = [_instant(one) for one in result]
        if None in found:
            raise PromError(f"{self.where}: the answer holds no instant vector. {_NOT_PROMETHEUS}", permanent=True)
        return tuple(one for one in found if one is not None)

    @property
    def ahead_s(self) -> float | None:
        """How far the server's clock was ahead of ours at its last answer, to a second; None where it did not say."""
        return self._session.ahead_s

    def _within(self, query: str, params: dict[str, str]) -> Any:
        """The query in a thread of its own: a server that drips one byte a second defeats every socket time-out."""
        if self._running is not None and self._running.is_alive():
            raise PromError(f"{self.where}: an earlier query still hangs. Look at the server's load.")
        outcome: list[Any] = []
        self._running = threading.Thread(target=self._ask, args=(query, params, outcome), daemon=True)
        self._running.start()
        self._running.join(self._timeout_s + GRACE_S)
        if not outcome:
            raise PromError(f"{self.where}: {_too_slow(self._timeout_s)}")
        if isinstance(outcome[0], PromError):
            raise outcome[0]
        return outcome[0]

    def _ask(self, query: str, params: dict[str, str], outcome: list[Any]) -> None:
        try:
            outcome.append(self._connect.custom_query(query, params))
        except PromError as error:
            outcome.append(error)
        except requests.Timeout:
            outcome.append(PromError(f"{self.where}: {_too_slow(self._timeout_s)}"))
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            permanent = isinstance(error, NO_URL)
            fix = "Check the url, that Prometheus runs, and that this host may reach it."
            fix = "Write url as http://host:9090." if permanent else fix
            outcome.append(PromError(f"{self.where}: {_said(error)}. {fix}", permanent=permanent))
        except (PrometheusApiClientException, LookupError, TypeError) as error:
            what = f"{self.where}: the answer is no query result ({type(error).__name__})"
            outcome.append(PromError(f"{what}. {_NOT_PROMETHEUS}", permanent=True))


_NOT_PROMETHEUS = "Is the url the base of a Prometheus API, without a login page before it?"


def without_password(url: str) -> str:
    """The url for people: no user, password, query or fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def _too_slow(timeout_s: float) -> str:
    return f"no whole answer within {timeout_s:g} s. Raise timeout_s, or look at the server's load."


def _said(error: Exception) -> str:
    """What went wrong in a few words: the cause inside, without the request's url and its query."""
    inner: BaseException = error
    while (cause := inner.__cause__ or inner.__context__) is not None:
        inner = cause
    return f"{type(error).__name__} ({str(inner)[:200] or type(inner).__name__})"


class _Bounded(requests.Session):
    """A session whose answers are read whole: up to a size, before a deadline, as JSON of a query that succeeded."""

    def __init__(self, where: str, timeout_s: float, max_bytes: int, carrier: requests.Session) -> None:
        super().__init__()
        self.where = where
        self.warnings: tuple[str, ...] = ()
        self.ahead_s: float | None = None
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._carrier = carrier

    def mount(self, prefix: str | bytes, adapter: Any) -> None:
        """Nothing: the transports are the carrier's, which never retries by itself."""

    def request(self, method: str | bytes, url: str | bytes, *rest: Any, **named: Any) -> requests.Response:
        """One answer with status 200 and status "success" inside; anything else raises PromError."""
        deadline = time.monotonic() + self._timeout_s
        self.warnings = ()
        named |= {"stream": True, "allow_redirects": False}
        with self._carrier.request(method, url, *rest, **named) as response:
            self.ahead_s = _ahead_s(response.headers.get("Date", ""))
            body = self._body(response, deadline)
        document = self._document(response, body)
        said = document.get("warnings")
        self.warnings = tuple(str(word) for word in said) if isinstance(said, list) else ()
        return _Read(document)

    def _body(self, response: requests.Response, deadline: float) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while chunk := response.raw.read1(1_048_576, decode_content=True):
            chunks.append(chunk)
            size += len(chunk)
            if size > self._max_bytes:
                fix = "Narrow the matchers, or split the cluster over several sources."
                raise PromError(f"{self.where}: the answer is over {self._max_bytes} bytes. {fix}", permanent=True)
            if time.monotonic() > deadline:
                raise requests.Timeout(f"{size} bytes came in {self._timeout_s:g} s")
        return b"".join(chunks)

    def _document(self, response: requests.Response, body: bytes) -> dict[str, Any]:
        """The JSON object, or a PromError that says what the server said instead."""
        status = response.status_code
        document = _parsed(body)
        if 300 <= status < 400:
            to = without_password(response.headers.get("Location", "?"))
            raise PromError(f"{self.where}: status {status}, it points to {to}. Set url there.", permanent=True)
        if document is None:
            shown = repr(body[:80].decode(errors="replace"))
            whole = "truncated JSON" if body.lstrip()[:1] in (b"{", b"[") else "no JSON"
            permanent = status == 200 and whole == "no JSON" or status in (401, 403, 404)
            text = f"{self.where}: status {status}, {whole}: {shown}. {_fix(status)}"
            raise PromError(text, permanent=permanent, status=status)
        if status != 200 or document.get("status") != "success":
            said = f"{document.get('errorType', 'error')}: {str(document.get('error', 'no reason given'))[:300]}"
            permanent = 400 <= status < 500 and status not in (408, 425, 429)
            text = f"{self.where}: status {status}, {said}. {_fix(status)}"
            raise PromError(text, permanent=permanent, status=status)
        return document


def _ahead_s(date: str) -> float | None:
    """Of an HTTP date, which is cut to whole seconds."""
    try:
        return parsedate_to_datetime(date).replace(tzinfo=UTC).timestamp() + 0.5 - time.time()
    except (ValueError, TypeError):
        return None


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


def _fix(status: int) -> str:
    fixes = {
        200: _NOT_PROMETHEUS,
        401: "Set headers with a token that may query.",
        403: "The token in headers may not query.",
        404: "Check the path in url: it must end before /api/v1.",
        422: "The query hit a limit of the server: narrow the matchers or raise the limit.",
        429: "The server limits how often we may ask: raise interval_s.",
    }
    return fixes.get(status, "Look at the log of Prometheus.")


class _Read(requests.Response):
    """A response already read and parsed."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__()
        self.status_code = 200
        self._document = document

    def json(self, **_named: Any) -> Any:
        return self._document


# --- series ---------------------------------------------------------------------------------------------------------


def _series(result: Sequence[Any], start: float) -> tuple[tuple[RawSeries, ...], Counter[str]]:
    """What can be read of the result; one bad sample costs itself, one bad series itself, both counted."""
    rejected: Counter[str] = Counter()
    series: list[RawSeries] = []
    for one in result:
        labels = one.get("metric") if isinstance(one, dict) else None
        pairs = one.get("values") if isinstance(one, dict) else None
        if not isinstance(labels, dict) or not isinstance(pairs, list) or not _texts(labels):
            rejected["malformed series"] += 1
            continue
        times, values = _samples(pairs, rejected)
        inside = times > start  # Prometheus before 3.0 also returns the left end
        if inside.any():
            series.append(RawSeries(labels, times[inside], values[inside]))
    return tuple(series), rejected


def _texts(labels: dict[Any, Any]) -> bool:
    return all(isinstance(value, str) for value in labels.values())


def _samples(pairs: list[Any], rejected: Counter[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times and values of one series; values are text in this API, and must become numbers before any sum."""
    try:
        times = [at for at, _ in pairs]
        values = [float(text) for _, text in pairs if isinstance(text, str)]
        if len(values) == len(times) and all(type(at) in (int, float) for at in times):
            return np.array(times, np.float64), np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        pass  # something is wrong somewhere: look at each sample
    kept = [good for pair in pairs if (good := _sample(pair, rejected)) is not None]
    both = np.array(kept, np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _instant(one: Any) -> tuple[Mapping[str, str], float] | None:
    """Labels and value of one series of an instant vector; None for anything else."""
    labels, pair = (one.get("metric"), one.get("value")) if isinstance(one, dict) else (None, None)
    sample = _sample(pair, Counter())
    return None if sample is None or not isinstance(labels, dict) or not _texts(labels) else (labels, sample[1])


def _sample(pair: Any, rejected: Counter[str]) -> tuple[float, float] | None:
    if not isinstance(pair, list) or len(pair) != 2:
        rejected["malformed sample"] += 1
    elif type(pair[0]) not in (int, float):
        rejected["unreadable time"] += 1
    elif not isinstance(pair[1], str):
        rejected["unreadable value"] += 1
    else:
        try:
            return float(pair[0]), float(pair[1])
        except (ValueError, OverflowError):
            rejected["unreadable value"] += 1
    return None
