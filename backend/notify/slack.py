"""Slack by incoming webhook: one message when an incident opens, one when it closes; it can neither thread nor edit."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import requests

from backend.clock import utc
from backend.notify.base import NotifyError
from backend.notify.blocks import blocks, fallback
from backend.notify.outgoing import link, outgoing, said
from backend.settings import Slack
from backend.tidings import MessageFacts, Receipt

#: Statuses in 4xx that a later try may cure: time-out, too early, too many (the last comes with Retry-After).
PASSING = frozenset({408, 425, 429})
#: Where Slack takes incoming webhooks.
HOSTS = frozenset({"hooks.slack.com", "hooks.slack-gov.com"})
#: Of the answer this much is read: Slack says ``ok`` or one word.
ANSWER_BYTES = 1024


class SlackNotifier:
    """Posts to the webhook of the settings, whose URL is a secret: it stands in no error and no log."""

    kind = "slack"

    def __init__(self, settings: Slack, url: str) -> None:
        self._settings = settings
        self._url = url
        logging.getLogger("urllib3.connectionpool").addFilter(Hidden(self._secrets()))

    def send(self, message: MessageFacts) -> Receipt:
        """One try. Raises NotifyError: permanent for 4xx, with ``retry_after_s`` where Slack named a time; not
        permanent for 429, 5xx, time-outs and no connection."""
        status, headers, answer = self._post(payload(message, self._url))
        if 200 <= status < 300:
            return Receipt(f"Slack answers {status} {said(answer, self._secrets())}")
        raise NotifyError(
            f"Slack answers {status} {said(answer, self._secrets())}".strip(),
            permanent=400 <= status < 500 and status not in PASSING,
            retry_after_s=retry_after_s(headers),
        )

    def _post(self, body: Mapping[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and the beginning of the body; bounded in time also where the answer drips."""
        wait_s = self._settings.timeout_s
        until = time.monotonic() + 2 * wait_s
        try:
            with requests.post(
                self._webhook, json=body, timeout=(wait_s, wait_s), allow_redirects=False, stream=True
            ) as response:
                return response.status_code, response.headers, _beginning(response, until)
        except requests.Timeout:
            raise NotifyError(f"Slack did not answer within {wait_s:g} s") from None
        except (requests.exceptions.MissingSchema, requests.exceptions.InvalidSchema, requests.exceptions.InvalidURL):
            raise NotifyError("[slack] webhook_url is not an http address", permanent=True) from None
        except requests.RequestException as error:  # its text holds the URL, so only its kind is shown
            raise NotifyError(f"Slack cannot be reached ({type(error).__name__})") from None

    @property
    def _webhook(self) -> str:
        return self._settings.webhook_url.get_secret_value()

    def _secrets(self) -> tuple[str, ...]:
        """The address and the part of it that is the key."""
        path = urlsplit(self._webhook).path
        return (self._webhook, path.rstrip("/")) if path.strip("/") else (self._webhook,)


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


def payload(message: MessageFacts, url: str) -> dict[str, Any]:
    """What is posted: blocks, and the line that notifications and old clients show."""
    shown = outgoing(message)
    return {"text": fallback(shown), "blocks": blocks(shown, link(shown, url)), "unfurl_links": False}


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


def _beginning(response: requests.Response, until: float) -> bytes:
    """Of the body what comes in time. The status already said whether Slack has the message: a body that breaks off
    must not make it go twice."""
    read = b""
    try:
        for piece in response.iter_content(chunk_size=1):
            read += piece
            if len(read) >= ANSWER_BYTES or time.monotonic() > until:
                break
    except requests.RequestException:
        return read
    return read


def wrong_shape(webhook: str) -> str:
    """What about the address is not as Slack gives it out, without showing it; "" where it looks right."""
    parts = urlsplit(webhook)
    if parts.scheme != "https":
        return "it does not begin with https"
    if parts.hostname not in HOSTS:
        return "its host is not Slack's"
    if not re.fullmatch(r"/services/T\w+/B\w+/\w+", parts.path):
        return "its path is not /services/T.../B.../key"
    return ""
