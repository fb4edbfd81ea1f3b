"""One bounded HTTP call to a channel's service: what its answer means for the outbox, and no secret in any error."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import requests
import urllib3

from backend.clock import utc
from backend.notify.base import NotifyError
from backend.notify.outgoing import said

#: Statuses in 4xx that a later try may cure: time-out, conflict, too early, too many (the last with Retry-After).
PASSING = frozenset({408, 409, 425, 429})
#: Of an answer this much is read, unless the caller wants more.
ANSWER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Endpoint:
    """A service by its name, the setting that holds its address, and what must never be shown of it."""

    def __init__(self, name: str, setting: str, timeout_s: float, secrets: Sequence[str]) -> None:
        self.name = name
        self._setting = setting
        self._timeout_s = timeout_s
        self._secrets = tuple(secret for secret in secrets if secret)
        logging.getLogger("urllib3.connectionpool").addFilter(Hidden(self._secrets))

    def post(self, url: str, body: bytes, headers: Mapping[str, str], most: int = ANSWER_BYTES) -> Answer:
        """Status, headers and the beginning of the answer, over in time also where it drips. Raises NotifyError."""
        wait_s = self._timeout_s
        until = time.monotonic() + 2 * wait_s
        try:
            with requests.post(
                url, data=body, headers=dict(headers), timeout=(wait_s, wait_s), allow_redirects=False, stream=True
            ) as response:
                return Answer(response.status_code, response.headers, _beginning(response, until, most))
        except requests.Timeout:
            raise NotifyError(f"{self.name} did not answer within {wait_s:g} s") from None
        except (requests.exceptions.MissingSchema, requests.exceptions.InvalidSchema, requests.exceptions.InvalidURL):
            raise NotifyError(f"{self._setting} is not an http address", permanent=True) from None
        except requests.RequestException as error:  # its text holds the URL, so only its kind is shown
            raise NotifyError(f"{self.name} cannot be reached ({type(error).__name__})") from None

    def taken(self, answer: Answer) -> str:
        """What it said, fit to be kept, where it took the message. Raises NotifyError: permanent for 4xx, with
        ``retry_after_s`` where a time was named; not permanent for 429, 5xx and redirects."""
        words = f"{self.name} answers {answer.status} {self.said(answer.body)}".strip()
        if 200 <= answer.status < 300:
            return words
        raise NotifyError(
            words,
            permanent=400 <= answer.status < 500 and answer.status not in PASSING,
            retry_after_s=retry_after_s(answer.headers),
        )

    def said(self, answer: object) -> str:
        return said(answer, self._secrets)


class Hidden(logging.Filter):
    """Blanks secrets in what a library logs of its requests."""

    def __init__(self, secrets: Sequence[str]) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if any(secret in text for secret in self._secrets):
            for secret in self._secrets:
                text = text.replace(secret, "***")
            record.msg, record.args = text, ()
        return True


def address_secrets(url: str) -> tuple[str, ...]:
    """A secret address, and the parts of it that are the key."""
    parts = urlsplit(url)
    return tuple(part for part in (url, parts.path.rstrip("/"), parts.query) if len(part) > 3)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Retry-After (RFC 9110, 10.2.3) as seconds from the answer: a number, or a date less the answer's own Date."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    then, now = _http_date(value), _http_date(headers.get("Date", ""))
    return max(0.0, (then - now).total_seconds()) if then and now else None


def _http_date(text: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=utc(0).tzinfo)


def _beginning(response: requests.Response, until: float, most: int) -> bytes:
    """Of the body what comes in time. The status already said whether the service has the message: a body that breaks
    off must not make it go twice."""
    read = b""
    try:
        while len(read) < most and time.monotonic() < until:
            piece = response.raw.read1(most - len(read), decode_content=True)
            if not piece:
                break
            read += piece
    except (urllib3.exceptions.HTTPError, OSError):
        return read
    return read
