"""Any receiver by HTTP: the whole message as JSON, signed, under an id that makes a second copy harmless."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

from backend.clock import utc
from backend.notify.http import Endpoint, address_secrets
from backend.notify.outgoing import link, outgoing
from backend.settings import Webhook
from backend.tidings import MessageFacts, Receipt

#: Of the shape of the body; fields are only ever added within one.
VERSION = 1


class WebhookNotifier:
    kind = "webhook"

    def __init__(self, settings: Webhook, url: str, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._url = url
        self._now = now
        secret = settings.secret.get_secret_value() if settings.secret else ""
        self._key = secret.encode()
        address = settings.url.get_secret_value()
        self._endpoint = Endpoint(
            "the webhook", "[webhook] url", settings.timeout_s, (*address_secrets(address), secret)
        )

    def send(self, message: MessageFacts) -> Receipt:
        """One try. Raises NotifyError."""
        body = json.dumps(body_of(message, self._url), ensure_ascii=False).encode("utf-8", "replace")
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Watchkeeper",
            "Idempotency-Key": _header(message.id),
        }
        if self._key:
            at = str(int(self._now()))
            headers |= {"X-Watchkeeper-Timestamp": at, "X-Watchkeeper-Signature": signature(self._key, at, body)}
        answer = self._endpoint.post(self._settings.url.get_secret_value(), body, headers)
        return Receipt(self._endpoint.taken(answer))


def signature(key: bytes, at: str, body: bytes) -> str:
    """``v1=`` and the hex of HMAC-SHA256 over the time (unix s), a dot and the body: a receiver compares it in constant
    time and refuses times more than five minutes off, so that nobody can send an old message again."""
    return "v1=" + hmac.new(key, at.encode() + b"." + body, hashlib.sha256).hexdigest()


def body_of(message: MessageFacts, url: str) -> dict[str, Any]:
    shown = outgoing(message)
    return {
        "version": VERSION,
        "id": shown.id,
        "thread": shown.thread,
        "kind": shown.kind,
        "cluster": shown.cluster,
        "incident": shown.incident or None,
        "state": "resolved" if shown.kind == "closed" else shown.state,
        "severity": shown.severity.word,
        "fault": shown.fault,
        "node": shown.node,
        "job": shown.job,
        "headline": shown.headline,
        "why": shown.why,
        "facts": [{"label": label, "value": value} for label, value in shown.facts],
        "evidence": list(shown.evidence),
        "advice": shown.advice,
        "decision": shown.decision or None,
        "url": link(shown, url),
        "at": utc(shown.at).isoformat(),
        "simulated": shown.simulated,
    }


def _header(text: str) -> str:
    """Where it may stand in a header: visible ASCII, else its hash."""
    if text.isascii() and text.isprintable() and " " not in text and len(text) <= 200:
        return text
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
